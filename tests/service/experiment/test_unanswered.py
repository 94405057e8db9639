"""Decisions without a report, as operators see them: pending, overdue, missing; and how late."""

import asyncio
import csv
import io
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from helpers.in_process_service import ALL, BUTTON, ONE, START, Served, refused, serving
from whitelie.kernel.arms import Array
from whitelie.service import wire
from whitelie.service.api import metrics
from whitelie.service.engine import maintenance
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import recount
from whitelie.service.engine.stored_results import stored_results
from whitelie.service.store.contract import Batch, Counts, ReportedBit
from whitelie.service.store.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio

FILE = "whitelie.db"
COLUMNS = ("answered", "pending", "overdue", "missing")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / FILE) as served:
        yield served


async def pass_(served: Served, minutes: int) -> None:
    """Let time pass, and what it brings be noticed."""
    served.clock.forward(60 * minutes)
    await maintenance.expire(served.engine)


def exposed(text: str) -> tuple[int, ...]:
    """Return what metrics say of the green arm."""
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    labels = '{arm="green",experiment="button"}'
    return tuple(int(float(values[f"whitelie_arm_{column}{labels}"])) for column in COLUMNS)


async def shown(served: Served) -> tuple[int, ...]:
    """Return what the service says of the green arm: results, table and metrics agree."""
    client = served.as_()
    arm = (await client.get(f"{ONE}/results")).json()["arms"][0]
    numbers = tuple(arm[column] for column in COLUMNS)
    assert sum(numbers) == arm["issued"]
    table = csv.DictReader(io.StringIO((await client.get(f"{ONE}/results.csv")).text, newline=""))
    row = next(table)
    assert numbers == tuple(int(row[column]) for column in COLUMNS)
    assert numbers == exposed((await client.get("/metrics")).text)
    return numbers


async def counts(served: Served) -> tuple[int, ...]:
    """Return what the service says of the green arm; the shell, from the store, says the same."""
    numbers = await shown(served)
    (saved,) = served.store.experiments()
    shell = stored_results(served.store, saved, served.engine.clock.minute).arms[0]
    assert numbers == tuple(getattr(shell, column) for column in COLUMNS)
    return numbers


@pytest.mark.parametrize(
    ("sending", "minutes"), [("when-due", 11 + 2), ("next-visit", 11 + 24 * 60)]
)
@pytest.mark.promise("Lifetimes")
async def test_a_decision_pends_is_overdue_and_then_missing(
    served: Served, sending: str, minutes: int
) -> None:
    await served.create(sending=sending)
    made = await served.decide("button", 10, available=["green"])
    await served.report(made[:3])
    assert await counts(served) == (3, 7, 0, 0)
    await pass_(served, minutes)
    assert await counts(served) == (3, 7, 0, 0)
    await pass_(served, 2)
    assert await counts(served) == (3, 0, 7, 0)
    assert await served.report(made[3:5]) == ["accepted"] * 2
    await served.decide("button", 4, available=["green"])
    await pass_(served, 1)  # until then, late answers are taken for answers to pending ones
    assert await counts(served) == (5, 4, 5, 0)
    await pass_(served, 11 + 7 * 24 * 60 - minutes)
    assert await counts(served) == (5, 0, 4, 5)
    assert await served.report(made[5:]) == ["expired"] * 5


async def test_what_is_issued_while_ages_are_read_is_pending(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create()
    await served.decide("button", 10, available=["green"])
    (learner,), history = served.engine.directory, served.store.history
    has_read, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> Any:
        counted = history(*arguments)
        loop.call_soon_threadsafe(has_read.set)
        assert may_end.wait(60)
        return counted

    with monkeypatch.context() as patched:
        patched.setattr(served.store, "history", slow)
        looking = asyncio.create_task(maintenance.note_ages(served.engine, learner))
        await has_read.wait()
        await served.decide("button", 500, available=["green"])
        may_end.set()
        await looking
    assert await counts(served) == (0, 510, 0, 0)


async def test_an_arm_that_is_added_while_ages_are_read_does_no_harm(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create()
    await served.decide("button", 10, available=["green"])
    (learner,), history = served.engine.directory, served.store.history
    loop = asyncio.get_running_loop()

    def add() -> Any:
        return served.as_().patch(ONE, json={"add": [{"key": "red"}]})

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert asyncio.run_coroutine_threadsafe(add(), loop).result(60).status_code == 200
        return history(*arguments)

    monkeypatch.setattr(served.store, "history", late)
    await maintenance.note_ages(served.engine, learner)
    assert len(learner.issued) == 3
    assert await counts(served) == (0, 10, 0, 0)


async def test_a_rollback_takes_what_is_overdue_with_it(served: Served) -> None:
    await served.create(sending="when-due")
    await served.decide("button", 10, available=["green"])
    await pass_(served, 15)
    await served.decide("button", 4, available=["green"])
    await pass_(served, 1)
    assert await counts(served) == (0, 4, 10, 0)
    span = {"from": "2027-01-15T08:00:00Z", "to": "2027-01-15T08:01:00Z"}
    assert (await served.as_().post(f"{ONE}/rollback", json=span)).status_code == 200
    assert await counts(served) == (0, 4, 0, 0)


def careless_missing(learner: Learner) -> Array:
    """What has expired without an answer, not limited to what has no answer at all."""
    return np.asarray(learner.expired_issued - learner.expired_answered)


async def test_missing_is_the_same_in_metrics_results_and_the_shell_in_every_state(
    served: Served, tmp_path: Path
) -> None:
    """Expired, overdue, answered late elsewhere, rolled back elsewhere and here, restarted."""
    await served.create(sending="when-due")
    (learner,) = served.engine.directory
    made = await served.decide("button", 10, available=["green"])
    await served.report(made[:3])
    await pass_(served, 15)
    assert await counts(served) == (3, 0, 7, 0)
    await pass_(served, 11 + 7 * 24 * 60)
    assert await counts(served) == (3, 0, 0, 7)
    later = await served.decide("button", 4, available=["green"])
    await pass_(served, 15)
    assert await counts(served) == (3, 0, 4, 7)

    # A server whose clock is behind takes reports on decisions that have expired here.
    opened = [served.engine.cipher.open(each["token"]) for each in (*made[3:], *later[:3])]
    reports = [ReportedBit(decision, 1) for decision in opened if decision is not None]
    with closing(SQLiteStore(tmp_path / FILE)) as other:
        other.commit(Batch(reports=reports))
    await recount(served.engine, [learner])
    assert await shown(served) == (13, 0, 0, 1)  # until the restart
    assert careless_missing(learner).tolist() == [7, 0]  # the control: more than is unanswered
    learner.require_restart()
    await maintenance.recount_where_due(served.engine)
    assert await counts(served) == (13, 0, 1, 0)
    assert careless_missing(learner).tolist() == [0, 0]

    # Another server rolls back what has expired here; this one has not heard of it yet.
    await served.decide("button", 5, available=["blue"])
    start = int(START // 60)
    with closing(SQLiteStore(tmp_path / FILE)) as other:
        other.roll_back(learner.number, start, start + 1)
    await recount(served.engine, [learner])
    await shown(served)
    learner.require_restart()
    await maintenance.recount_where_due(served.engine)
    assert await counts(served) == (3, 0, 1, 0)


async def test_metrics_are_of_one_moment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions expire while a thread makes the text: it tells what was before, and adds up."""
    await served.create()
    (learner,) = served.engine.directory
    await served.decide("button", 10, available=["green"])
    before = await counts(served)
    loop = asyncio.get_running_loop()
    text = metrics._text

    async def expire() -> None:
        learner.expire({0: Counts(10)}, learner.expired_before)

    def late(*arguments: Any) -> bytes:
        asyncio.run_coroutine_threadsafe(expire(), loop).result(60)
        return text(*arguments)

    monkeypatch.setattr(metrics, "_text", late)
    assert exposed((await served.as_().get("/metrics")).text) == before == (0, 10, 0, 0)
    assert tuple(int(each[0]) for each in learner.unanswered) == (0, 0, 10)  # the control: now


async def test_an_experiment_says_how_its_clients_send(served: Served) -> None:
    assert (await served.create())["sending"] == "next-visit"
    other = await served.create(name="Other", sending="when-due")
    assert other["sending"] == "when-due"
    shown = (await served.as_("reader").get(ALL)).json()["experiments"]
    assert [each["sending"] for each in shown] == ["next-visit", "when-due"]
    answer = await served.as_().post(ALL, json=BUTTON | {"sending": "immediate"})
    assert refused(answer) == (422, "invalid_field", "sending")
    promise = (await served.as_(None).get(f"{ONE}/privacy")).json()
    assert promise["sending"] == "next-visit"
    (made,) = await served.decide("button")
    assert "sending" not in msgspec.json.encode(made).decode()


async def test_admins_see_how_late_reports_come(served: Served) -> None:
    async def arrival(role: str) -> Any:
        return (await served.as_(role).get(f"{ONE}/results")).json()["arrival"]

    await served.create(retention=10 * wire.DAY_SECONDS)
    made = await served.decide("button", 8)
    await pass_(served, 90)
    await served.report(made[:2])
    hour, day, week = 3600, wire.DAY_SECONDS, 7 * wire.DAY_SECONDS
    ages = [(hour, 2 * hour), (day, 2 * day), (week, week + day)]
    spans = [{"from": start, "to": stop, "issued": 0, "answered": 0} for start, stop in ages]
    one = {"issued": 8, "answered": 2}
    assert await arrival("admin") == [spans[0] | one, *spans[1:]]
    assert await arrival("reader") is None
    await pass_(served, 24 * 60)
    await served.report(made[2:5])
    assert await arrival("admin") == [spans[0], spans[1] | one | {"answered": 5}, spans[2]]
    await pass_(served, 6 * 24 * 60)
    assert await arrival("admin") == [*spans[:2], spans[2] | one | {"answered": 5}]
    await pass_(served, 4 * 24 * 60)
    await served.create(name="Short", feedback_ttl=3600, retention=wire.DAY_SECONDS, window=60)
    short = (await served.as_().get("/v1/experiments/short/results")).json()["arrival"]
    assert [each["from"] for each in short] == [hour]  # the others' minutes are joined into days
