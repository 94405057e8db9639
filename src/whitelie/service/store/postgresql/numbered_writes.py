"""Writes whose outcome is known even if the connection breaks before the answer.

When a connection breaks during a write, its sender cannot know whether the database did the write.
So every process numbers its writes within an epoch of its own, and the transaction of a write
records the number. A sender that lost an answer makes this number its fencing token: it sets the
epoch's fence to it, in one statement that also returns the last number recorded. A write at or
below the fence that has not arrived by then is refused for ever, so the answer is final.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from whitelie.service.store.contract import Unavailable
from whitelie.service.store.postgresql.database import Connection, one_line
from whitelie.service.store.postgresql.pool import CONFLICTS, ConnectionLost, Pool

MAX_ATTEMPTS = 5
"""How often a statement is sent that conflicts with others or loses its connection."""


class NumberedWrites:
    """The writes of one process, through a pool of one connection."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._epoch: int | None = None
        self._last = 0

    def new_epoch(self) -> int:
        """Return a number that no process had before; the first one numbers the writes."""
        insert = "INSERT INTO epochs DEFAULT VALUES RETURNING number"
        with self._pool.connection() as connection:
            row = connection.execute(insert).fetchone()
        assert row is not None
        if self._epoch is None:
            self._epoch = int(row[0])
        return int(row[0])

    def execute(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Execute a statement, given the epoch and the number before its values; return its rows.

        A write that was done although its answer was lost returns no rows.
        """
        for _ in range(MAX_ATTEMPTS):
            epoch, write = self._next()
            try:
                with self._pool.connection() as connection:
                    return connection.execute(statement, (epoch, write, *values)).fetchall()
            except ConnectionLost:
                if self._was_done(write):
                    return []
            except CONFLICTS:
                pass
        raise Unavailable("the database has failed to commit several times in a row")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit all that the block executes, or nothing."""
        epoch, write = self._next()
        try:
            with self._pool.connection() as connection, connection.transaction():
                connection.execute("SELECT number_write(%s, %s)", (epoch, write))
                yield connection
        except ConnectionLost:
            if not self._was_done(write):
                raise
        except CONFLICTS as error:
            raise Unavailable(one_line(error)) from error

    def _next(self) -> tuple[int, int]:
        """Return the epoch of this process and the number of its next write."""
        epoch = self.new_epoch() if self._epoch is None else self._epoch
        self._last += 1
        return epoch, self._last

    def _was_done(self, write: int) -> bool:
        """Return whether a write whose answer was lost was done; if not, it never will be."""
        statement = "UPDATE epochs SET fence = %s WHERE number = %s RETURNING writes"
        while self._pool.pause():
            with suppress(Unavailable), self._pool.connection() as connection:
                row = connection.execute(statement, (write, self._epoch)).fetchone()
                return row is not None and row[0] == write
        raise Unavailable("the store was closed before the database could be asked")
