"""A line between a store and PostgreSQL that a test can cut and mend."""

import select
import socket
import struct
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

from helpers.service_process import HANG_TIMEOUT_SECONDS, HOST

SIZE = 1 << 16


class CuttableLine:
    """A proxy on loopback, in a thread of its own, to the server of a database.

    A silent cut is seen by no kernel: connections stay open, keepalives are answered, new
    connections are established and hang. What has arrived here, an end too, waits for `mend`.
    """

    def __init__(self, database_address: str) -> None:
        parts = conninfo_to_dict(database_address)
        self._goal = str(parts["host"]), int(parts.get("port") or 5432)
        self._holder = _bound(0)  # keeps the port while nobody listens
        self.port: int = self._holder.getsockname()[1]
        self._listener: socket.socket | None = None
        self._connections: list[_Connection] = []
        self._flows = True
        self._is_closed = False
        self._is_stale = False
        self._lock = threading.Lock()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def address_of(self, database_address: str) -> str:
        """Return a database's address through this line."""
        parts = urlsplit(database_address)
        who, at, _ = parts.netloc.rpartition("@")
        rest = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("host", "port")]
        netloc = f"{who}{at}{HOST}:{self.port}"
        return urlunsplit((parts.scheme, netloc, parts.path, urlencode(rest), ""))

    def cut(self, silently: bool) -> None:
        """Let no byte pass from now on, as a pulled cable does, or loudly by resets."""
        with self._lock:
            self._flows = False
            if not silently:
                self._stop_listening()
                for connection in self._connections:
                    connection.reset()
                self._connections = []
            self._ring()

    def mend(self) -> None:
        """Let everything flow again, first what was held back."""
        with self._lock:
            self._flows = True
            self._listen()
            self._ring()

    def close(self) -> None:
        """Reset all connections and end."""
        if self._is_closed:
            return
        self.cut(silently=False)
        with self._lock:
            self._is_closed = True
            self._ring()
        self._thread.join(HANG_TIMEOUT_SECONDS)
        for each in (self._holder, self._bell, self._ear):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = _bound(self.port)
            self._listener.setblocking(False)
            self._listener.listen(1000)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _ring(self) -> None:
        self._is_stale = True
        with suppress(BlockingIOError):
            self._bell.send(b"!")

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                poll, owners = self._interests()
                self._is_stale = False
            ready = [file for file, _ in poll.poll()]
            with self._lock:
                if self._is_stale:
                    with suppress(BlockingIOError):
                        self._ear.recv(SIZE)
                    continue
                for owner in {owners[file] for file in ready if file in owners}:
                    owner.move()
                if self._listener is not None and self._listener.fileno() in ready:
                    self._accept(self._listener)
                self._connections = [one for one in self._connections if not one.is_over]

    def _interests(self) -> "tuple[select.poll, dict[int, _Connection]]":
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        owners: dict[int, _Connection] = {}
        if self._flows:
            assert self._listener is not None
            poll.register(self._listener, select.POLLIN)
            for connection in self._connections:
                for file, mask in connection.interests():
                    poll.register(file, mask)
                    owners[file] = connection
        return poll, owners

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            server = _connected(*self._goal)
        except OSError:
            _reset(client)
        else:
            self._connections.append(_Connection(client, server))


class _Connection:
    """Two ends, and what was read from one and not yet written to the other."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        client.setblocking(False)
        server.setblocking(False)
        self._ways = _Way(client, server), _Way(server, client)
        self.is_over = False

    def interests(self) -> list[tuple[int, int]]:
        """Return the files to wait for, and for what."""
        there, back = self._ways
        pairs = [(there.source, there, back), (back.source, back, there)]
        masks = [
            (end.fileno(), read.wants * select.POLLIN | bool(write.held) * select.POLLOUT)
            for end, read, write in pairs
        ]
        return [(file, mask) for file, mask in masks if mask]

    def move(self) -> None:
        """Move what can be moved without waiting."""
        try:
            for way in self._ways:
                way.move()
        except OSError:
            self.reset()
        else:
            if all(way.has_ended for way in self._ways):
                self._close()

    def reset(self) -> None:
        """Break it off at both ends."""
        for way in self._ways:
            _reset(way.source)
        self.is_over = True

    def _close(self) -> None:
        for way in self._ways:
            way.source.close()
        self.is_over = True


class _Way:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.held = b""
        self.is_read = False
        self.has_ended = False

    @property
    def wants(self) -> bool:
        """Whether more can be read."""
        return not self.is_read and not self.held

    def move(self) -> None:
        with suppress(BlockingIOError):
            if self.wants:
                self.held = self.source.recv(SIZE)
                self.is_read = not self.held
            if self.held:
                self.held = self.held[self.target.send(self.held) :]
        if self.is_read and not self.has_ended:
            self.has_ended = True
            self.target.shutdown(socket.SHUT_WR)


def _bound(port: int) -> socket.socket:
    new = socket.socket()
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    new.bind((HOST, port))
    return new


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        server = socket.create_connection((host, port), HANG_TIMEOUT_SECONDS)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        server.close()
        raise
    return server


def _reset(end: socket.socket) -> None:
    """Close without a FIN."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
