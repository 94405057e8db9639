"""Servers that decide nothing and store nothing: the ceilings of uvicorn and of the load generator.

`app` is a plain ASGI application for uvicorn. As a command, `python benchmarks/trivial.py PORT`,
the same canned answers come from a raw protocol, without ASGI and without reading requests.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, cast

import uvloop

DECISION = {
    "arm": "arm-0",
    "payload": None,
    "token": "t" * 73,
    "mechanism": {"p00": 0.7310585786300049, "p11": 0.7310585786300049, "window": 60, "spread": 60},
    "expires_in": 120,
}


@cache
def decisions(count: int) -> bytes:
    return json.dumps({"decisions": [DECISION] * count}, separators=(",", ":")).encode()


@cache
def accepted(count: int) -> bytes:
    return json.dumps({"items": [{"status": "accepted"}] * count}, separators=(",", ":")).encode()


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer with as many accepted items, or decisions, as were asked for."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    status = 200
    if scope["path"] == "/v1/feedback":
        answer = accepted(body.count(b'"token"'))
    elif scope["path"] == "/v1/experiments":
        status, answer = 201, b'{"id":"trivial"}'
    else:
        answer = decisions(json.loads(body)["count"] if body else 0)
    length = b"%d" % len(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


class Canned(asyncio.Protocol):
    """Single decisions and answers only; a request is taken to come in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST /v1/feedback"):
            body, status = accepted(1), b"200 OK"
        elif data.startswith(b"POST /v1/experiments "):
            body, status = b'{"id":"trivial"}', b"201 Created"
        else:
            body, status = decisions(1), b"200 OK"
        head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self.transport.write(head + body)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Canned, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
