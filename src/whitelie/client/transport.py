"""How requests reach the service: over HTTP, or into an application in this process."""

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from urllib.parse import unquote, urlsplit

from whitelie.errors import InvalidInput, WhitelieError

MAX_ANSWER_BYTES = 1 << 20
LIFESPAN_TIMEOUT_SECONDS = 10.0
"""How long an application in this process may take to start or to end."""

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class NoAnswer(WhitelieError):
    """The service could not be reached, or did not answer in time."""


class ApplicationFailed(WhitelieError, RuntimeError):
    """An application in this process failed to start or to end."""


@dataclass(frozen=True)
class Answer:
    """A status, a body, and the seconds of Retry-After, 0 if the service sent none."""

    status: int
    body: bytes = b""
    retry_after: int = 0


class Transport(Protocol):
    """Sends requests to one service; stored reports name the service by this address."""

    address: str

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Return the answer, or raise `NoAnswer` when `timeout` seconds have passed."""


class HTTP:
    """Requests over the network, each on a connection of its own; redirects are not followed.

    >>> HTTP("https://shop.example/learn/").address
    'https://shop.example/learn'
    """

    def __init__(self, address: str) -> None:
        reason = "give an address such as https://decide.example"
        if not isinstance(address, str):
            raise InvalidInput("server", address, reason)
        try:
            parts = urlsplit(address)
            self._port = parts.port
        except ValueError:
            raise InvalidInput("server", address, reason) from None
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise InvalidInput("server", address, reason)
        self.address = address.rstrip("/")
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._is_secure = parts.scheme == "https"

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Return the answer, or raise `NoAnswer` when `timeout` seconds have passed.

        The request runs in a thread, because a socket's timeout limits neither the lookup of a name
        nor an answer that comes in many small pieces.
        """
        answers: list[Answer] = []
        late = threading.Event()
        connections: list[http.client.HTTPConnection] = []

        def ask() -> None:
            with suppress(OSError, ValueError, http.client.HTTPException), ExitStack() as ending:
                connection = ending.enter_context(closing(self._connection(timeout)))
                connections.append(connection)
                connection.connect()
                if not late.is_set():
                    connection.request("POST", self._prefix + path, body, dict(headers))
                    answers.append(_answer(connection.getresponse()))

        asking = threading.Thread(target=ask, daemon=True, name="whitelie-request")
        asking.start()
        asking.join(timeout)
        if not answers:
            late.set()
            # Without this, a server that never ends its answer would keep the thread for ever.
            with suppress(OSError, AttributeError, IndexError):  # there may be no socket yet
                connections[0].sock.shutdown(socket.SHUT_RDWR)
            raise NoAnswer
        return answers[0]

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


class InProcess:
    """Requests to an ASGI application, on an event loop in a thread of its own, without a socket.

    with InProcess(app) as server: client = Client(server, key)
    """

    def __init__(self, app: Application, address: str = "http://in-process.example") -> None:
        self.address = address
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lifespan = _Lifespan(app, self._loop)
        try:
            self._lifespan.tell("startup")
        except BaseException:
            self._end()
            raise

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Return the answer, or raise `NoAnswer` when `timeout` seconds have passed."""
        return self.request("POST", path, body, headers, timeout)

    def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> Answer:
        """Return the answer to any request."""
        call = _Call(_scope(method, path, headers), body)
        asked = asyncio.run_coroutine_threadsafe(call.run(self._app), self._loop)
        try:
            return asked.result(timeout)
        except (Exception, CancelledError) as error:
            asked.cancel()
            raise NoAnswer from error

    def close(self) -> None:
        """End the application and its loop."""
        try:
            self._lifespan.tell("shutdown")
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIFESPAN_TIMEOUT_SECONDS)
        self._loop.close()


class _Lifespan:
    """Starts and ends an application by ASGI's lifespan protocol, if it supports that."""

    def __init__(self, app: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._running = asyncio.run_coroutine_threadsafe(self._run(app), loop)

    async def _run(self, app: Application) -> None:
        with suppress(Exception):  # this is how an application refuses lifespan
            await app({"type": "lifespan"}, self._to_app.get, self._from_app.put)
        await self._from_app.put({"type": "ended"})

    def tell(self, word: str) -> None:
        """Tell the application to start or to end, and wait until it has."""
        if self._running.done():
            return
        asyncio.run_coroutine_threadsafe(self._tell(word), self._loop).result(
            LIFESPAN_TIMEOUT_SECONDS
        )
        if word == "shutdown":
            self._running.result(LIFESPAN_TIMEOUT_SECONDS)

    async def _tell(self, word: str) -> None:
        await self._to_app.put({"type": f"lifespan.{word}"})
        said = await self._from_app.get()
        if said["type"].endswith(".failed"):
            raise ApplicationFailed(f"the application failed at {word}: {said.get('message', '')}")


@dataclass
class _Call:
    """One request to an application, and its answer."""

    scope: Message
    body: bytes
    start: Message = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    is_read: bool = False

    async def run(self, app: Application) -> Answer:
        await app(self.scope, self._receive, self._send)
        headers = {bytes(name).lower(): bytes(value) for name, value in self.start["headers"]}
        again = _seconds(headers.get(b"retry-after", b"").decode("latin-1"))
        return Answer(self.start["status"], b"".join(self.parts), again)

    async def _receive(self) -> Message:
        if self.is_read:
            return {"type": "http.disconnect"}
        self.is_read = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        else:
            self.parts.append(message.get("body", b""))


def _scope(method: str, path: str, headers: Mapping[str, str]) -> Message:
    raw = [
        (name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in headers.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": b"",
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 0),
        "server": ("in-process.example", 80),
    }


def _answer(response: http.client.HTTPResponse) -> Answer:
    content = response.read(MAX_ANSWER_BYTES)
    return Answer(response.status, content, _seconds(response.getheader("Retry-After")))


def _seconds(text: str | None) -> int:
    """Return the seconds of a Retry-After; 0 if it is a date or absent."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
