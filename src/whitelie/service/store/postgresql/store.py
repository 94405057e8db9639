"""The shared store: one PostgreSQL database for any number of workers, on any number of machines.

A commit is one statement, which is one transaction: `commit_in_steps` in the migrations. It is sent
with the bits that are free as far as is known here. If others have spent some of them, no bit and
no count is changed and the blocks come back; then the batch is looked at again.

If the connection breaks while a write waits for its answer, nobody knows whether it was done. So
every process numbers its writes, and afterwards asks the database for that number.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from whitelie.errors import InvalidInput
from whitelie.service.store import (
    BLOCK,
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
from whitelie.service.store.postgresql_database import (
    Connection,
    one_line,
    parameters,
    prepare,
    shown,
)
from whitelie.service.store.postgresql_pool import COLLISIONS, Lender, Lost
from whitelie.service.store.spent import FREE, Change, SpentBits

READERS = 2
"""Connections that read what may take long. One more reads the rest, and one writes."""

LEAVING = 2.0
"""Seconds for which connections of servers that have ended may still be seen."""

ATTEMPTS = 5
"""How often a commit is sent that collides with others or loses its connection."""

_COMMIT = (
    "SELECT * FROM commit_in_steps(%s, %s, %s, %s, %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::text[])"
)
_SUMS = "sum(issued)::bigint, sum(answered)::bigint, sum(ones)::bigint"
_TOTALS = """
SELECT arm, issued, answered, ones FROM totals
WHERE experiment = %s AND (issued > 0 OR answered > 0)
"""
_TOTALS_BEFORE = f"""
SELECT arm, {_SUMS} FROM counts WHERE experiment = %s AND minute < %s GROUP BY arm
"""
_HISTORY = f"""
SELECT minute - minute %% %s AS bucket, arm, {_SUMS} FROM counts
WHERE experiment = %s AND minute >= %s AND minute < %s GROUP BY bucket, arm
"""
_SHOWN = """
SELECT arm, shown_answered, shown_ones, shown_minute FROM totals
WHERE experiment = %s AND shown_answered > 0
"""
_STEPS = """
SELECT minute - minute %% %s AS bucket, arm, sum(answered)::bigint, sum(ones)::bigint, max(minute)
FROM steps WHERE experiment = %s AND minute >= %s AND minute < %s GROUP BY bucket, arm
"""
_ROLL_BACK = f"""
WITH removed AS (
    DELETE FROM counts WHERE experiment = %s AND minute >= %s AND minute < %s
    RETURNING experiment, arm, issued, answered, ones
), sums AS (
    SELECT experiment, arm, {_SUMS} FROM removed GROUP BY experiment, arm
), subtracted AS (
    UPDATE totals AS t SET issued = t.issued - s.issued, answered = t.answered - s.answered,
        ones = t.ones - s.ones
    FROM sums AS s (experiment, arm, issued, answered, ones)
    WHERE t.experiment = s.experiment AND t.arm = s.arm
)
SELECT * FROM sums
"""
_FOLD = f"""
WITH removed AS (
    DELETE FROM counts WHERE experiment = %(experiment)s AND minute < %(before)s
        AND minute %% %(width)s <> 0
    RETURNING experiment, minute, arm, issued, answered, ones
)
INSERT INTO counts AS c (experiment, minute, arm, issued, answered, ones)
SELECT experiment, minute - minute %% %(width)s AS bucket, arm, {_SUMS} FROM removed
GROUP BY experiment, bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET issued = c.issued + excluded.issued,
    answered = c.answered + excluded.answered, ones = c.ones + excluded.ones
"""
_FOLD_STEPS = """
WITH removed AS (
    DELETE FROM steps WHERE experiment = %(experiment)s AND minute < %(before)s
        AND minute %% %(width)s <> 0
    RETURNING experiment, minute, arm, answered, ones
)
INSERT INTO steps AS s (experiment, minute, arm, answered, ones)
SELECT experiment, minute - minute %% %(width)s AS bucket, arm, sum(answered), sum(ones)
FROM removed GROUP BY experiment, bucket, arm
ON CONFLICT (experiment, minute, arm) DO UPDATE SET
    answered = s.answered + excluded.answered, ones = s.ones + excluded.ones
"""
_FOLD_SHOWN = """
UPDATE totals SET shown_minute = shown_minute - shown_minute %% %(width)s
WHERE experiment = %(experiment)s AND shown_minute < %(before)s AND shown_minute %% %(width)s <> 0
"""
_MOVED = """
SELECT arm FROM totals
WHERE experiment = %(experiment)s AND abs(answered - shown_answered) >= %(step)s
"""
_RESTATE = (
    "SELECT FROM totals WHERE experiment = %(experiment)s ORDER BY arm FOR UPDATE",
    f"DELETE FROM steps WHERE experiment = %(experiment)s AND arm IN ({_MOVED})",
    f"""
    INSERT INTO steps SELECT experiment, %(minute)s, arm, answered, ones FROM totals
    WHERE experiment = %(experiment)s AND arm IN ({_MOVED}) AND answered >= %(step)s
    """,
    f"""
    UPDATE totals SET shown_answered = CASE WHEN answered >= %(step)s THEN answered ELSE 0 END,
        shown_ones = CASE WHEN answered >= %(step)s THEN ones ELSE 0 END,
        shown_minute = CASE WHEN answered >= %(step)s THEN %(minute)s ELSE 0 END
    WHERE experiment = %(experiment)s AND arm IN ({_MOVED})
    """,
)
_SAVE = """
INSERT INTO experiments (slug, definition, key_hash) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING RETURNING number
"""
_CHANGE = """
UPDATE experiments SET definition = %s WHERE number = %s AND slug = %s AND definition = %s
"""
_SAVE_KEY = """
INSERT INTO keys (name, role, hash, origins, decisions_per_minute, expiry)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (hash) DO UPDATE SET name = excluded.name, role = excluded.role,
    origins = excluded.origins, decisions_per_minute = excluded.decisions_per_minute,
    expiry = excluded.expiry
"""
_KEYS = "SELECT name, role, hash, origins, decisions_per_minute, expiry FROM keys ORDER BY number"
_TABLES = "epochs", "experiments", "keys", "counts", "steps", "totals", "spent"
_SIZES = "SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in _TABLES)
_REWRITING = "SELECT pg_advisory_xact_lock(2003331444, 3)"  # b"whit"
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_OTHERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name LIKE 'whitelie %%' AND application_name <> %s
"""
_LAST_EXPERIMENT = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM experiments_number_seq
"""
_FILL_TOTALS = """
INSERT INTO totals
SELECT experiment, arm, sum(issued), sum(answered), sum(ones), sum(shown_answered),
    sum(shown_ones), max(minute)
FROM (
    SELECT experiment, arm, issued, answered, ones, 0 AS shown_answered, 0 AS shown_ones,
        0 AS minute
    FROM counts
    UNION ALL SELECT experiment, arm, 0, 0, 0, answered, ones, minute FROM steps
) AS rows GROUP BY experiment, arm
"""


class PostgresStore:
    """A store in a database; see the contract in `whitelie.service.store`."""

    is_shared = True

    def __init__(self, address: str, *, must_exist: bool = False) -> None:
        self._address = address
        self._spent = SpentBits(lambda _: FREE)
        self._epoch: int | None = None
        self._writes = 0
        prepare(address, must_exist=must_exist)
        self._name = f"whitelie {secrets.token_hex(4)}"
        known = {**parameters(address), "application_name": self._name}
        self._writer, self._quick = Lender(known, 1), Lender(known, 1)
        self._readers = Lender(known, READERS)

    def claim(self, fingerprints: Sequence[bytes] = ()) -> None:
        """Become one of the servers, or refuse if the others' secret is not among ours."""
        with self._transaction() as connection:
            (sealing,) = _only(connection.execute("SELECT secret FROM state FOR UPDATE"))
            if sealing is not None and sealing not in fingerprints:
                reason = (
                    "other services seal the tokens of this database with another secret: "
                    "give this one the same, or theirs and then a new one; "
                    "docs/scaling.md says what to do after a restore"
                )
                raise InvalidInput("WHITELIE_SECRET", "(not shown)", reason)
            if fingerprints and sealing != fingerprints[0]:
                connection.execute("UPDATE state SET secret = %s", (fingerprints[0],))

    def new_epoch(self) -> int:
        """Return a number that no process had before."""
        with self._writer.lent() as connection:
            inserted = connection.execute("INSERT INTO epochs DEFAULT VALUES RETURNING number")
            (number,) = _only(inserted)
        if self._epoch is None:
            self._epoch = number
        return int(number)

    def commit(self, batch: Batch) -> Sequence[bool]:
        """Make a batch durable; return for each report whether its decision was unanswered."""
        change = self._spent.change(batch)
        while spent_elsewhere := self._write(change, batch):
            for block in spent_elsewhere:
                self._spent.learn(block)
            change = self._spent.change(batch)
        for block in change.added:
            self._spent.learn(block)
        return change.free

    def totals(self, experiment: int, before: int | None = None) -> Mapping[int, Counts]:
        """Return the counts of each arm, over all minutes or those before a minute."""
        with (self._quick if before is None else self._readers).lent() as connection:
            if before is None:
                rows = connection.execute(_TOTALS, (experiment,))
            else:
                rows = connection.execute(_TOTALS_BEFORE, (experiment, before))
            return {arm: Counts(*counts) for arm, *counts in rows}

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Counts]:
        """Return {(minute, arm): counts} of the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """
        with self._readers.lent() as connection:
            rows = connection.execute(_HISTORY, (width, experiment, start, stop))
            return {(minute, arm): Counts(*counts) for minute, arm, *counts in rows}

    def shown(self, experiment: int) -> Mapping[int, Step]:
        """Return the sum of all steps of each arm, and the minute of its latest."""
        with self._quick.lent() as connection:
            rows = connection.execute(_SHOWN, (experiment,))
            return {arm: Step(*sums) for arm, *sums in rows}

    def steps(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> Mapping[tuple[int, int], Step]:
        """Return {(minute, arm): step} of what was shown first in the minutes start … stop − 1.

        Minutes are joined in buckets of `width`, which begin at its multiples.
        """
        with self._readers.lent() as connection:
            rows = connection.execute(_STEPS, (width, experiment, start, stop))
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
            if change is not None and not _changed(connection, *change):
                return None
            connection.execute(_REWRITING)
            rows = connection.execute(_ROLL_BACK, (experiment, start, stop))
            removed = {arm: Counts(*counts) for _, arm, *counts in rows}
            if restated is not None:
                for statement in _RESTATE:
                    connection.execute(statement, {"experiment": experiment, **restated._asdict()})
            return removed

    def fold(self, experiment: int, before: int, width: int) -> None:
        """Join counts and steps before a minute in buckets of `width`; all their sums stay.

        A bucket that reaches beyond `before` is left as it is.
        """
        old = {"experiment": experiment, "before": before - before % width, "width": width}
        with self._transaction() as connection:
            connection.execute(_REWRITING)
            for statement in (_FOLD, _FOLD_STEPS, _FOLD_SHOWN):
                connection.execute(statement, old)

    def forget_spent(self, before: int) -> int:
        """Drop the blocks all of whose tokens expired before a minute; return how many."""
        with self._transaction() as connection:
            statement = "DELETE FROM spent WHERE expiry < %s RETURNING epoch, block"
            dropped = connection.execute(statement, (before,)).fetchall()
        for epoch, block in dropped:
            self._spent.forget((epoch, block))
        return len(dropped)

    def spent_bits(self) -> int:
        """Return how many bits are set, in all blocks."""
        query = "SELECT coalesce(sum(bit_count(bits)), 0)::bigint FROM spent"
        with self._readers.lent() as connection:
            return int(_only(connection.execute(query))[0])

    def save(self, slug: str, definition: str, key_hash: str | None = None) -> Saved | None:
        """Keep a new experiment, or return None if there is one of this slug or key."""
        with self._transaction() as connection:
            row = connection.execute(_SAVE, (slug, definition.encode(), key_hash)).fetchone()
        return None if row is None else Saved(row[0], slug, definition, key_hash)

    def change(self, saved: Saved, definition: str) -> Saved | None:
        """Replace the definition, or return None if it is no longer the one of `saved`."""
        with self._transaction() as connection:
            is_changed = _changed(connection, saved, definition)
        return saved._replace(definition=definition) if is_changed else None

    def delete(self, number: int) -> None:
        """Remove an experiment, all its counts and steps."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM experiments WHERE number = %s", (number,))
            connection.execute(_REWRITING)
            for table in ("counts", "steps", "totals"):
                connection.execute(f"DELETE FROM {table} WHERE experiment = %s", (number,))

    def experiments(self) -> Sequence[Saved]:
        """Return all experiments, in the order of their numbers."""
        with self._quick.lent() as connection:
            return _experiments(connection)

    def save_key(self, key: Key) -> None:
        """Keep a key, in place of the one of the same hash."""
        with self._transaction() as connection:
            _save_key(connection, key)

    def delete_key(self, hash: bytes) -> None:
        """Remove the key of this hash."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM keys WHERE hash = %s", (hash,))

    def keys(self) -> Sequence[Key]:
        """Return all keys, in the order in which they were first kept."""
        with self._quick.lent() as connection:
            return _keys(connection)

    def generation(self) -> int:
        """Return a number that differs after any change of experiments or keys."""
        with self._quick.lent() as connection:
            return int(_only(connection.execute("SELECT generation FROM state"))[0])

    def probe(self) -> None:
        """Write something durably, or raise `Unavailable`."""
        with self._writer.lent() as connection:
            connection.execute("UPDATE state SET probes = probes + 1")

    def sizes(self) -> Mapping[str, int]:
        """Return how many rows each table has: all that is stored."""
        with self._readers.lent() as connection:
            return dict(zip(_TABLES, _only(connection.execute(_SIZES)), strict=True))

    def require_alone(self) -> None:
        """Refuse if a server uses the store; one that has just ended is waited for."""
        others, end = self._others(), time.monotonic() + LEAVING
        while others and time.monotonic() < end:
            time.sleep(LEAVING / 10)
            others = self._others()
        if others:
            reason = f"{others} connections of servers are open there: stop these first"
            raise InvalidInput("store", shown(self._address), reason)

    def _others(self) -> int:
        with self._readers.lent() as connection:
            return int(_only(connection.execute(_OTHERS, (self._name,)))[0])

    @contextmanager
    def contents(self) -> Iterator[Contents]:
        """Lend everything, as it is at one moment."""
        with self._readers.lent() as connection, connection.transaction():
            connection.execute(_SNAPSHOT)
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            epochs = connection.execute("SELECT number FROM epochs ORDER BY number")
            last = connection.execute(_LAST_EXPERIMENT)
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
        """Take everything from another store, or refuse if this one holds anything."""
        numbers = {
            "epochs": max(contents.epochs, default=0),
            "experiments": contents.last_experiment,
        }
        with self._writer.lent() as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {', '.join(_TABLES)} IN EXCLUSIVE MODE")
            if any(_only(connection.execute(_SIZES))):
                raise not_empty(shown(self._address))
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
            connection.execute(_FILL_TOTALS)
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
        """Give up the store; whoever waits for it in another thread is told `Unavailable`."""
        for lender in (self._writer, self._quick, self._readers):
            lender.close()

    def _write(self, change: Change, batch: Batch) -> list[Block]:
        """Write a change; or write nothing, and return blocks with bits that others have spent."""
        added, steps = change.added, batch.steps
        counts = [(*row, steps.get(row[0], "NULL")) for row in change.counts]
        places = [_array(column) for column in zip(*counts, strict=True)] or ["{}"] * 7
        addresses = [_array(column) for column in zip(*(b[:3] for b in added), strict=True)]
        masks = _array(block.bits.hex() for block in added)
        columns = *places, *(addresses or ["{}"] * 3), masks
        for _ in range(ATTEMPTS):
            epoch, write = self._next_write()
            try:
                with self._writer.lent() as connection:
                    values = (epoch, write, batch.generation, batch.minute, *columns)
                    rows = connection.execute(_COMMIT, values).fetchall()
            except Lost:
                if self._was_done(write):
                    return []
            except COLLISIONS:
                pass
            else:
                if rows and rows[0][0] is None:
                    raise Stale("experiments or keys have been changed")
                return [Block(epoch, block, 0, _bytes(bits)) for epoch, block, bits in rows]
        raise Unavailable("the database has failed to commit several times in a row")

    def _next_write(self) -> tuple[int, int]:
        """Return the epoch of this process and the number of its next write."""
        epoch = self.new_epoch() if self._epoch is None else self._epoch
        self._writes += 1
        return epoch, self._writes

    def _was_done(self, write: int) -> bool:
        """Whether a write whose answer was lost has been done; if not, it never will be."""
        statement = "UPDATE epochs SET fence = %s WHERE number = %s RETURNING writes"
        while self._writer.pause():
            with suppress(Unavailable), self._writer.lent() as connection:
                row = connection.execute(statement, (write, self._epoch)).fetchone()
                return row is not None and row[0] == write
        raise Unavailable("the store was closed before the database could be asked")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Do all that follows, or nothing."""
        epoch, write = self._next_write()
        try:
            with self._writer.lent() as connection, connection.transaction():
                connection.execute("SELECT number_write(%s, %s)", (epoch, write))
                yield connection
        except Lost:
            if not self._was_done(write):
                raise
        except COLLISIONS as error:
            raise Unavailable(one_line(error)) from error


def _changed(connection: Connection, saved: Saved, definition: str) -> bool:
    known = saved.number, saved.slug, saved.definition.encode()
    return connection.execute(_CHANGE, (definition.encode(), *known)).rowcount > 0


def _experiments(connection: Connection) -> list[Saved]:
    query = "SELECT number, slug, definition, key_hash FROM experiments ORDER BY number"
    return [
        Saved(number, slug, definition.decode(), key_hash)
        for number, slug, definition, key_hash in connection.execute(query)
    ]


def _keys(connection: Connection) -> list[Key]:
    return [
        Key(name, role, hash, tuple(json.loads(origins)), per_minute, expiry)
        for name, role, hash, origins, per_minute, expiry in connection.execute(_KEYS)
    ]


def _save_key(connection: Connection, key: Key) -> None:
    limits = json.dumps(key.origins), key.decisions_per_minute, key.expiry
    connection.execute(_SAVE_KEY, (key.name, key.role, key.hash, *limits))


def _copy(connection: Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Put many rows into a table."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _streamed(connection: Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query without holding all of them."""
    with connection.cursor(name="rows") as cursor:
        yield from cursor.execute(query.encode())


def _only(cursor: "psycopg.Cursor[tuple[Any, ...]]") -> tuple[Any, ...]:
    """Return the one row that a query has."""
    row = cursor.fetchone()
    assert row is not None
    return row


def _array(values: Any) -> str:
    """Return an array as PostgreSQL reads it."""
    return "{" + ",".join(map(str, values)) + "}"


def _bytes(bits: str) -> bytes:
    """Return a bit string as bytes."""
    return int(bits, 2).to_bytes(BLOCK // 8)


def _bit_string(bits: bytes) -> str:
    return f"{int.from_bytes(bits):0{BLOCK}b}"
