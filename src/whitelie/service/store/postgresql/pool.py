"""Connections to a PostgreSQL database, lent to one thread at a time, and their troubles."""

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

from whitelie.service.store import Unavailable
from whitelie.service.store.postgresql_database import Connection, one_line

WAIT = 2.0
"""Seconds for which a connection is waited for."""

PAUSES = 0.25, 2.0
"""The first and the longest pause before the database is tried again, in seconds."""

COLLISIONS = errors.SerializationFailure, errors.DeadlockDetected
"""What happens to one of several transactions that stand in each other's way."""

_TROUBLES = ("08", "25006", "40", "42501", "53", "55", "57", "58", "WL")
"""How codes begin that mean: not now. Others would be mistakes of ours."""


class Lost(Unavailable):
    """The connection broke; a write that it carried may or may not have been done."""


class Lender:
    """Lends connections, at most `most` at once, and makes new ones for those that break."""

    def __init__(self, parameters: dict[str, Any], most: int) -> None:
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            kwargs={**parameters, "autocommit": True},
            min_size=1,
            max_size=most,
            timeout=WAIT,
            reconnect_timeout=WAIT,
            open=True,
        )
        self._most = most
        self._lent: set[Connection] = set()
        self._closing = threading.Event()
        self._pause, self._closed_until = PAUSES[0], 0.0

    @contextmanager
    def lent(self) -> Iterator[Connection]:
        """Lend a connection; turn what the network or the database cause into `Unavailable`."""
        connection = self._get()
        self._lent.add(connection)
        try:
            if self._closing.is_set():  # and whoever closes may not have seen this one
                raise Unavailable("the store is closed")
            yield connection
        except psycopg.Error as error:
            if connection.closed:
                raise Lost(f"the connection to the database broke ({one_line(error)})") from error
            if isinstance(error, COLLISIONS) or not (error.sqlstate or "").startswith(_TROUBLES):
                raise
            raise Unavailable(f"the database says: {one_line(error)}") from error
        finally:
            self._lent.discard(connection)
            self._pool.putconn(connection)

    def pause(self) -> bool:
        """Wait before the database is asked again; return whether it is still to be asked."""
        return not self._closing.wait(PAUSES[0])

    def close(self) -> None:
        """Break off what is going on, and give up all connections."""
        self._closing.set()
        for connection in tuple(self._lent):
            with suppress(psycopg.Error, OSError):  # it may have come back meanwhile
                _hang_up(connection)
        self._pool.close(timeout=PAUSES[0])  # its threads may wait for a database that is away

    def _get(self) -> Connection:
        """Take a connection from the pool; after a failure, fail at once for a while."""
        if time.monotonic() >= self._closed_until:
            try:
                connection = self._pool.getconn()
            except (PoolTimeout, PoolClosed):
                if len(self._lent) == self._most:
                    raise Unavailable("all connections to the database are busy") from None
                self._closed_until = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, PAUSES[1])
            else:
                self._pause = PAUSES[0]
                return connection
        raise Unavailable("the database cannot be reached")


def _hang_up(connection: Connection) -> None:
    """Let whoever waits for an answer on a connection find that it is broken."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
