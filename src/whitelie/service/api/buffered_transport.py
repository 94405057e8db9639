"""A transport that writes each answer at once, instead of its head first and then its body.

On loopback or behind a proxy every write wakes the reader, so two writes cost both sides twice.
"""

import asyncio
from typing import Any

MAX_BUFFERED_BYTES = 1 << 16
"""A larger piece is written at once: only the transport knows whether the peer reads, and it must
be told of large writes for its backpressure to work."""


class BufferedTransport:
    """A transport that buffers writes until the next iteration of the event loop."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self.is_closing = transport.is_closing  # copied, since every answer calls it

    def write(self, data: bytes) -> None:
        """Write soon, together with what follows in this iteration."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) >= MAX_BUFFERED_BYTES:
            self._flush()

    def write_eof(self) -> None:
        """Write what is buffered, and signal the end."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Write what is buffered, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
