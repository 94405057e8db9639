"""The shared store: the laws of every store, and what a network can get wrong."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from helpers.careless_stores import FindsMistakes
from helpers.cuttable_connection import CuttableLine
from helpers.postgres_server import Postgres
from helpers.service_process import HANG_TIMEOUT_SECONDS, until
from whitelie.errors import InvalidInput
from whitelie.service import wire
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Counts,
    Decision,
    ReportedBit,
    Step,
    StoredExperiment,
    Unavailable,
)
from whitelie.service.store.migrations import migrations_of
from whitelie.service.store.postgresql import database
from whitelie.service.store.postgresql.store import SLOW_READ_CONNECTIONS, PostgresStore
from whitelie.testing.store_contract import StoreContract, decision
from whitelie.testing.store_model import Opener, issued

EMPTY = "; ".join(  # of a few rows, far sooner than TRUNCATE makes new files
    f"DELETE FROM whitelie.{table}"
    for table in ("epochs", "experiments", "keys", "counts", "steps", "totals", "spent")
)


class TestPostgreSQL(StoreContract, FindsMistakes):
    tables_by_arm: ClassVar[tuple[str, ...]] = ("totals",)

    @pytest.fixture
    def fresh(self, postgres: Postgres) -> Iterator[Callable[[], Opener]]:
        address = postgres.new_database()
        PostgresStore(address).close()  # it makes the tables
        stores: list[PostgresStore] = []

        def close_all() -> None:
            while stores:
                stores.pop().close()

        def make() -> Opener:
            close_all()
            postgres.execute(address, EMPTY)
            return opened

        def opened() -> PostgresStore:
            stores.append(PostgresStore(address))
            return stores[-1]

        yield make
        close_all()


@pytest.fixture
def address(postgres: Postgres) -> str:
    return postgres.new_database()


# Broken lines -----------------------------------------------------------------------------------

ONE = decision(0)
PAIR = Batch(issued(ONE), [ReportedBit(ONE, 1)])
AT_WORK = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
    AND pid <> pg_backend_pid()
"""
WAITING = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WITHOUT_FENCE = """
CREATE OR REPLACE FUNCTION whitelie.number_write(my_epoch bigint, my_write bigint) RETURNS void
LANGUAGE sql AS 'UPDATE whitelie.epochs SET writes = my_write WHERE number = my_epoch'
"""


@dataclass
class Sent:
    """A write that waits in the database, sent from a thread through a line that can be cut."""

    line: CuttableLine
    answer: "Future[Any]"
    go_on: Callable[[], None]


@contextmanager
def sent(
    postgres: Postgres, address: str, write: Callable[[PostgresStore], object]
) -> Iterator[Sent]:
    """Send a write, which waits for the lock under which definitions change."""
    with (
        CuttableLine(address) as line,
        ThreadPoolExecutor(1) as thread,
        closing(PostgresStore(line.address_of(address))) as store,
        psycopg.connect(address) as holder,
    ):
        store.new_epoch()
        holder.execute("SELECT pg_advisory_xact_lock(2003331444, 1)")
        answer = thread.submit(write, store)
        until(lambda: postgres.execute(address, WAITING) == [(1,)])
        yield Sent(line, answer, holder.rollback)


def commit(batch: Batch) -> Callable[[PostgresStore], object]:
    return lambda store: store.commit(replace(batch, generation=store.generation()))


def test_a_commit_whose_answer_is_lost_has_been_done(postgres: Postgres, address: str) -> None:
    with (
        closing(PostgresStore(address)) as other,
        sent(postgres, address, commit(PAIR)) as writing,
    ):
        writing.line.cut(silently=True)  # the answer will stay on the line
        writing.go_on()
        until(lambda: other.totals(1))
        writing.line.cut(silently=False)
        writing.line.mend()
        assert writing.answer.result(HANG_TIMEOUT_SECONDS) == [True]
        assert other.totals(1) == {0: Counts(1, 1, 1)}


@pytest.mark.parametrize("has_fence", [True, False])
@pytest.mark.promise("Fencing")
def test_a_commit_behind_the_fence_is_never_done(
    postgres: Postgres, address: str, has_fence: bool
) -> None:
    """Without the fence, the negative control, the late commit would count a second time."""
    PostgresStore(address).close()
    if not has_fence:
        postgres.execute(address, WITHOUT_FENCE)
    with sent(postgres, address, commit(Batch(issued(ONE)))) as writing:
        writing.line.cut(silently=False)  # the first statement waits on in the database
        writing.line.mend()
        until(lambda: postgres.execute(address, WAITING) == [(2,)])
        writing.go_on()
        assert writing.answer.result(HANG_TIMEOUT_SECONDS) == []
    until(lambda: postgres.execute(address, AT_WORK) == [(0,)])
    with closing(PostgresStore(address)) as other:
        assert other.totals(1) == {0: Counts(1 if has_fence else 2, 0, 0)}


def test_a_change_whose_connection_breaks_has_not_happened(
    postgres: Postgres, address: str
) -> None:
    with sent(postgres, address, lambda store: store.save("a", "{}")) as writing:
        writing.line.cut(silently=False)
        writing.line.mend()
        writing.go_on()
        with pytest.raises(Unavailable):
            writing.answer.result(HANG_TIMEOUT_SECONDS)
    with closing(PostgresStore(address)) as other:
        assert other.experiments() == []
        assert other.save("a", "{}") is not None


@pytest.mark.parametrize("is_cut", [False, True])
def test_closing_interrupts_what_waits(postgres: Postgres, address: str, is_cut: bool) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        CuttableLine(address) as line,
        psycopg.connect(address) as holder,
    ):
        store = PostgresStore(line.address_of(address))
        holder.execute("SELECT pg_advisory_xact_lock(2003331444, 1)")
        saving = thread.submit(store.save, "a", "{}")
        until(lambda: postgres.execute(address, WAITING) == [(1,)])
        if is_cut:
            line.cut(silently=True)
        store.close()
        with pytest.raises(Unavailable):
            saving.result(HANG_TIMEOUT_SECONDS)


# Two at once ------------------------------------------------------------------------------------

SPEND = """
INSERT INTO whitelie.spent (epoch, block, expiry, bits) VALUES (1, 0, 160, %s::bit(8192))
ON CONFLICT (epoch, block) DO UPDATE SET bits = whitelie.spent.bits | excluded.bits
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_a_commit_waits_for_another_and_sees_its_bits(
    postgres: Postgres, address: str, is_new: bool
) -> None:
    """Another transaction spends the same bit, in a block that is new or is there already."""
    with (
        ThreadPoolExecutor(1) as thread,
        closing(PostgresStore(address)) as store,
        psycopg.connect(address) as other,
    ):
        if not is_new:
            store.commit(Batch({}, [ReportedBit(decision(5), 1)]))
        mask = bytes([1]) + bytes(BITS_PER_BLOCK // 8 - 1)
        other.execute(SPEND, (f"x{mask.hex()}",))
        answer = thread.submit(
            store.commit, Batch({}, [ReportedBit(ONE, 1), ReportedBit(decision(1), 1)])
        )
        waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
        until(lambda: postgres.execute(address, waiting) == [(True,)])
        other.commit()
        assert answer.result(HANG_TIMEOUT_SECONDS) == [False, True]
        assert store.totals(1)[0].answered == 2 - is_new


def spend_at_once(stores: Sequence[PostgresStore], epoch: int) -> list[Decision]:
    """Let each of several stores spend the same 600 bits; return those that were free, sorted."""
    tokens = [decision(sequence, epoch=epoch) for sequence in range(600)]

    def work(store: PostgresStore) -> list[Decision]:
        mine: list[Decision] = []
        order = random.sample(tokens, len(tokens))
        for start in range(0, len(order), 10):
            some = order[start : start + 10]
            free = store.commit(Batch({}, [ReportedBit(one, 1) for one in some]))
            mine += [one for one, is_free in zip(some, free, strict=True) if is_free]
        return mine

    with ThreadPoolExecutor(len(stores)) as threads:
        return sorted(one for mine in threads.map(work, stores) for one in mine)


@pytest.fixture
def crowd(address: str) -> Iterator[list[PostgresStore]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(PostgresStore(address))) for _ in range(4)]


def test_of_many_who_spend_the_same_bit_one_finds_it_free(crowd: list[PostgresStore]) -> None:
    for epoch in (1, 2, 3):
        assert spend_at_once(crowd, epoch) == [decision(n, epoch=epoch) for n in range(600)]
    assert crowd[0].totals(1) == {0: Counts(0, 1800, 1800)}
    assert crowd[0].spent_bits() == 1800


def test_without_a_lock_some_are_spent_twice(
    postgres: Postgres, address: str, crowd: list[PostgresStore]
) -> None:
    """The negative control."""
    query = "SELECT pg_get_functiondef('whitelie.commit_in_steps'::regproc)"
    ((definition,),) = postgres.execute(address, query)
    assert "FOR UPDATE OF s" in definition
    postgres.execute(address, definition.replace("FOR UPDATE OF s", ""))
    assert any(len(spend_at_once(crowd, epoch)) > 600 for epoch in range(1, 11))


COUNTED = (
    (0, 720, 12, 5),
    (0, 720 + 1440, 3, 1),
    (0, 720 + 2880, 4, 4),
    (1, 720, 6, 3),
    (1, 720 + 1440, 5, 0),
    (2, 720, 4, 2),
)
"""Arm, minute, answers and ones."""

COMMIT_BEFORE = """
SELECT whitelie.commit_batch(1, %s, NULL, '{1}', ARRAY[%s::bigint], ARRAY[%s::bigint],
    ARRAY[%s::bigint], ARRAY[%s::bigint], ARRAY[%s::bigint], '{}', '{}', '{}', '{}')
FROM set_config('search_path', 'whitelie', false)
"""
"""As the version before steps does it: a write, and a minute, an arm and its counts."""

ASKED = wire.NewExperiment(
    name="Twice", arms=[wire.NewArm(key="a")], epsilon=1.0, window=600, spread=60
)

# The database -----------------------------------------------------------------------------------


def test_readers_do_not_block_commits(address: str) -> None:
    with closing(PostgresStore(address)) as store, ExitStack() as held:
        for _ in range(SLOW_READ_CONNECTIONS):
            held.enter_context(store.contents())
        assert list(store.commit(PAIR)) == [True]
        assert store.generation() >= 0
        assert store.totals(1) == {0: Counts(1, 1, 1)}
        with pytest.raises(Unavailable, match="busy"):
            store.totals(1, 10**6)
        held.close()
        assert store.totals(1, 10**6) == {0: Counts(1, 1, 1)}


SETTINGS = (
    ("synchronous_commit", "off", "on"),
    ("default_transaction_isolation", "'repeatable read'", "read committed"),
    ("search_path", "public", "whitelie"),
)


def test_commits_are_durable_whatever_the_database_says(postgres: Postgres, address: str) -> None:
    for name, value, _ in SETTINGS:
        postgres.execute(address, f"ALTER DATABASE {name_of(address)} SET {name} = {value}")
    with closing(PostgresStore(address)) as store:
        assert list(store.commit(PAIR)) == [True]
        with store._writer.connection() as connection:
            for name, _, needed in SETTINGS:
                assert connection.execute(f"SHOW {name}".encode()).fetchone() == (needed,)


def name_of(address: str) -> str:
    return str(conninfo_to_dict(address)["dbname"])


def test_nothing_personal_has_a_column(postgres: Postgres, address: str) -> None:
    PostgresStore(address).close()
    query = """
        SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position)
        FROM information_schema.columns WHERE table_schema = 'whitelie' GROUP BY table_name
    """
    assert dict(postgres.execute(address, query)) == {
        "state": ["version", "generation", "probes", "secret"],
        "epochs": ["number", "writes", "fence"],
        "experiments": ["number", "slug", "definition", "key_hash"],
        "keys": ["number", "hash", "name", "role", "origins", "decisions_per_minute", "expiry"],
        "counts": ["experiment", "minute", "arm", "issued", "answered", "ones"],
        "steps": ["experiment", "minute", "arm", "answered", "ones"],
        "totals": [
            *("experiment", "arm", "issued", "answered", "ones"),
            *("shown_answered", "shown_ones", "shown_minute"),
        ],
        "spent": ["epoch", "block", "expiry", "bits"],
    }


def test_what_was_counted_before_steps_is_published(
    postgres: Postgres, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a server of the version before, which is still at work, goes on to count."""
    steps, first = migrations_of("postgresql"), 20_000 * 24 * 60
    with monkeypatch.context() as before:
        before.setattr(database, "migrations_of", lambda _: {1: steps[1]})
        database.prepare(address)
    postgres.execute(address, "INSERT INTO whitelie.epochs DEFAULT VALUES")
    for number, (arm, minute, answered, ones) in enumerate(COUNTED, 1):
        counted = first + minute, arm, answered + 1, answered, ones
        postgres.execute(address, COMMIT_BEFORE, (number, *counted))
    for slug, key in (("a", "a"), ("b", "b"), ("c", None), ("d", "a")):
        creation = None if key is None else f"{key * 64} {'1' * 64}"
        payload = {"creation": f"{'c' * 64} {'2' * 64}", "odd": '\0\n"ü'}
        definition = json.dumps({"arms": [payload], "creation": creation}, separators=(",", ":"))
        insert = "INSERT INTO whitelie.experiments (slug, definition) VALUES (%s, %s)"
        postgres.execute(address, insert, (slug, definition.encode()))
    with closing(PostgresStore(address)) as store:
        assert store.totals(1) == {0: Counts(22, 19, 10), 1: Counts(13, 11, 3), 2: Counts(5, 4, 2)}
        assert store.steps(1, 0, 10**9) == {
            (first, 0): Step(19, 10, first),
            (first + 1440, 1): Step(11, 3, first + 1440),
        }
        hashes = [saved.key_hash for saved in store.experiments()]
        assert hashes == ["a" * 64, "b" * 64, None, None]  # of two with one key the first has it
        postgres.execute(address, COMMIT_BEFORE, (7, first + 5000, 2, 6, 6, 6))
        assert 2 not in store.published(1)
        store.commit(
            Batch({}, [ReportedBit(decision(0, arm=2), 0)], minute=first + 5001, steps={1: 10})
        )
        assert store.published(1)[2] == Step(11, 8, first + 5001)


def test_one_key_that_reaches_two_workers_at_once_creates_one_experiment(address: str) -> None:
    rounds = 20
    with (
        closing(PostgresStore(address)) as one,
        closing(PostgresStore(address)) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        for number in range(rounds):
            start, creation = Barrier(2), f"{number:064x} {'1' * 64}"

            def create(store: PostgresStore) -> tuple[StoredExperiment, bool]:
                experiment = ExperimentValidator().create(ASKED, 1000, creation)
                start.wait()
                return changes.create(store, experiment)

            (first, is_new), (second, is_new_too) = threads.map(create, (one, other))
            assert first == second
            assert is_new + is_new_too == 1
            with pytest.raises(Refusal, match="another experiment"):
                changes.create(
                    other, ExperimentValidator().create(ASKED, 1000, creation[:65] + "2" * 64)
                )
        assert len(one.experiments()) == rounds
        one.delete(first.number)
        again, is_new = changes.create(other, ExperimentValidator().create(ASKED, 1001, creation))
        assert is_new
        assert again.number > first.number


def test_workers_that_start_at_once_make_the_schema_once(address: str) -> None:
    with ThreadPoolExecutor(10) as threads:
        stores = list(threads.map(lambda _: PostgresStore(address), range(10)))
        epochs = list(threads.map(lambda store: store.new_epoch(), stores))
    for store in stores:
        store.close()
    assert sorted(epochs) == list(range(1, 11))


def test_a_later_migration_keeps_what_is_there_and_a_broken_one_changes_nothing(
    postgres: Postgres, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(address)) as store:
        store.commit(PAIR)
    steps = migrations_of("postgresql")
    last = max(steps)
    steps[last + 1] = "CREATE TABLE more (a integer);"
    steps[last + 2] = "CREATE TABLE yet_more (a integer); oops;"
    monkeypatch.setattr(database, "migrations_of", lambda _: steps)
    with pytest.raises(InvalidInput, match="oops"):
        PostgresStore(address)
    version = "SELECT version, to_regclass('whitelie.more') IS NULL FROM whitelie.state"
    assert postgres.execute(address, version) == [(last, True)]
    del steps[last + 2]
    with closing(PostgresStore(address)) as store:
        assert store.totals(1) == {0: Counts(1, 1, 1)}
    assert postgres.execute(address, version) == [(last + 1, False)]
