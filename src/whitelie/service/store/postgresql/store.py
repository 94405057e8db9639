"""The shared store: one PostgreSQL database for any number of workers, on any number of machines.

A commit is one statement and one transaction: `commit_in_steps` in the migrations. The store sends
it with the bits that are free as far as its cache knows. If others have spent some of them, the
database changes nothing and returns the blocks; the store adds these to its cache and tries again.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from whitelie.errors import InvalidInput
from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Block,
    Contents,
    Counts,
    Key,
    Restatement,
    Stale,
    Step,
    StoredExperiment,
    not_empty,
)
from whitelie.service.store.postgresql import statements as sql
from whitelie.service.store.postgresql.database import (
    Connection,
    parameters,
    prepare,
    without_password,
)
from whitelie.service.store.postgresql.numbered_writes import NumberedWrites
from whitelie.service.store.postgresql.pool import Pool
from whitelie.service.store.spent_bits import NO_BIT_SPENT, Change, SpentBits

SLOW_READ_CONNECTIONS = 2
"""Connections for queries that may take long. One more reads the rest, and one writes."""

SERVER_EXIT_TIMEOUT_SECONDS = 2.0
"""How long the database may still list connections of servers that have ended."""


class PostgresStore:
    """A store in a database; `whitelie.service.store.contract` documents its methods."""

    is_shared = True

    def __init__(self, address: str, *, must_exist: bool = False) -> None:
        self._address = address
        self._spent = SpentBits(lambda _: NO_BIT_SPENT)
        prepare(address, must_exist=must_exist)
        self._name = f"whitelie {secrets.token_hex(4)}"
        settings = {**parameters(address), "application_name": self._name}
        self._writer, self._quick = Pool(settings, 1), Pool(settings, 1)
        self._readers = Pool(settings, SLOW_READ_CONNECTIONS)
        self._writes = NumberedWrites(self._writer)

    def claim(self, fingerprints: Sequence[bytes] = ()) -> None:
        """Become one of the servers, or refuse if the others' secret is not among ours."""
        with self._writes.transaction() as connection:
            (sealing,) = _only(connection.execute("SELECT secret FROM state FOR UPDATE"))
            if sealing is not None and sealing not in fingerprints:
                reason = (
                    "the other servers of this database seal tokens with another secret: "
                    "give this one the same secret, or theirs and then a new one; "
                    "docs/scaling.md says what to do after a restore"
                )
                raise InvalidInput("WHITELIE_SECRET", "(not shown)", reason)
            if fingerprints and sealing != fingerprints[0]:
                connection.execute("UPDATE state SET secret = %s", (fingerprints[0],))

    def new_epoch(self) -> int:
        return self._writes.new_epoch()

    def commit(self, batch: Batch) -> Sequence[bool]:
        change = self._spent.change(batch)
        while spent_elsewhere := self._write(change, batch):
            for block in spent_elsewhere:
                self._spent.learn(block)
            change = self._spent.change(batch)
        for block in change.added:
            self._spent.learn(block)
        return change.free

    def totals(self, experiment: int, before: int | None = None) -> Mapping[int, Counts]:
        with (self._quick if before is None else self._readers).connection() as connection:
            if before is None:
                rows = connection.execute(sql.TOTALS, (experiment,))
            else:
                rows = connection.execute(sql.TOTALS_BEFORE, (experiment, before))
            return {arm: Counts(*counts) for arm, *counts in rows}

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        with self._readers.connection() as connection:
            rows = connection.execute(sql.HISTORY, (width, experiment, start, stop))
            return {(minute, arm): Counts(*counts) for minute, arm, *counts in rows}

    def published(self, experiment: int) -> Mapping[int, Step]:
        with self._quick.connection() as connection:
            rows = connection.execute(sql.PUBLISHED, (experiment,))
            return {arm: Step(*sums) for arm, *sums in rows}

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        with self._readers.connection() as connection:
            rows = connection.execute(sql.STEPS, (width, experiment, start, stop))
            return {(bucket, arm): Step(*sums) for bucket, arm, *sums in rows}

    def roll_back(
        self,
        experiment: int,
        start: int,
        stop: int,
        change: tuple[StoredExperiment, str] | None = None,
        restated: Restatement | None = None,
    ) -> Mapping[int, Counts] | None:
        with self._writes.transaction() as connection:
            if change is not None and not _changed(connection, *change):
                return None
            connection.execute(sql.LOCK_COUNTS)
            rows = connection.execute(sql.ROLL_BACK, (experiment, start, stop))
            removed = {arm: Counts(*counts) for _, arm, *counts in rows}
            if restated is not None:
                for statement in sql.RESTATE_STEPS:
                    connection.execute(statement, {"experiment": experiment, **restated._asdict()})
            return removed

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        old = {"experiment": experiment, "before": before - before % width, "width": width}
        with self._writes.transaction() as connection:
            connection.execute(sql.LOCK_COUNTS)
            for statement in (sql.JOIN_COUNTS, sql.JOIN_STEPS, sql.DATE_PUBLISHED_BY_BUCKET):
                connection.execute(statement, old)

    def forget_spent(self, before: int) -> int:
        with self._writes.transaction() as connection:
            statement = "DELETE FROM spent WHERE expiry < %s RETURNING epoch, block"
            dropped = connection.execute(statement, (before,)).fetchall()
        for epoch, block in dropped:
            self._spent.forget((epoch, block))
        return len(dropped)

    def spent_bits(self) -> int:
        query = "SELECT coalesce(sum(bit_count(bits)), 0)::bigint FROM spent"
        with self._readers.connection() as connection:
            return int(_only(connection.execute(query))[0])

    def save(
        self, slug: str, definition: str, key_hash: str | None = None
    ) -> StoredExperiment | None:
        with self._writes.transaction() as connection:
            row = connection.execute(sql.SAVE, (slug, definition.encode(), key_hash)).fetchone()
        return None if row is None else StoredExperiment(row[0], slug, definition, key_hash)

    def change(self, saved: StoredExperiment, definition: str) -> StoredExperiment | None:
        with self._writes.transaction() as connection:
            is_changed = _changed(connection, saved, definition)
        return saved._replace(definition=definition) if is_changed else None

    def delete(self, number: int) -> None:
        with self._writes.transaction() as connection:
            connection.execute("DELETE FROM experiments WHERE number = %s", (number,))
            connection.execute(sql.LOCK_COUNTS)
            for table in ("counts", "steps", "totals"):
                connection.execute(f"DELETE FROM {table} WHERE experiment = %s", (number,))

    def experiments(self) -> Sequence[StoredExperiment]:
        with self._quick.connection() as connection:
            return _experiments(connection)

    def save_key(self, key: Key) -> None:
        with self._writes.transaction() as connection:
            _save_key(connection, key)

    def delete_key(self, hash: bytes) -> None:
        with self._writes.transaction() as connection:
            connection.execute("DELETE FROM keys WHERE hash = %s", (hash,))

    def keys(self) -> Sequence[Key]:
        with self._quick.connection() as connection:
            return _keys(connection)

    def generation(self) -> int:
        with self._quick.connection() as connection:
            return int(_only(connection.execute("SELECT generation FROM state"))[0])

    def probe(self) -> None:
        with self._writer.connection() as connection:
            connection.execute("UPDATE state SET probes = probes + 1")

    def sizes(self) -> Mapping[str, int]:
        with self._readers.connection() as connection:
            return dict(zip(sql.TABLES, _only(connection.execute(sql.SIZES)), strict=True))

    def require_alone(self) -> None:
        """Refuse if a server uses the store; wait for one that has just ended."""
        others, end = self._others(), time.monotonic() + SERVER_EXIT_TIMEOUT_SECONDS
        while others and time.monotonic() < end:
            time.sleep(SERVER_EXIT_TIMEOUT_SECONDS / 10)
            others = self._others()
        if others:
            reason = f"servers have {others} connections to it: stop these servers first"
            raise InvalidInput("store", without_password(self._address), reason)

    def _others(self) -> int:
        with self._readers.connection() as connection:
            return int(_only(connection.execute(sql.OTHER_SERVERS, (self._name,)))[0])

    @contextmanager
    def contents(self) -> Iterator[Contents]:
        with self._readers.connection() as connection, connection.transaction():
            connection.execute(sql.SNAPSHOT)
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            epochs = connection.execute("SELECT number FROM epochs ORDER BY number")
            last = connection.execute(sql.LAST_EXPERIMENT)
            yield Contents(
                epochs=[number for (number,) in epochs],
                last_experiment=_only(last)[0],
                experiments=_experiments(connection),
                keys=_keys(connection),
                counts=_streamed(connection, "SELECT * FROM counts"),
                steps=_streamed(connection, "SELECT * FROM steps"),
                spent=(
                    Block(epoch, block, expiry, _bytes(bits))
                    for epoch, block, expiry, bits in _streamed(connection, "SELECT * FROM spent")
                ),
            )

    def fill(self, contents: Contents) -> None:
        numbers = {
            "epochs": max(contents.epochs, default=0),
            "experiments": contents.last_experiment,
        }
        with self._writer.connection() as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {', '.join(sql.TABLES)} IN EXCLUSIVE MODE")
            if any(_only(connection.execute(sql.SIZES))):
                raise not_empty(without_password(self._address))
            _copy(connection, "epochs (number)", ((number,) for number in contents.epochs))
            definitions = (
                (number, slug, definition.encode(), key_hash)
                for number, slug, definition, key_hash in contents.experiments
            )
            _copy(connection, "experiments (number, slug, definition, key_hash)", definitions)
            for key in contents.keys:
                _save_key(connection, key)
            _copy(connection, "counts", contents.counts)
            _copy(connection, "steps", contents.steps)
            connection.execute(sql.FILL_TOTALS)
            _copy(
                connection,
                "spent",
                ((*block[:3], _bit_string(block.bits)) for block in contents.spent),
            )
            for table, last in numbers.items():
                if last:
                    sequence = f"{table}_number_seq"
                    connection.execute("SELECT setval(%s, %s)", (sequence, last))

    def close(self) -> None:
        for pool in (self._writer, self._quick, self._readers):
            pool.close()

    def _write(self, change: Change, batch: Batch) -> list[Block]:
        """Write a change; or write nothing, and return blocks with bits that others have spent."""
        added, steps = change.added, batch.steps
        counts = [(*row, steps.get(row[0], "NULL")) for row in change.counts]
        cells = [_array(column) for column in zip(*counts, strict=True)] or ["{}"] * 7
        block_ids = [_array(column) for column in zip(*(b[:3] for b in added), strict=True)]
        masks = _array(block.bits.hex() for block in added)
        columns = *cells, *(block_ids or ["{}"] * 3), masks
        rows = self._writes.execute(sql.COMMIT, (batch.generation, batch.minute, *columns))
        if rows and rows[0][0] is None:
            raise Stale("experiments or keys have been changed")
        return [Block(epoch, block, 0, _bytes(bits)) for epoch, block, bits in rows]


def _changed(connection: Connection, saved: StoredExperiment, definition: str) -> bool:
    known = saved.number, saved.slug, saved.definition.encode()
    return connection.execute(sql.CHANGE, (definition.encode(), *known)).rowcount > 0


def _experiments(connection: Connection) -> list[StoredExperiment]:
    query = "SELECT number, slug, definition, key_hash FROM experiments ORDER BY number"
    return [
        StoredExperiment(number, slug, definition.decode(), key_hash)
        for number, slug, definition, key_hash in connection.execute(query)
    ]


def _keys(connection: Connection) -> list[Key]:
    return [
        Key(name, role, hash, tuple(json.loads(origins)), per_minute, expiry)
        for name, role, hash, origins, per_minute, expiry in connection.execute(sql.KEYS)
    ]


def _save_key(connection: Connection, key: Key) -> None:
    limits = json.dumps(key.origins), key.decisions_per_minute, key.expiry
    connection.execute(sql.SAVE_KEY, (key.name, key.role, key.hash, *limits))


def _copy(connection: Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Write many rows to a table."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _streamed(connection: Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query without having all of them in memory."""
    with connection.cursor(name="rows") as cursor:
        yield from cursor.execute(query.encode())


def _only(cursor: "psycopg.Cursor[tuple[Any, ...]]") -> tuple[Any, ...]:
    """Return the only row of a query."""
    row = cursor.fetchone()
    assert row is not None
    return row


def _array(values: Any) -> str:
    """Return an array as PostgreSQL parses it."""
    return "{" + ",".join(map(str, values)) + "}"


def _bytes(bits: str) -> bytes:
    """Return a bit string as bytes."""
    return int(bits, 2).to_bytes(BITS_PER_BLOCK // 8)


def _bit_string(bits: bytes) -> str:
    return f"{int.from_bytes(bits):0{BITS_PER_BLOCK}b}"
