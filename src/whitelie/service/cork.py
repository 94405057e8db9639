"""uvicorn's protocol, with one write for each answer instead of one for head and one for body.

On loopback or behind a proxy every write wakes the reader, so two writes cost both sides double.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Corked:
    """A transport that writes what has gathered once the event loop has come round."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write soon, together with what follows at once."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Write what has gathered and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedProtocol(HttpToolsProtocol):
    """HTTP/1.1 over a corked transport."""

    def connection_made(self, transport: Any) -> None:
        """Begin to serve a connection."""
        super().connection_made(Corked(transport))  # type: ignore[arg-type]
