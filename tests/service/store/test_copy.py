"""`whitelie store copy`: everything moves, numbers included, or nothing does."""

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.postgres_server import Postgres
from whitelie.cli import app
from whitelie.errors import InvalidInput, WhitelieError
from whitelie.service.store.address import open_store
from whitelie.service.store.contract import (
    BITS_PER_BLOCK,
    Batch,
    Contents,
    Key,
    ReportedBit,
    Step,
    Store,
)
from whitelie.service.store.copy import copy
from whitelie.testing.store_contract import decision
from whitelie.testing.store_model import issued, saved

Address = Callable[[str], str]
KINDS = "sqlite", "postgresql"


@pytest.fixture
def address(tmp_path: Path, postgres: Postgres) -> Address:
    """Return the address of a new store of a kind."""
    numbers = count()

    def new(kind: str) -> str:
        if kind == "postgresql":
            return postgres.new_database()
        return f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"

    return new


KEYS = [
    Key("page", "publishable", b"\0\xff", ("https://ü.example",), 600, 12345),
    Key("first", "admin", b"\1"),
]


def fill(store: Store) -> list[ReportedBit]:
    """Put something into every table, with gaps; return reports that were counted."""
    for _ in range(3):
        store.new_epoch()
    for slug in "abcd":
        store.save(slug, "{}", None if slug == "a" else slug * 64)
    store.delete(2)
    store.delete(4)
    for key in KEYS:
        store.save_key(key)
    decisions = [
        decision(
            n * BITS_PER_BLOCK // 3,
            arm=n % 3,
            experiment=1 + n % 2 * 2,
            minute=100 + n,
            expiry=200 + n,
        )
        for n in range(20)
    ]
    reports = [ReportedBit(one, one.arm % 2) for one in decisions[::2]]
    store.commit(Batch(issued(*decisions), reports, minute=300, steps={1: 4, 3: 4}))
    return reports


def read(store: Store) -> tuple[object, ...]:
    """Return all that a store holds, in order."""
    with store.contents() as contents:
        rows = sorted(contents.counts), sorted(contents.steps), sorted(contents.spent)
        return contents.epochs, contents.last_experiment, contents.experiments, contents.keys, *rows


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("target_kind", KINDS)
def test_a_copy_is_the_same_store(address: Address, source_kind: str, target_kind: str) -> None:
    source, target = open_store(address(source_kind)), open_store(address(target_kind))
    with closing(source), closing(target):
        reports = fill(source)
        source.join_minutes(1, 110, 10)
        copied = copy(source, target)
        assert copied["epochs"] == 3
        assert copied["keys"] == 2
        assert read(target) == read(source)
        assert target.totals(1) == source.totals(1) != {}
        assert target.published(1) == source.published(1) != {}
        assert target.spent_bits() == 10
        assert not any(target.commit(Batch({}, reports)))
        late = ReportedBit(decision(10**6, arm=1), 1)
        target.commit(Batch({}, [late], minute=301, steps={1: 4}))  # three were held
        assert target.published(1)[1] == Step(4, 4, 301)
        assert target.save("f", "{}", "c" * 64) is None
        assert target.new_epoch() > 3
        assert saved(target, "e").number > 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_store_is_copied_too(address: Address, kind: str) -> None:
    with closing(open_store(address(kind))) as source, closing(open_store(address(kind))) as target:
        assert set(copy(source, target).values()) == {0}
        assert saved(target, "a").number == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "something",
    [
        lambda store: store.new_epoch(),
        lambda store: store.save("a", "{}"),
        lambda store: store.save_key(KEYS[0]),
        lambda store: store.commit(Batch(issued(decision(1)))),
    ],
)
def test_a_store_that_is_not_empty_is_not_filled(
    address: Address, kind: str, something: Callable[[Store], object]
) -> None:
    with closing(open_store(address("sqlite"))) as source, closing(open_store(address(kind))) as it:
        fill(source)
        something(it)
        before = read(it)
        with pytest.raises(InvalidInput, match="give a new, empty store"):
            copy(source, it)
        assert read(it) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_fails_half_way_changes_nothing(address: Address, kind: str) -> None:
    with closing(open_store(address("sqlite"))) as source, closing(open_store(address(kind))) as it:
        fill(source)
        empty = read(it)
        with source.contents() as contents:
            broken = Contents(**{**vars(contents), "spent": (1 / 0 for _ in "a")})
            with pytest.raises(ZeroDivisionError):
                it.fill(broken)
        assert read(it) == empty
        copy(source, it)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_a_server_uses_is_not_copied(address: Address, kind: str) -> None:
    where = address(kind)
    with closing(open_store(where)) as server, closing(open_store(address("sqlite"))) as target:
        server.claim([b"a fingerprint"])
        with closing(open_store(where)) as source:
            with pytest.raises(InvalidInput, match="stop"):
                copy(source, target)
            assert not any(target.sizes().values())
            server.close()
            copy(source, target)


def test_a_store_that_a_server_uses_is_not_copied_through_a_link(
    address: Address, tmp_path: Path
) -> None:
    where, link = address("sqlite"), tmp_path / "link.db"
    with closing(open_store(where)) as server:
        server.claim([b"a fingerprint"])
        fill(server)
        link.symlink_to(where.removeprefix("sqlite:///"))
        empty, linked = address("sqlite"), f"sqlite:///{link}"
        open_store(empty).close()
        for words in ((linked, empty), (empty, linked)):
            refused = CliRunner().invoke(app, ["store", "copy", *words])
            assert refused.exit_code == 2
            assert "another server uses it" in refused.output


def test_a_source_that_changes_during_the_copy_is_noticed(address: Address) -> None:
    where = address("postgresql")
    with closing(open_store(where)) as source, closing(open_store(address("sqlite"))) as target:
        fill(source)
        fill_target = target.fill

        def fill_slowly(contents: Contents) -> None:
            fill_target(contents)
            source.commit(Batch(issued(decision(99))))

        target.fill = fill_slowly  # type: ignore[method-assign]  # the store is slowed down
        with pytest.raises(WhitelieError, match="the totals differ"):
            copy(source, target)


def test_the_command_copies_there_and_back(address: Address) -> None:
    first, second, third = address("sqlite"), address("postgresql"), address("sqlite")
    with closing(open_store(first)) as store:
        fill(store)
        before = read(store)
    for words in ((first, second), (second, third)):
        done = CliRunner().invoke(app, ["store", "copy", *words])
        assert done.exit_code == 0, done.output
        assert "3 epochs, 2 experiments, 2 keys" in done.output
    with closing(open_store(third)) as store:
        assert read(store) == before
    refused = CliRunner().invoke(app, ["store", "copy", first, second])
    assert refused.exit_code == 2
    assert "give a new, empty store" in refused.output
    missing = CliRunner().invoke(app, ["store", "copy", address("sqlite"), address("sqlite")])
    assert missing.exit_code == 2
    assert "there is no such file" in missing.output
