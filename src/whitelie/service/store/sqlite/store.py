"""The embedded store: one SQLite file with a write-ahead log, flushed to disk at every commit.

A thread gives up the interpreter at each step of a statement, and beside a busy event loop it waits
long to have it back. So a commit is one step: the trigger of the view `batch` does everything, and
rows are read as one JSON text.
"""

import errno
import fcntl
import json
import os
import secrets
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whitelie.errors import InvalidInput
from whitelie.service.store import (
    Batch,
    Block,
    Contents,
    Counts,
    Key,
    Restated,
    Saved,
    Stale,
    Step,
    Unavailable,
    not_empty,
)
from whitelie.service.store.spent import FREE, Address, Change, SpentBits, union
from whitelie.service.store.sqlite_file import WAIT, connected, opened, resolved, transaction

ROOM = 1 << 20
"""Bytes that must be free before a store that was unavailable works again."""

_COMMIT = """
INSERT INTO batch (writer, generation, minute, counts, held, blocks, bits)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_TOTALS = """
SELECT json_group_array(json_array(arm, issued, answered, ones)) FROM (
    SELECT arm, sum(issued) AS issued, sum(answered) AS answered, sum(ones) AS ones
    FROM counts WHERE experiment = ? AND minute >= ? AND minute < ? GROUP BY arm)
"""
_HISTORY = """
SELECT json_group_array(json_array(bucket, arm, issued, answered, ones)) FROM (
    SELECT minute - minute % ?4 AS bucket, arm,
        sum(issued) AS issued, sum(answered) AS answered, sum(ones) AS ones
    FROM counts WHERE experiment = ?1 AND minute >= ?2 AND minute < ?3 GROUP BY bucket, arm)
"""
_SHOWN = """
SELECT json_group_array(json_array(arm, answered, ones, minute))
FROM shown WHERE experiment = ? AND answered > 0
"""
_STEPS = """
SELECT json_group_array(json_array(bucket, arm, answered, ones, minute)) FROM (
    SELECT minute - minute % ?4 AS bucket, arm,
        sum(answered) AS answered, sum(ones) AS ones, max(minute) AS minute
    FROM steps WHERE experiment = ?1 AND minute >= ?2 AND minute < ?3 GROUP BY bucket, arm)
"""
_FOLD = """
INSERT INTO counts
SELECT experiment, minute - minute % ?3 AS bucket, arm, sum(issued), sum(answered), sum(ones)
FROM counts WHERE experiment = ?1 AND minute < ?2 AND minute % ?3 <> 0 GROUP BY bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET issued = issued + excluded.issued,
    answered = answered + excluded.answered, ones = ones + excluded.ones
"""
_FOLD_STEPS = """
INSERT INTO steps
SELECT experiment, minute - minute % ?3 AS bucket, arm, sum(answered), sum(ones)
FROM steps WHERE experiment = ?1 AND minute < ?2 AND minute % ?3 <> 0 GROUP BY bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET
    answered = answered + excluded.answered, ones = ones + excluded.ones
"""
_FOLD_SHOWN = """
UPDATE shown SET minute = minute - minute % ?3 WHERE experiment = ?1 AND minute < ?2
"""
_HOLD_BACK = """
UPDATE shown SET held_answered = held_answered - ?, held_ones = held_ones - ?
WHERE experiment = ? AND arm = ?
"""
_MOVED = "experiment = :experiment AND abs(held_answered) >= :step"
_FILLED = "experiment = :experiment AND held_answered >= :step"
_RESTATE = (
    f"""
    DELETE FROM steps
    WHERE experiment = :experiment AND arm IN (SELECT arm FROM shown WHERE {_MOVED})
    """,
    f"""
    UPDATE shown SET answered = 0, ones = 0, minute = 0,
        held_answered = answered + held_answered, held_ones = ones + held_ones
    WHERE {_MOVED}
    """,
    f"""
    INSERT INTO steps SELECT experiment, :minute, arm, held_answered, held_ones
    FROM shown WHERE {_FILLED}
    """,
    f"""
    UPDATE shown SET answered = held_answered, ones = held_ones, minute = :minute,
        held_answered = 0, held_ones = 0
    WHERE {_FILLED}
    """,
)
_FILL_SHOWN = """
INSERT INTO shown
SELECT experiment, arm, sum(shown_answered), sum(shown_ones), max(minute),
    sum(answered) - sum(shown_answered), sum(ones) - sum(shown_ones)
FROM (
    SELECT experiment, arm, answered, ones, 0 AS shown_answered, 0 AS shown_ones, 0 AS minute
    FROM counts
    UNION ALL SELECT experiment, arm, 0, 0, answered, ones, minute FROM steps
)
GROUP BY experiment, arm HAVING sum(answered) > 0 OR sum(shown_answered) > 0
"""
_SAVE_KEY = """
INSERT INTO keys (name, role, hash, origins, decisions_per_minute, expiry)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name, role = excluded.role,
    origins = excluded.origins, decisions_per_minute = excluded.decisions_per_minute,
    expiry = excluded.expiry
"""
_KEYS = """
SELECT json_group_array(
    json_array(number, name, role, hex(hash), json(origins), decisions_per_minute, expiry))
FROM keys
"""
_TABLES = "epochs", "experiments", "keys", "counts", "steps", "shown", "spent"
_SIZES = "SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in _TABLES)
_LAST_EXPERIMENT = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'experiments'"
_LAST = 2**62  # later than any minute

_TROUBLES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: f"another process has held the database for {WAIT} seconds",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_READONLY: "the database may only be read",
    sqlite3.SQLITE_IOERR: "the disk fails to read or write the database",
    sqlite3.SQLITE_CANTOPEN: "the database or its log cannot be opened",
    sqlite3.SQLITE_PROTOCOL: "the database's locks do not work",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_NOTADB: "the database is damaged",
}


class SQLiteStore:
    """A store in one file; see the contract in `whitelie.service.store`.

    Spent bits are remembered; those of a commit only when it is durable. It is refused by the
    database if another process has spent bits since; then memory is emptied and the batch looked at
    again.
    """

    is_shared = False

    def __init__(self, path: Path) -> None:
        self._path = path = resolved(path)
        self._writer = secrets.randbits(62)
        self._spent = SpentBits(self._block)
        self._readers: deque[sqlite3.Connection] = deque()
        self._lock: int | None = None
        with _explained():
            self._connection = opened(path)

    def claim(self, fingerprints: Sequence[bytes] = ()) -> None:
        """Be the only server of this file until `close`, or refuse if there is another."""
        try:
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Unavailable(f"{self._path}.lock cannot be made ({error.strerror})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            reason = "another server uses it: stop that one, or give this one a file of its own"
            raise InvalidInput("store", str(self._path), reason) from None
        self._lock = lock

    def new_epoch(self) -> int:
        """Return a number that no process had before."""
        return _number(self._write("INSERT INTO epochs DEFAULT VALUES").lastrowid)

    def commit(self, batch: Batch) -> Sequence[bool]:
        """Make a batch durable; return for each report whether its decision was unanswered."""
        with _explained():
            try:
                change = self._insert(batch)
            except sqlite3.IntegrityError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_TRIGGER:
                    raise
                with self._transaction():
                    self._take_over()
                    change = self._insert(batch)
        for block in change.added:
            self._spent.learn(block)
        return change.free

    def totals(self, experiment: int, before: int | None = None) -> Mapping[int, Counts]:
        """Return the counts of each arm, over all minutes or those before a minute."""
        with self._reading() as connection:
            return _totals(connection, experiment, 0, _LAST if before is None else before)

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        """Return {(minute, arm): counts} of the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """
        with self._reading() as connection:
            rows = _rows(connection, _HISTORY, (experiment, start, stop, width))
        return {(minute, arm): Counts(*counts) for minute, arm, *counts in rows}

    def shown(self, experiment: int) -> Mapping[int, Step]:
        """Return the sum of all steps of each arm, and the minute of its latest."""
        with self._reading() as connection:
            return {arm: Step(*sums) for arm, *sums in _rows(connection, _SHOWN, (experiment,))}

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        """Return {(minute, arm): step} of what was shown first in the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """
        with self._reading() as connection:
            rows = _rows(connection, _STEPS, (experiment, start, stop, width))
        return {(bucket, arm): Step(*sums) for bucket, arm, *sums in rows}

    def roll_back(
        self,
        experiment: int,
        start: int,
        stop: int,
        change: tuple[Saved, str] | None = None,
        restated: Restated | None = None,
    ) -> Mapping[int, Counts] | None:
        """Remove the counts of the minutes start … stop − 1; return what was removed, by arm.

        The arguments of a `change` may be given to be made with it; where that returns None, so
        does this, and nothing is removed. Steps are `restated`; without it what is shown stays.
        """
        with self._transaction() as connection:
            if change is not None and self.change(*change) is None:
                return None
            removed = _totals(connection, experiment, start, stop)
            where = "experiment = ? AND minute >= ? AND minute < ?"
            connection.execute(f"DELETE FROM counts WHERE {where}", (experiment, start, stop))
            for arm, (_, answered, ones) in removed.items():
                connection.execute(_HOLD_BACK, (answered, ones, experiment, arm))
            if restated is not None:
                for statement in _RESTATE:
                    connection.execute(statement, {"experiment": experiment, **restated._asdict()})
        return removed

    def fold(self, experiment: int, before: int, width: int) -> None:
        """Join counts and steps before a minute in buckets of `width`; all their sums stay.

        A bucket that reaches beyond `before` is left as it is.
        """
        old = experiment, before - before % width, width
        with self._transaction() as connection:
            for table, join in (("counts", _FOLD), ("steps", _FOLD_STEPS)):
                connection.execute(join, old)
                where = "experiment = ? AND minute < ? AND minute % ? <> 0"
                connection.execute(f"DELETE FROM {table} WHERE {where}", old)
            connection.execute(_FOLD_SHOWN, old)

    def forget_spent(self, before: int) -> int:
        """Drop the blocks all of whose tokens expired before a minute; return how many."""
        with self._transaction() as connection:
            # Others' memories of these blocks must go too, or a commit would bring the bits back.
            self._take_over()
            query = "SELECT json_group_array(json_array(epoch, block)) FROM spent WHERE expiry < ?"
            expired = _rows(connection, query, (before,))
            connection.execute("DELETE FROM spent WHERE expiry < ?", (before,))
        for epoch, block in expired:
            self._spent.forget((epoch, block))
        return len(expired)

    def spent_bits(self) -> int:
        """Return how many bits are set, in all blocks."""
        with self._reading() as connection:
            blocks = connection.execute("SELECT bits FROM spent")
            return sum(int.from_bytes(bits).bit_count() for (bits,) in blocks)

    def save(self, slug: str, definition: str, key_hash: str | None = None) -> Saved | None:
        """Keep a new experiment, or return None if there is one of this slug or key."""
        columns = "(slug, definition, key_hash) VALUES (?, ?, ?)"
        statement = f"INSERT INTO experiments {columns} ON CONFLICT DO NOTHING"
        cursor = self._write(statement, (slug, definition, key_hash))
        if not cursor.rowcount:
            return None
        return Saved(_number(cursor.lastrowid), slug, definition, key_hash)

    def change(self, saved: Saved, definition: str) -> Saved | None:
        """Replace the definition, or return None if it is no longer the one of `saved`."""
        where = "number = ? AND slug = ? AND definition = ?"
        statement = f"UPDATE experiments SET definition = ? WHERE {where}"
        cursor = self._write(statement, (definition, *saved[:3]))
        return saved._replace(definition=definition) if cursor.rowcount else None

    def delete(self, number: int) -> None:
        """Remove an experiment, all its counts and steps."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM experiments WHERE number = ?", (number,))
            for table in ("counts", "steps", "shown"):
                connection.execute(f"DELETE FROM {table} WHERE experiment = ?", (number,))

    def experiments(self) -> Sequence[Saved]:
        """Return all experiments, in the order of their numbers."""
        with self._reading() as connection:
            return _experiments(connection)

    def save_key(self, key: Key) -> None:
        """Keep a key, in place of the one of the same hash."""
        origins = json.dumps(key.origins)
        limits = key.decisions_per_minute, key.expiry
        self._write(_SAVE_KEY, (key.name, key.role, key.hash, origins, *limits))

    def delete_key(self, hash: bytes) -> None:
        """Remove the key of this hash."""
        self._write("DELETE FROM keys WHERE hash = ?", (hash,))

    def keys(self) -> Sequence[Key]:
        """Return all keys, in the order in which they were first kept."""
        with self._reading() as connection:
            return _keys(connection)

    def generation(self) -> int:
        """Return a number that differs after any change of experiments or keys."""
        with self._reading() as connection:
            return _number(*connection.execute("SELECT generation FROM state").fetchone())

    def probe(self) -> None:
        """Write durably, where there must be room for a large commit, or raise `Unavailable`."""
        self._require_room()
        self._write("UPDATE state SET probes = probes + 1")

    def sizes(self) -> Mapping[str, int]:
        """Return how many rows each table has: all that is stored."""
        with self._reading() as connection:
            return dict(zip(_TABLES, connection.execute(_SIZES).fetchone(), strict=True))

    def require_alone(self) -> None:
        """Refuse if a server uses the store; until `close` none can begin to."""
        self.claim()

    @contextmanager
    def contents(self) -> Iterator[Contents]:
        """Lend everything, as it is at one moment."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            counts = connection.execute("SELECT * FROM counts")
            yield Contents(
                epochs=[number for (number,) in connection.execute("SELECT number FROM epochs")],
                last_experiment=_number(*connection.execute(_LAST_EXPERIMENT).fetchone()),
                experiments=_experiments(connection),
                keys=_keys(connection),
                counts=counts,
                steps=connection.execute("SELECT * FROM steps"),
                spent=(Block(*row) for row in connection.execute("SELECT * FROM spent")),
            )
            connection.execute("ROLLBACK")

    def fill(self, contents: Contents) -> None:
        """Take everything from another store, or refuse if this one holds anything."""
        with self._transaction() as connection:
            if any(self.sizes().values()):
                raise not_empty(str(self._path))
            numbers = ((number,) for number in contents.epochs)
            connection.executemany("INSERT INTO epochs VALUES (?)", numbers)
            experiments = "INSERT INTO experiments (number, slug, definition, key_hash)"
            connection.executemany(f"{experiments} VALUES (?, ?, ?, ?)", contents.experiments)
            connection.execute("DELETE FROM sqlite_sequence WHERE name = 'experiments'")
            last = contents.last_experiment
            connection.execute("INSERT INTO sqlite_sequence VALUES ('experiments', ?)", (last,))
            for key in contents.keys:
                self.save_key(key)
            connection.executemany("INSERT INTO counts VALUES (?, ?, ?, ?, ?, ?)", contents.counts)
            connection.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", contents.steps)
            connection.execute(_FILL_SHOWN)
            connection.executemany("INSERT INTO spent VALUES (?, ?, ?, ?)", contents.spent)

    def close(self) -> None:
        """Give up the store."""
        while self._readers:
            self._readers.pop().close()
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _insert(self, batch: Batch) -> Change:
        """Look at every report and write what follows."""
        change = self._spent.change(batch)
        known = self._writer, batch.generation, batch.minute
        counts, held = json.dumps(change.counts), json.dumps(change.held)
        blocks = json.dumps([block[:3] for block in change.added])
        bits = b"".join(union(self._spent[block[:2]], block.bits) for block in change.added)
        try:
            self._connection.execute(_COMMIT, (*known, counts, held, blocks, bits))
        except sqlite3.IntegrityError as error:
            if str(error) == "stale":
                raise Stale("experiments or keys have been changed") from None
            raise
        return change

    def _block(self, address: Address) -> bytes:
        query = "SELECT bits FROM spent WHERE epoch = ? AND block = ?"
        row = self._connection.execute(query, address).fetchone()
        return bytes(row[0]) if row else FREE

    def _take_over(self) -> None:
        """Be the one who has spent bits last; if it was another, forget what may have changed."""
        statement = "UPDATE state SET writer = ?1 WHERE writer <> ?1"
        if self._connection.execute(statement, (self._writer,)).rowcount:
            self._spent.clear()

    def _require_room(self) -> None:
        """Write a file of `ROOM` bytes, and remove it: free space alone says nothing of quotas."""
        file = Path(f"{self._path}.probe")
        try:
            try:
                with file.open("wb", buffering=0) as stream:
                    if stream.write(bytes(ROOM)) < ROOM:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(stream.fileno())
            finally:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"the disk has not {ROOM:,} bytes free ({error.strerror})") from error

    def _write(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Execute one statement, which is a durable transaction."""
        with _explained():
            return self._connection.execute(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _explained(), transaction(self._connection):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that no other thread uses now."""
        with _explained():
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = connected(self._path)
                connection.execute("PRAGMA query_only = ON")
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._readers.append(connection)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the disk or other processes cause into `Unavailable`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        trouble = _TROUBLES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if trouble is None:
            raise
        raise Unavailable(f"{trouble} ({error})") from error


def _totals(
    connection: sqlite3.Connection, experiment: int, start: int, stop: int
) -> Mapping[int, Counts]:
    rows = _rows(connection, _TOTALS, (experiment, start, stop))
    return {arm: Counts(*counts) for arm, *counts in rows}


def _experiments(connection: sqlite3.Connection) -> list[Saved]:
    columns = "number, slug, definition, key_hash"
    query = f"SELECT json_group_array(json_array({columns})) FROM experiments"
    return sorted(Saved(*row) for row in _rows(connection, query))


def _keys(connection: sqlite3.Connection) -> list[Key]:
    return [
        Key(name, role, bytes.fromhex(hash), tuple(origins), per_minute, expiry)
        for _, name, role, hash, origins, per_minute, expiry in sorted(_rows(connection, _KEYS))
    ]


def _rows(
    connection: sqlite3.Connection, query: str, values: Sequence[object] = ()
) -> list[list[Any]]:
    """Return the rows of a query that joins them in one JSON text."""
    (text,) = connection.execute(query, values).fetchone()
    rows: list[list[Any]] = json.loads(text)
    return rows


def _number(value: int | None) -> int:
    assert value is not None
    return value
