"""The embedded store: one SQLite file with a write-ahead log, flushed to disk at every commit.

A thread releases the interpreter's lock at each step of a statement, and it waits long to get the
lock back from a busy event loop. So a commit takes one step, in which the trigger of the view
`batch` does everything, and a query returns all its rows as one JSON text.
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

import msgspec

from whitelie.errors import InvalidInput
from whitelie.service.store.contract import (
    Batch,
    Block,
    Contents,
    Counts,
    Key,
    Restatement,
    Stale,
    Step,
    StoredExperiment,
    Unavailable,
    not_empty,
)
from whitelie.service.store.spent_bits import NO_BIT_SPENT, BlockId, Change, SpentBits, union
from whitelie.service.store.sqlite import statements as sql
from whitelie.service.store.sqlite.file import (
    LOCK_TIMEOUT_SECONDS,
    connect,
    open_for_writing,
    resolve,
    transaction,
)

MIN_FREE_BYTES = 1 << 20
"""How much of the disk must be free before a store that was unavailable works again."""

_END_OF_TIME = 2**62  # later than any minute

_UNAVAILABLE_BECAUSE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: f"another process has locked the database for {LOCK_TIMEOUT_SECONDS} s",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_READONLY: "the database may only be read",
    sqlite3.SQLITE_IOERR: "the disk fails to read or write the database",
    sqlite3.SQLITE_CANTOPEN: "the database or its log cannot be opened",
    sqlite3.SQLITE_PROTOCOL: "the database's locks do not work",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_NOTADB: "the database is damaged",
}


class SQLiteStore:
    """A store in one file; `whitelie.service.store.contract` documents its methods.

    It caches spent bits, and adds those of a commit to the cache once the commit is durable. The
    database refuses a commit if another process has spent bits in between. Then the store empties
    its cache, reads again, and commits again.
    """

    is_shared = False

    def __init__(self, path: Path) -> None:
        self._path = path = resolve(path)
        self._writer = secrets.randbits(62)
        self._spent = SpentBits(self._read_block)
        self._readers: deque[sqlite3.Connection] = deque()
        self._lock: int | None = None
        with _translated_errors():
            self._connection = open_for_writing(path)

    def claim(self, fingerprints: Sequence[bytes] = ()) -> None:
        """Become the only server of this file until `close`, or refuse if there is another."""
        try:
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Unavailable(f"{self._path}.lock cannot be created ({error.strerror})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            reason = "another server uses it: stop that one, or give this one a file of its own"
            raise InvalidInput("store", str(self._path), reason) from None
        self._lock = lock

    def new_epoch(self) -> int:
        return _number(self._write("INSERT INTO epochs DEFAULT VALUES").lastrowid)

    def commit(self, batch: Batch) -> Sequence[bool]:
        with _translated_errors():
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
        with self._reading() as connection:
            return _totals(connection, experiment, 0, _END_OF_TIME if before is None else before)

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        with self._reading() as connection:
            rows = _rows(connection, sql.HISTORY, (experiment, start, stop, width))
        return {(minute, arm): Counts(*counts) for minute, arm, *counts in rows}

    def published(self, experiment: int) -> Mapping[int, Step]:
        with self._reading() as connection:
            return {
                arm: Step(*sums) for arm, *sums in _rows(connection, sql.PUBLISHED, (experiment,))
            }

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        with self._reading() as connection:
            rows = _rows(connection, sql.STEPS, (experiment, start, stop, width))
        return {(bucket, arm): Step(*sums) for bucket, arm, *sums in rows}

    def roll_back(
        self,
        experiment: int,
        start: int,
        stop: int,
        change: tuple[StoredExperiment, str] | None = None,
        restated: Restatement | None = None,
    ) -> Mapping[int, Counts] | None:
        with self._transaction() as connection:
            if change is not None and self.change(*change) is None:
                return None
            removed = _totals(connection, experiment, start, stop)
            where = "experiment = ? AND minute >= ? AND minute < ?"
            connection.execute(f"DELETE FROM counts WHERE {where}", (experiment, start, stop))
            for arm, (_, answered, ones) in removed.items():
                connection.execute(sql.WITHHOLD_REMOVED, (answered, ones, experiment, arm))
            connection.execute(sql.SET_ROLLBACK_FLAG)
            if restated is not None:
                for statement in sql.RESTATE_STEPS:
                    connection.execute(statement, {"experiment": experiment, **restated._asdict()})
        return removed

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        old = experiment, before - before % width, width
        with self._transaction() as connection:
            for table, join in (("counts", sql.JOIN_COUNTS), ("steps", sql.JOIN_STEPS)):
                connection.execute(join, old)
                where = "experiment = ? AND minute < ? AND minute % ? <> 0"
                connection.execute(f"DELETE FROM {table} WHERE {where}", old)
            connection.execute(sql.DATE_PUBLISHED_BY_BUCKET, old)

    def forget_spent(self, before: int) -> int:
        with self._transaction() as connection:
            # Other processes must drop their cached blocks too, or a commit would write them again.
            self._take_over()
            query = "SELECT json_group_array(json_array(epoch, block)) FROM spent WHERE expiry < ?"
            expired = _rows(connection, query, (before,))
            connection.execute("DELETE FROM spent WHERE expiry < ?", (before,))
        for epoch, block in expired:
            self._spent.forget((epoch, block))
        return len(expired)

    def spent_bits(self) -> int:
        with self._reading() as connection:
            blocks = connection.execute("SELECT bits FROM spent")
            return sum(int.from_bytes(bits).bit_count() for (bits,) in blocks)

    def save(
        self, slug: str, definition: str, key_hash: str | None = None
    ) -> StoredExperiment | None:
        columns = "(slug, definition, key_hash) VALUES (?, ?, ?)"
        statement = f"INSERT INTO experiments {columns} ON CONFLICT DO NOTHING"
        cursor = self._write(statement, (slug, definition, key_hash))
        if not cursor.rowcount:
            return None
        return StoredExperiment(_number(cursor.lastrowid), slug, definition, key_hash)

    def change(self, saved: StoredExperiment, definition: str) -> StoredExperiment | None:
        where = "number = ? AND slug = ? AND definition = ?"
        statement = f"UPDATE experiments SET definition = ? WHERE {where}"
        cursor = self._write(statement, (definition, *saved[:3]))
        return saved._replace(definition=definition) if cursor.rowcount else None

    def delete(self, number: int) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM experiments WHERE number = ?", (number,))
            for table in ("counts", "steps", "shown"):
                connection.execute(f"DELETE FROM {table} WHERE experiment = ?", (number,))

    def experiments(self) -> Sequence[StoredExperiment]:
        with self._reading() as connection:
            return _experiments(connection)

    def save_key(self, key: Key) -> None:
        origins = json.dumps(key.origins)
        limits = key.decisions_per_minute, key.expiry
        self._write(sql.SAVE_KEY, (key.name, key.role, key.hash, origins, *limits))

    def delete_key(self, hash: bytes) -> None:
        self._write("DELETE FROM keys WHERE hash = ?", (hash,))

    def keys(self) -> Sequence[Key]:
        with self._reading() as connection:
            return _keys(connection)

    def generation(self) -> int:
        with self._reading() as connection:
            return _number(*connection.execute("SELECT generation FROM state").fetchone())

    def probe(self) -> None:
        self._require_room()
        self._write("UPDATE state SET probes = probes + 1")

    def sizes(self) -> Mapping[str, int]:
        with self._reading() as connection:
            return dict(zip(sql.TABLES, connection.execute(sql.SIZES).fetchone(), strict=True))

    def require_alone(self) -> None:
        """Refuse if a server uses the store; none can start before `close`."""
        self.claim()

    @contextmanager
    def contents(self) -> Iterator[Contents]:
        with self._reading() as connection:
            connection.execute("BEGIN")
            counts = connection.execute("SELECT * FROM counts")
            yield Contents(
                epochs=[number for (number,) in connection.execute("SELECT number FROM epochs")],
                last_experiment=_number(*connection.execute(sql.LAST_EXPERIMENT).fetchone()),
                experiments=_experiments(connection),
                keys=_keys(connection),
                counts=counts,
                steps=connection.execute("SELECT * FROM steps"),
                spent=(Block(*row) for row in connection.execute("SELECT * FROM spent")),
            )
            connection.execute("ROLLBACK")

    def fill(self, contents: Contents) -> None:
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
            connection.execute(sql.FILL_PUBLISHED)
            connection.execute(sql.SET_ROLLBACK_FLAG)
            connection.executemany("INSERT INTO spent VALUES (?, ?, ?, ?)", contents.spent)

    def close(self) -> None:
        while self._readers:
            self._readers.pop().close()
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _insert(self, batch: Batch) -> Change:
        """Write what a batch changes, as far as the cached spent bits are right."""
        change = self._spent.change(batch)
        known = self._writer, batch.generation, batch.minute
        rows = change.counts, change.withheld, [block[:3] for block in change.added]
        texts = (msgspec.json.encode(each).decode() for each in rows)
        bits = b"".join(union(self._spent[block[:2]], block.bits) for block in change.added)
        try:
            self._connection.execute(sql.COMMIT, (*known, *texts, bits))
        except sqlite3.IntegrityError as error:
            if str(error) == "stale":
                raise Stale("experiments or keys have been changed") from None
            raise
        return change

    def _read_block(self, block_id: BlockId) -> bytes:
        query = "SELECT bits FROM spent WHERE epoch = ? AND block = ?"
        row = self._connection.execute(query, block_id).fetchone()
        return bytes(row[0]) if row else NO_BIT_SPENT

    def _take_over(self) -> None:
        """Become the process that spent bits last; if another did, the cache lacks its bits."""
        statement = "UPDATE state SET writer = ?1 WHERE writer <> ?1"
        if self._connection.execute(statement, (self._writer,)).rowcount:
            self._spent.clear()

    def _require_room(self) -> None:
        """Write a file and remove it: the number of free bytes says nothing about quotas."""
        file = Path(f"{self._path}.probe")
        try:
            try:
                with file.open("wb", buffering=0) as stream:
                    if stream.write(bytes(MIN_FREE_BYTES)) < MIN_FREE_BYTES:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(stream.fileno())
            finally:
                file.unlink(missing_ok=True)
        except OSError as error:
            reason = f"fewer than {MIN_FREE_BYTES:,} bytes of the disk can be written"
            raise Unavailable(f"{reason} ({error.strerror})") from error

    def _write(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Execute one statement as one durable transaction."""
        with _translated_errors():
            return self._connection.execute(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _translated_errors(), transaction(self._connection):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that no other thread is using."""
        with _translated_errors():
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = connect(self._path)
                connection.execute("PRAGMA query_only = ON")
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._readers.append(connection)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise `Unavailable` for errors that the disk or another process causes."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = _UNAVAILABLE_BECAUSE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if reason is None:
            raise
        raise Unavailable(f"{reason} ({error})") from error


def _totals(
    connection: sqlite3.Connection, experiment: int, start: int, stop: int
) -> Mapping[int, Counts]:
    rows = _rows(connection, sql.TOTALS, (experiment, start, stop))
    return {arm: Counts(*counts) for arm, *counts in rows}


def _experiments(connection: sqlite3.Connection) -> list[StoredExperiment]:
    columns = "number, slug, definition, key_hash"
    query = f"SELECT json_group_array(json_array({columns})) FROM experiments"
    return sorted(StoredExperiment(*row) for row in _rows(connection, query))


def _keys(connection: sqlite3.Connection) -> list[Key]:
    return [
        Key(name, role, bytes.fromhex(hash), tuple(origins), per_minute, expiry)
        for _, name, role, hash, origins, per_minute, expiry in sorted(_rows(connection, sql.KEYS))
    ]


def _rows(
    connection: sqlite3.Connection, query: str, values: Sequence[object] = ()
) -> list[list[Any]]:
    """Return the rows of a query that returns them as one JSON text."""
    (text,) = connection.execute(query, values).fetchone()
    rows: list[list[Any]] = json.loads(text)
    return rows


def _number(value: int | None) -> int:
    assert value is not None
    return value
