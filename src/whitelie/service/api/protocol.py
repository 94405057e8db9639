"""uvicorn's HTTP/1.1 with limits on time and on bytes, and with one format of errors.

uvicorn waits for ever for a request's head and body and for a peer to read, buffers whatever it is
sent, and answers what it does not understand with a text of its own. Here one sweep a second over
all connections enforces the deadlines, so that a request pays nothing for them.
"""

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from whitelie.errors import WhitelieError
from whitelie.service.api import http
from whitelie.service.api.buffered_transport import BufferedTransport
from whitelie.service.api.connections import Connections
from whitelie.service.refusals import Refusal

MAX_URL_BYTES = 8_192
"""Of a request's path and query."""

MAX_HEAD_BYTES = 32_768
"""Of a request's head and trailers, each field counted with one space before its value."""

MAX_HEADER_FIELDS = 100
"""Of a request, together with the trailers after its body."""

MAX_PIPELINED_REQUESTS = 16
"""Requests that may wait on one connection for the answer to an earlier one."""


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the rest of a request's head"
    BODY = "the rest of a request's body"
    ANSWER = "the service"
    READER = "a peer that has to read"
    NOTHING = "another request"
    END = "a peer that was refused, to close"


HEAD, BODY, ANSWER, READER, NOTHING, END = Phase  # a lookup in an enum takes 0.1 µs

DEADLINES_SECONDS = {
    HEAD: 10.0,
    BODY: 30.0,
    ANSWER: inf,
    READER: 20.0,
    NOTHING: 75.0,
    END: 5.0,
}
"""How long each phase may last. Proxies keep idle connections alive for 60 s and must end first."""

REFUSALS = {
    each.code: each
    for each in (
        Refusal("malformed_request", "this is not HTTP/1.1"),
        Refusal("request_timeout", "the request did not come in time; send it again, faster"),
        Refusal("url_too_long", f"a path and query have at most {MAX_URL_BYTES} bytes", "path"),
        Refusal(
            "headers_too_large",
            f"headers have at most {MAX_HEAD_BYTES} bytes in {MAX_HEADER_FIELDS} fields",
            "headers",
        ),
        Refusal("too_many_connections", "all connections are taken; try again", retry_after=2),
    )
}
"""Refusals before a request reaches the application; they are answered, and never raised."""


def _answer(refused: Refusal) -> bytes:
    headers = [
        *http.refusal_headers(refused),
        *http.SECURITY_HEADERS,
        (b"content-length", b"%d" % len(refused.body)),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[refused.status] + lines + b"\r\n" + refused.body


_ANSWERS: Mapping[str, bytes] = {code: _answer(refused) for code, refused in REFUSALS.items()}


class _Refused(WhitelieError):
    """Stops the parser; its text is the code of a refusal.

    Each is raised once: an exception that is raised again keeps the frames of all times before, and
    so the connections and the bytes that they have read.
    """


def _code_of(error: httptools.HttpParserError) -> str:
    """Return the code of the refusal that stopped the parser."""
    cause = error.__context__
    return str(cause) if isinstance(cause, _Refused) else "malformed_request"


class LimitedProtocol(HttpToolsProtocol):
    """A connection."""

    server_state: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.address = ""
        self.networks: tuple[bytes, ...] = ()
        self.since = self.server_state.now
        self._reading = NOTHING  # the part of a request: head, body, or none
        self._unread = 0  # bytes buffered of what is being read, at least
        self._is_split = False  # whether the head began in an earlier piece
        self._ignores_input = False
        self._progress: tuple[object, ...] = ()

    def connection_made(self, transport: Any) -> None:
        """Start to serve a connection, if there may be one more."""
        super().connection_made(BufferedTransport(transport))  # type: ignore[arg-type]  # delegates
        self.address = self.client[0] if self.client else ""
        self.server_state.admit(self)

    # Reading

    def data_received(self, data: bytes) -> None:
        """Parse a piece at a time, so that no head grows before it is measured."""
        if len(data) <= MAX_HEAD_BYTES:
            self._read(data)
        else:
            for start in range(0, len(data), MAX_HEAD_BYTES):
                self._read(data[start : start + MAX_HEAD_BYTES])

    def _read(self, piece: bytes) -> None:
        if self._ignores_input:
            return
        reading, cycle = self._reading, self.cycle
        self._is_split = reading is HEAD
        body_bytes = 0 if reading is not BODY else len(cycle.body)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._ignores_input = True  # what another protocol would send is dropped
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            self.refuse(_code_of(error))  # a local for the cause would make a cycle
            return
        if self._reading is NOTHING:
            return
        is_new = self.cycle is not cycle or (reading is BODY and self._reading is HEAD)
        if is_new or (reading is BODY and len(cycle.body) > body_bytes):
            self._unread = 0  # what is being read began within the piece
        else:
            self._unread += len(piece)
        if self._unread > MAX_HEAD_BYTES or (self.headers and self._is_too_large):
            self.refuse("headers_too_large")

    def on_message_begin(self) -> None:
        """Start to read a request."""
        super().on_message_begin()
        self._reading = HEAD

    def on_url(self, url: bytes) -> None:
        """Append a part of the path and query."""
        self.url += url
        if len(self.url) > MAX_URL_BYTES:
            raise _Refused("url_too_long")

    def on_headers_complete(self) -> None:
        """Hand a request to the application, before all of its body has come."""
        if (self._is_split or len(self.headers) > MAX_HEADER_FIELDS) and self._is_too_large:
            raise _Refused("headers_too_large")
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            raise _Refused("malformed_request")
        super().on_headers_complete()
        self._reading = BODY
        self.headers = []  # trailers are dropped: in them a header would bypass the proxy

    def on_message_complete(self) -> None:
        """Tell the application that its request is complete."""
        if self.headers and self._is_too_large:
            raise _Refused("headers_too_large")
        self._reading = NOTHING
        self._unread = 0
        super().on_message_complete()

    @property
    def _is_too_large(self) -> bool:
        """Whether head and trailers exceed the limits, as far as they have come."""
        head = self.scope["headers"]
        fields = head if head is self.headers else [*head, *self.headers]
        size = len(b"%b %b HTTP/1.1\r\n\r\n" % (self.parser.get_method(), self.url))
        size += sum(len(name) + len(value) + 4 for name, value in fields)  # ": ", "\r\n"
        return len(fields) > MAX_HEADER_FIELDS or size > MAX_HEAD_BYTES

    # Answering

    def on_response_complete(self) -> None:
        """Serve the next request; the sweep, not a timer, closes an idle keep-alive connection."""
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())

    def refuse(self, code: str) -> None:
        """Answer with an error, unless another answer is on its way, and close the connection."""
        self._ignores_input = True
        is_mid_request = self._reading is BODY
        if not self._is_answering:
            self._write_last(b"" if is_mid_request else _ANSWERS[code])  # b"": answered early
        elif self.pipeline or (is_mid_request and self.cycle.response_started):
            self.abort()
        elif is_mid_request:
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
            self._write_last(_ANSWERS[code])
        else:
            self.cycle.keep_alive = False  # the request before gets the last answer
        self.server_state.refused[code] += 1

    def _write_last(self, text: bytes) -> None:
        """Write the last answer and drop further input: a reset would overtake the answer."""
        self.parser = self.headers = None  # type: ignore[assignment]  # frees their memory
        self.flow.resume_reading()
        if text:
            self.transport.write(text)
        self.transport.write_eof()

    def abort(self) -> None:
        """Close the connection at once."""
        self._ignores_input = True
        self.connections.discard(self)
        self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # Deadlines

    @property
    def _phase(self) -> Phase:
        if self.flow.write_paused or self.transport.is_closing():
            return READER
        if self._is_answering:
            return ANSWER if self._reading is not BODY else BODY
        if self._ignores_input:
            return END
        if self.cycle is None and self._reading is NOTHING:
            return HEAD
        return self._reading

    def check(self, now: float) -> bool:
        """Close the connection if what it waits for is overdue; a trickle extends no deadline.

        Return whether it waits for its peer, not for the service.
        """
        phase = self._phase
        left = self.transport.get_write_buffer_size() if phase is READER else 0
        progress = phase, self.cycle, left
        if progress != self._progress:
            self._progress, self.since = progress, now
        elif now - self.since >= DEADLINES_SECONDS[phase]:
            self._expire(phase)
        return phase is not ANSWER

    def _expire(self, phase: Phase) -> None:
        if phase is BODY or (phase is HEAD and self._reading is HEAD):
            self.refuse("request_timeout")
        elif phase is READER or phase is END:
            self.abort()
        else:
            self.transport.close()
