"""A pool of connections to a PostgreSQL database, and what its errors mean."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from whitelie.service.store.contract import Unavailable
from whitelie.service.store.postgresql.database import Connection, one_line

CONNECT_TIMEOUT_SECONDS = 2.0
"""How long a thread waits for a connection."""

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.25, 2.0
"""Pauses before the database is tried again; each is twice the one before."""

CONFLICTS = errors.SerializationFailure, errors.DeadlockDetected
"""What PostgreSQL raises in one of several transactions that block each other."""

_UNAVAILABLE_CODES = ("08", "25006", "40", "42501", "53", "55", "57", "58", "WL")
"""How the SQLSTATE codes begin that mean: not now. All others would be faults of ours."""


class ConnectionLost(Unavailable):
    """The connection broke; a write on it may or may not have been done."""


class Pool:
    """At most `max_size` connections, each used by one thread at a time, replaced if they break."""

    def __init__(self, parameters: dict[str, Any], max_size: int) -> None:
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            kwargs={**parameters, "autocommit": True},
            min_size=1,
            max_size=max_size,
            timeout=CONNECT_TIMEOUT_SECONDS,
            reconnect_timeout=CONNECT_TIMEOUT_SECONDS,
            open=True,
        )
        self._max_size = max_size
        self._in_use: set[Connection] = set()
        self._closing = threading.Event()
        self._pause_seconds, self._fails_until = FIRST_RETRY_SECONDS, 0.0

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection; raise `Unavailable` for what the network or the database causes."""
        connection = self._get()
        self._in_use.add(connection)
        try:
            if self._closing.is_set():  # `close` may not have seen this one
                raise Unavailable("the store is closed")
            yield connection
        except psycopg.Error as error:
            if connection.closed:
                raise ConnectionLost(
                    f"the connection to the database broke ({one_line(error)})"
                ) from error
            if isinstance(error, CONFLICTS) or not (error.sqlstate or "").startswith(
                _UNAVAILABLE_CODES
            ):
                raise
            raise Unavailable(f"the database says: {one_line(error)}") from error
        finally:
            self._in_use.discard(connection)
            self._pool.putconn(connection)

    def pause(self) -> bool:
        """Wait before a retry; return False if the pool was closed."""
        return not self._closing.wait(FIRST_RETRY_SECONDS)

    def close(self) -> None:
        """Interrupt all queries, and close all connections."""
        self._closing.set()
        for connection in tuple(self._in_use):
            with suppress(psycopg.Error, OSError):  # its query may have ended meanwhile
                _shut_down(connection)
        self._pool.close(timeout=FIRST_RETRY_SECONDS)  # its threads may wait for a dead server

    def _get(self) -> Connection:
        """Take a connection from the pool; after a failure, fail fast for a while (backoff)."""
        if time.monotonic() >= self._fails_until:
            try:
                connection = self._pool.getconn()
            except (PoolTimeout, PoolClosed):
                if len(self._in_use) == self._max_size:
                    raise Unavailable("all connections to the database are busy") from None
                self._fails_until = time.monotonic() + self._pause_seconds
                self._pause_seconds = min(2 * self._pause_seconds, MAX_RETRY_SECONDS)
            else:
                self._pause_seconds = FIRST_RETRY_SECONDS
                return connection
        raise Unavailable("the database cannot be reached")


def _shut_down(connection: Connection) -> None:
    """Shut down the socket of a connection: a thread that waits for an answer sees an error."""
    with socket.socket(fileno=os.dup(connection.fileno())) as opened:
        opened.shutdown(socket.SHUT_RDWR)
