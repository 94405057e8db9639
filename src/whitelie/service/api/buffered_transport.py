"""A transport with one write for each answer instead of one for head and one for body.

On loopback or behind a proxy every write wakes the reader, so two writes cost both sides double.
"""

import asyncio
from typing import Any

MOST_GATHERED = 1 << 16
"""Bytes that are written at once: beyond them only the transport says whether the peer reads."""


class Corked:
    """A transport that writes what has gathered once the event loop has come round."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self.is_closing = transport.is_closing  # asked for by every answer

    def write(self, data: bytes) -> None:
        """Write soon, together with what follows at once."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) >= MOST_GATHERED:
            self._flush()

    def write_eof(self) -> None:
        """Write what has gathered, and say that nothing follows."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Write what has gathered and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
