"""The embedded store: the laws of every store, and what only a file can get wrong."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from helpers.careless_stores import FindsMistakes
from helpers.paths import SAMPLES
from whitelie.errors import InvalidInput
from whitelie.service.experiment.changes import definition_of
from whitelie.service.store import spent_bits
from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Counts,
    ReportedBit,
    Step,
    Unavailable,
)
from whitelie.service.store.migrations import migrations_of
from whitelie.service.store.sqlite import file
from whitelie.service.store.sqlite.store import SQLiteStore
from whitelie.testing.store_contract import StoreContract, decision
from whitelie.testing.store_model import Opener, issued, saved


class TestSQLite(StoreContract, FindsMistakes):
    tables_by_arm: ClassVar[tuple[str, ...]] = ("shown",)

    @pytest.fixture
    def fresh(self, tmp_path: Path) -> Iterator[Callable[[], Opener]]:
        stores: list[SQLiteStore] = []
        names = iter(range(10**6))

        def make() -> Opener:
            path = tmp_path / f"{next(names)}.db"

            def opened() -> SQLiteStore:
                stores.append(SQLiteStore(path))
                return stores[-1]

            return opened

        yield make
        for store in stores:
            store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "whitelie.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    store.close()


def raw(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Do as the sqlite3 shell does; return the rows of the last statement."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    finally:
        connection.close()


def answered(*sequences: int) -> Batch:
    """Decisions that are issued and answered by 1 in the same batch."""
    decisions = [decision(sequence) for sequence in sequences]
    return Batch(issued(*decisions), [ReportedBit(one, 1) for one in decisions])


# What is in the file


def test_nothing_personal_has_a_column(store: SQLiteStore, path: Path) -> None:
    columns = raw(
        path,
        "SELECT t.name, group_concat(c.name, ' ') FROM sqlite_schema t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table' GROUP BY t.name ORDER BY t.name",
    )
    assert dict(columns) == {  # type: ignore[arg-type]  # rows of two
        "counts": "experiment minute arm issued answered ones",
        "epochs": "number",
        "experiments": "number slug definition key_hash",
        "keys": "number hash name role origins decisions_per_minute expiry",
        "shown": "experiment arm answered ones minute held_answered held_ones",
        "spent": "epoch block expiry bits",
        "sqlite_sequence": "name seq",
        "state": "generation writer probes has_rolled_back",
        "steps": "experiment minute arm answered ones",
    }
    assert {name for name, _ in columns} == {*store.sizes(), "sqlite_sequence", "state"}


def test_a_commit_is_flushed_to_the_log(store: SQLiteStore, path: Path) -> None:
    (level,) = store._connection.execute("PRAGMA synchronous").fetchone()
    assert level == 2  # FULL: a commit of a log that is not flushed may be lost with the power
    assert raw(path, "PRAGMA journal_mode") == [("wal",)]


def test_the_file_is_private(store: SQLiteStore, path: Path) -> None:
    store.commit(answered(1))
    store.claim()
    assert {each.stat().st_mode & 0o077 for each in path.parent.iterdir()} == {0}


def test_impossible_counts_change_nothing(store: SQLiteStore) -> None:
    batch = answered(1, 2)
    batch.reports.append(ReportedBit(decision(3), 5))
    with pytest.raises(sqlite3.IntegrityError):
        store.commit(batch)
    assert store.totals(1) == {}
    assert list(store.commit(answered(1, 2))) == [True, True]


# Memory


def test_blocks_that_left_the_cache_are_read_again(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent_bits, "MAX_CACHED_BLOCKS", 2)
    batches = [answered(block * BITS_PER_BLOCK) for block in range(5)]
    for batch in batches:
        assert list(store.commit(batch)) == [True]
        assert len(store._spent) <= 2
    for batch in batches:
        assert list(store.commit(Batch({}, batch.reports))) == [False]


def test_the_cache_is_used_only_while_nobody_else_spends_bits(
    path: Path, store: SQLiteStore
) -> None:
    """The control: two processes that pass for one do count a report twice."""
    other = SQLiteStore(path)
    other._writer = store._writer
    for one in (store, other):
        one.commit(answered(1))
    assert list(store.commit(answered(2))) == [True]
    assert list(other.commit(answered(2))) == [True]
    other.close()


# Opening


def test_all_migrations_have_been_applied(store: SQLiteStore, path: Path) -> None:
    numbers = sorted(migrations_of("sqlite"))
    assert numbers == list(range(1, len(numbers) + 1))
    assert raw(path, "PRAGMA user_version") == [(len(numbers),)]
    assert raw(path, "PRAGMA application_id") == [(file.APPLICATION_ID,)]


def test_a_later_migration_keeps_what_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(path)
    store.commit(answered(1))
    store.close()
    steps = migrations_of("sqlite")
    last = max(steps)
    steps[last + 1] = "CREATE TABLE more (a INTEGER) STRICT;\n"
    steps[last + 2] = "CREATE TABLE yet_more (a INTEGER) STRICT;\noops;\n"
    monkeypatch.setattr(file, "migrations_of", lambda _: steps)
    with pytest.raises(sqlite3.OperationalError, match="oops"):
        SQLiteStore(path)
    assert raw(path, "PRAGMA user_version") == [(last + 1,)]
    assert raw(path, "SELECT name FROM sqlite_schema WHERE name LIKE '%more'") == [("more",)]
    del steps[last + 2]
    store = SQLiteStore(path)
    assert store.totals(1) == {0: Counts(1, 1, 1)}
    store.close()


SAMPLE = SAMPLES / "schema-2.sql"
DAY = 24 * 60


def test_what_was_counted_before_steps_is_published(path: Path) -> None:
    """Three arms over three days: 12, 3 and 4 reports; 6 and 5; 4, too few to be shown."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SAMPLE.read_text())
    store, first = SQLiteStore(path), 20_000 * DAY
    assert store.totals(1) == {0: Counts(22, 19, 10), 1: Counts(13, 11, 3), 2: Counts(5, 4, 2)}
    assert store.steps(1, 0, 10**9) == {
        (first, 0): Step(19, 10, first),
        (first + DAY, 1): Step(11, 3, first + DAY),
    }
    assert store.published(1) == {0: Step(19, 10, first), 1: Step(11, 3, first + DAY)}
    late = [ReportedBit(decision(1000 + n, arm=2), 1) for n in range(6)]
    store.commit(Batch({}, late, minute=first + 3 * DAY, steps={1: 10}))
    assert store.published(1)[2] == Step(10, 8, first + 3 * DAY)
    hashes = [saved.key_hash for saved in store.experiments()]
    assert hashes == ["a" * 64, "b" * 64, None, None]  # of two with one key the first has it
    assert definition_of(store.experiments()[0]).step == 10
    store.close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    SQLiteStore(path).close()
    raw(path, "PRAGMA user_version = 9999")
    with pytest.raises(InvalidInput, match="update whitelie"):
        SQLiteStore(path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("My diary. " * 1000)
    with pytest.raises(InvalidInput, match="not a SQLite database"):
        SQLiteStore(path)
    assert path.read_text() == "My diary. " * 1000
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (a)", "PRAGMA application_id = 7"])
def test_another_programs_database_is_refused_and_left_alone(path: Path, statement: str) -> None:
    raw(path, statement)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="another program's"):
        SQLiteStore(path)
    assert path.read_bytes() == before


def test_a_path_of_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        SQLiteStore(tmp_path / "missing" / "whitelie.db")
    with pytest.raises(InvalidInput, match="write"):
        SQLiteStore(tmp_path)


OPEN = """
import sys
from pathlib import Path
from whitelie.service.store.sqlite.store import SQLiteStore
sys.stdin.read()
store = SQLiteStore(Path(sys.argv[1]))
print(store.new_epoch())
store.close()
"""


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_many_processes_may_be_the_first(path: Path) -> None:
    children = [child(OPEN, path) for _ in range(4)]
    for one in children:
        assert one.stdin is not None
        one.stdin.close()  # all begin now
        one.stdin = None
    ends = [one.communicate(timeout=60) for one in children]
    assert [errors for _, errors in ends] == [""] * 4
    assert {int(printed) for printed, _ in ends} == {1, 2, 3, 4}


# One server, and others beside it


def test_a_second_server_is_refused_and_the_shell_is_not(path: Path, store: SQLiteStore) -> None:
    store.claim()
    shell = SQLiteStore(path)
    with pytest.raises(InvalidInput, match="another server uses it"):
        shell.claim()
    experiment = saved(shell, "a")
    assert store.change(experiment, "by the server") is not None
    assert shell.change(experiment, "by the shell") is None
    store.close()
    shell.claim()
    shell.close()


def test_a_link_does_not_hide_a_server(path: Path, store: SQLiteStore, tmp_path: Path) -> None:
    store.claim()
    store.commit(answered(1))
    link, folder = tmp_path / "link.db", tmp_path / "folder"
    link.symlink_to(path.name)
    folder.symlink_to(tmp_path, target_is_directory=True)
    for name in (link, folder / path.name, folder / link.name):
        other = SQLiteStore(name)
        with pytest.raises(InvalidInput, match="another server uses it"):
            other.claim()
        with pytest.raises(InvalidInput, match="another server uses it"):
            other.require_alone()
        assert list(other.commit(answered(1))) == [False]
        other.close()
    assert sorted(lock.name for lock in tmp_path.glob("*.lock")) == ["whitelie.db.lock"]
    store.close()
    other = SQLiteStore(link)
    other.claim()
    with pytest.raises(InvalidInput, match="another server uses it"):
        SQLiteStore(path).claim()
    other.close()


def test_a_link_to_nothing_makes_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("made.db")
    SQLiteStore(tmp_path / "link.db").close()
    assert (tmp_path / "made.db").is_file()
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / one).symlink_to(other)
    with pytest.raises(InvalidInput, match="store"):
        SQLiteStore(tmp_path / "a")


def test_a_file_with_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    SQLiteStore(path).close()
    (tmp_path / "other.db").hardlink_to(path)
    for name in (path, tmp_path / "other.db"):
        with pytest.raises(InvalidInput, match="has 2 names"):
            SQLiteStore(name)
    path.unlink()
    SQLiteStore(tmp_path / "other.db").close()


CLAIM = """
import sys
from pathlib import Path
from whitelie.service.store.sqlite.store import SQLiteStore
store = SQLiteStore(Path(sys.argv[1]))
store.claim()
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_claim_ends_with_its_process(path: Path, store: SQLiteStore) -> None:
    with child(CLAIM, path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(InvalidInput):
            store.claim()
        other.kill()
        other.wait()
        store.claim()


def test_a_database_that_stays_locked_is_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LOCK_TIMEOUT_SECONDS", 0.05)
    store = SQLiteStore(path)
    store.commit(answered(1))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    tries: list[Callable[[], object]] = [
        lambda: store.commit(answered(2)),
        lambda: store.join_minutes(1, 200, 10),
        lambda: store.save("a", "{}"),
        store.new_epoch,
        store.probe,
    ]
    for attempt in tries:
        with pytest.raises(Unavailable, match="another process"):
            attempt()
    assert store.totals(1) == {0: Counts(1, 1, 1)}
    holder.execute("ROLLBACK")
    holder.close()
    assert list(store.commit(answered(2))) == [True]
    assert store.totals(1) == {0: Counts(2, 2, 2)}
    assert list(store.experiments()) == []
    store.close()


# Full disks and dead processes

FULL = """
import resource, signal, sys
from itertools import count
from pathlib import Path
from whitelie.service.store.contract import Batch, Cell, ReportedBit, Unavailable
from whitelie.service.store.contract import BITS_PER_BLOCK
from whitelie.service.store.sqlite.store import SQLiteStore
from whitelie.service.store.contract import Decision

folder, kind = Path(sys.argv[1]), sys.argv[2]
filler = folder / "filler"
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def fill():
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, -1))
        return
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def empty():
    filler.unlink(missing_ok=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))


def batch(number):
    decisions = [Decision(1, 0, 1, number * BITS_PER_BLOCK + n, 100, 160) for n in range(10)]
    return Batch({Cell(1, 0, 100): 10}, [ReportedBit(one, 1) for one in decisions])


store = SQLiteStore(folder / "whitelie.db")
numbers = count()
for _ in range(20):
    assert all(store.commit(batch(next(numbers))))
for _ in range(2):
    fill()
    try:
        for number in numbers:
            before = store.totals(1), store.spent_bits(), dict(store._spent._blocks)
            assert all(store.commit(batch(number)))
    except Unavailable as error:
        print(error)
    known = {address: bits for address, bits in store._spent._blocks.items() if any(bits)}
    assert (store.totals(1), store.spent_bits(), known) == before
    for write in (store.new_epoch, lambda: store.save("a", "x" * 10_000), lambda: store.delete(7)):
        try:
            write()
        except Unavailable:
            pass
    if kind == "tmpfs":
        try:
            raise AssertionError(SQLiteStore(folder / "new.db"))
        except Unavailable:
            pass
    assert store.totals(1) == before[0]
    empty()
    assert all(store.commit(batch(number)))
    assert not any(store.commit(Batch({}, batch(number).reports)))
    store.probe()
    (counts,) = store.totals(1).values()
    assert counts == (10 * (number + 1),) * 3, (counts, number)
    assert store.spent_bits() == counts.answered
store.close()
store = SQLiteStore(folder / "whitelie.db")
assert store.totals(1) == {0: counts}
store.close()
print("recovered")
"""


@pytest.mark.parametrize("kind", ["tmpfs", "limit"])
def test_a_full_disk_is_unavailable_until_it_is_not(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path), kind]
    if kind == "tmpfs":
        mount = f"mount -t tmpfs -o size=4M whitelie {tmp_path}"
        alone = ["unshare", "--mount", "sh", "-c"]
        if subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
            pytest.skip("mounting a small file system needs root")
        command = [*alone, f'{mount} && exec "$@"', "sh", *command]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    *troubles, last = ran.stdout.splitlines()
    assert last == "recovered"
    assert len(troubles) == 2
    expected = {"tmpfs": "the disk is full", "limit": "the disk fails"}[kind]
    assert all(trouble.startswith(expected) for trouble in troubles)


COMMIT = """
import sys
from pathlib import Path
from whitelie.service.store.contract import Batch, Cell, ReportedBit
from whitelie.service.store.sqlite.store import SQLiteStore
from whitelie.service.store.contract import Decision

store = SQLiteStore(Path(sys.argv[1]))
epoch = store.new_epoch()
for start in range(0, 10**9, 5):
    decisions = [Decision(1, 0, epoch, start + n, 100 + start // 50, 10**6) for n in range(5)]
    places = {Cell(1, 0, 100 + start // 50): 5}
    batch = Batch(places, [ReportedBit(one, 1) for one in decisions], minute=start, steps={1: 12})
    assert all(store.commit(batch))
    print(epoch, start, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    acknowledged: list[tuple[int, int]] = []
    for kills in range(1, 5):
        with child(COMMIT, path) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(37 * kills)]
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
            assert writer.wait() == -signal.SIGKILL
        for line in lines:
            if line.endswith("\n"):
                epoch, start = map(int, line.split())
                acknowledged += [(epoch, start + n) for n in range(5)]
        store = SQLiteStore(path)
        reports = [
            ReportedBit(decision(sequence, epoch=epoch, minute=100 + sequence // 50), 1)
            for epoch, sequence in acknowledged
        ]
        assert not any(store.commit(Batch({}, reports)))
        (counts,) = store.totals(1).values()
        assert counts.issued == counts.answered == counts.ones == store.spent_bits()
        (shown,) = store.published(1).values()
        steps = store.steps(1, 0, 10**9).values()
        assert sum(step.answered for step in steps) == shown.answered
        assert all(step.answered >= 12 for step in steps)
        assert 0 <= counts.answered - shown.answered < 12
        # At each kill one batch may have been durable and not yet acknowledged.
        assert 0 <= counts.answered - len(acknowledged) <= 5 * kills
        store.close()
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]
