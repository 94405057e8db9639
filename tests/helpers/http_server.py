"""An application behind the service's own HTTP, on a port; time passes when a test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from whitelie.service.api.connections import Connections
from whitelie.service.process.server import configuration, listen

HOST = "127.0.0.1"
HANG_TIMEOUT_SECONDS = 30.0
"""Seconds after which a test gives up."""


class Peer:
    """A connection on which a test sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send, as far as the other side takes it."""
        self.writer.write(data)
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            await self.writer.drain()

    async def answer(self) -> httpx.Response:
        """Return the next answer, which says how long it is."""
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return httpx.Response(int(status.split()[1]), headers=headers, content=body)

    async def until(self, end: bytes) -> bytes:
        """Return what comes, up to something."""
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            return await self._reader.readuntil(end)

    async def rest(self) -> bytes:
        """Return what comes until the connection ends."""
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""


@dataclass
class Listening:
    """A server in this process."""

    port: int
    connections: Connections
    now: float = 0.0
    _peers: list[Peer] = field(default_factory=list)

    async def peer(self, address: str = HOST) -> Peer:
        """Connect from an address of this machine."""
        peer = Peer(
            *await asyncio.open_connection(HOST, self.port, local_addr=(address, 0), limit=1 << 24)
        )
        self._peers.append(peer)
        return peer

    async def ask(self, *parts: bytes) -> httpx.Response:
        """Send something on a connection of its own and return the answer."""
        peer = await self.peer()
        for part in parts:
            await peer.send(part)
        return await peer.answer()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with as many sweeps as a server makes."""
        for _ in range(int(seconds)):
            self.now += 1
            self.connections.sweep(self.now)

    async def settle(self, holds: Callable[[], bool]) -> None:
        """Wait until the server has noticed something."""
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while not holds():
                await asyncio.sleep(0.005)

    def close(self) -> None:
        for peer in self._peers:
            peer.writer.transport.abort()


@asynccontextmanager
async def listening(app: Any, most: int = 100, trusted: str = "") -> AsyncIterator[Listening]:
    """Serve an application that lives already."""
    config = configuration(app)
    config.load()
    connections = Connections(most, trusted)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: config.http_protocol_class(  # type: ignore[call-arg]  # uvicorn promises no signature
            config=config, server_state=connections, app_state={}, _loop=loop
        ),
        sock=listen(HOST, 0),
    )
    served = Listening(server.sockets[0].getsockname()[1], connections)
    try:
        yield served
    finally:
        served.close()
        for connection in list(connections.connections):
            connection.abort()
        server.close()
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while connections.tasks:
                await asyncio.sleep(0.005)
