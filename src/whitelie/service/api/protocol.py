"""HTTP/1.1 as uvicorn speaks it, with limits: in time, in bytes, and in one shape of refusals.

uvicorn waits for ever for a request's head and body and for a peer to read, keeps whatever it is
sent, and answers what it does not understand in a text of its own. Here one sweep a second over
all connections does for deadlines, so that a request pays nothing for them.
"""

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from whitelie.service import http
from whitelie.service.connections import Connections
from whitelie.service.cork import Corked
from whitelie.service.refusal import Refusal

LONGEST_URL = 8_192
"""Bytes of a request's path and query."""

LARGEST_HEAD = 32_768
"""Bytes of a request's head and trailers, each field with one blank before its value."""

MOST_FIELDS = 100
"""Header fields of a request, with those that follow its body."""

MOST_PIPELINED = 16
"""Requests that may wait on one connection for the answer to an earlier one."""


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the rest of a request's head"
    BODY = "the rest of a request's body"
    ANSWER = "the service"
    READER = "a peer who has to read"
    NOTHING = "another request"
    END = "a peer who was refused, to close"


HEAD, BODY, ANSWER, READER, NOTHING, END = Phase  # each look into an enum takes 0.1 µs

DEADLINES = {
    HEAD: 10.0,
    BODY: 30.0,
    ANSWER: inf,
    READER: 20.0,
    NOTHING: 75.0,
    END: 5.0,
}
"""Seconds for which each may last. Proxies keep idle connections for 60: theirs must end first."""

REFUSALS = {
    each.code: each
    for each in (
        Refusal("malformed_request", "this is not HTTP/1.1"),
        Refusal("request_timeout", "the request did not come in time; send it again, faster"),
        Refusal("url_too_long", f"a path and query have at most {LONGEST_URL} bytes", "path"),
        Refusal(
            "headers_too_large",
            f"headers have at most {LARGEST_HEAD} bytes in {MOST_FIELDS} fields",
            "headers",
        ),
        Refusal("too_many_connections", "all connections are taken; try again", retry_after=2),
    )
}
"""Refusals of connections, which no application has seen."""


def _answer(refused: Refusal) -> bytes:
    headers = [
        *http.refusal_headers(refused),
        *http.SAFETY,
        (b"content-length", b"%d" % len(refused.body)),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[refused.status] + lines + b"\r\n" + refused.body


_ANSWERS: Mapping[str, bytes] = {code: _answer(refused) for code, refused in REFUSALS.items()}


class LimitedProtocol(HttpToolsProtocol):
    """A connection."""

    server_state: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.address = ""
        self.networks: tuple[bytes, ...] = ()
        self.since = self.server_state.now
        self._reading = NOTHING  # of a request: its head, its body, or nothing
        self._unread = 0  # bytes of what is being read that nobody was handed, at least
        self._is_split = False  # whether a head began in an earlier piece than this one
        self._is_deaf = False
        self._progress: tuple[object, ...] = ()

    def connection_made(self, transport: Any) -> None:
        """Begin to serve a connection, if there is room for it."""
        super().connection_made(Corked(transport))  # type: ignore[arg-type]
        self.address = self.client[0] if self.client else ""
        self.server_state.admit(self)

    # Reading

    def data_received(self, data: bytes) -> None:
        """Read a piece at a time, so that no head grows before it is measured."""
        if len(data) <= LARGEST_HEAD:
            self._read(data)
        else:
            for start in range(0, len(data), LARGEST_HEAD):
                self._read(data[start : start + LARGEST_HEAD])

    def _read(self, piece: bytes) -> None:
        if self._is_deaf:
            return
        reading, cycle = self._reading, self.cycle
        self._is_split = reading is HEAD
        held = 0 if reading is not BODY else len(cycle.body)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._is_deaf = True  # to what another protocol would say: we go on in this one
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            self.refuse(cause.code if isinstance(cause, Refusal) else "malformed_request")
            return
        if self._reading is NOTHING:
            return
        is_new = self.cycle is not cycle or (reading is BODY and self._reading is HEAD)
        if is_new or (reading is BODY and len(cycle.body) > held):
            self._unread = 0  # what is being read began somewhere within the piece
        else:
            self._unread += len(piece)
        if self._unread > LARGEST_HEAD or (self.headers and self._is_too_large):
            self.refuse("headers_too_large")

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        super().on_message_begin()
        self._reading = HEAD

    def on_url(self, url: bytes) -> None:
        """Take a part of the path and query."""
        self.url += url
        if len(self.url) > LONGEST_URL:
            raise REFUSALS["url_too_long"]

    def on_headers_complete(self) -> None:
        """Hand a request on, of which the body may still be on its way."""
        if (self._is_split or len(self.headers) > MOST_FIELDS) and self._is_too_large:
            raise REFUSALS["headers_too_large"]
        if len(self.pipeline) >= MOST_PIPELINED:
            raise REFUSALS["malformed_request"]
        super().on_headers_complete()
        self._reading = BODY
        self.headers = []  # trailers: whoever sends a header there would evade a proxy's

    def on_message_complete(self) -> None:
        """Hand the end of a request on."""
        if self.headers and self._is_too_large:
            raise REFUSALS["headers_too_large"]
        self._reading = NOTHING
        self._unread = 0
        super().on_message_complete()

    @property
    def _is_too_large(self) -> bool:
        """Whether the head and trailers that are being read are, as far as they have come."""
        head = self.scope["headers"]
        fields = head if head is self.headers else [*head, *self.headers]
        size = len(b"%b %b HTTP/1.1\r\n\r\n" % (self.parser.get_method(), self.url))
        size += sum(len(name) + len(value) + 4 for name, value in fields)  # ": ", "\r\n"
        return len(fields) > MOST_FIELDS or size > LARGEST_HEAD

    # Answering

    def on_response_complete(self) -> None:
        """Go on with the next request; the sweep, not a timer, ends a connection without one."""
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())

    def refuse(self, code: str) -> None:
        """Answer with an error, unless there is another answer, and end the connection."""
        self._is_deaf = True
        is_mid_request = self._reading is BODY
        if not self._is_answering:
            self._say_last(b"" if is_mid_request else _ANSWERS[code])  # it was answered early
        elif self.pipeline or (is_mid_request and self.cycle.response_started):
            self.cut()
        elif is_mid_request:
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
            self._say_last(_ANSWERS[code])
        else:
            self.cycle.keep_alive = False  # the request before this one is answered, as the last
        self.server_state.refused[code] += 1

    def _say_last(self, text: bytes) -> None:
        """Write for the last time, and throw away what comes, lest a reset overtakes the answer."""
        self.parser = self.headers = None  # type: ignore[assignment]
        self.flow.resume_reading()
        if text:
            self.transport.write(text)
        self.transport.write_eof()

    def cut(self) -> None:
        """End the connection at once."""
        self._is_deaf = True
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
        if self._is_deaf:
            return END
        if self.cycle is None and self._reading is NOTHING:
            return HEAD
        return self._reading

    def check(self, now: float) -> bool:
        """End the connection if what it waits for is overdue; only what comes is progress.

        Return whether its peer has to act, and not the service.
        """
        phase = self._phase
        left = self.transport.get_write_buffer_size() if phase is READER else 0
        progress = phase, self.cycle, left
        if progress != self._progress:
            self._progress, self.since = progress, now
        elif now - self.since >= DEADLINES[phase]:
            self._expire(phase)
        return phase is not ANSWER

    def _expire(self, phase: Phase) -> None:
        if phase is BODY or (phase is HEAD and self._reading is HEAD):
            self.refuse("request_timeout")
        elif phase is READER or phase is END:
            self.cut()
        else:
            self.transport.close()
