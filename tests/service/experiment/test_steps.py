"""What readers see moves in steps: nothing they may ask for tells a single report apart."""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process_service import ALL, BUTTON, ONE, START, Line, Served, refused, serving
from whitelie.service.engine.maintenance import expire
from whitelie.service.engine.results_cache import latest_results
from whitelie.service.store.contract import Step

pytestmark = pytest.mark.anyio
STEP = 10
METRIC = re.compile(r"^(whitelie_\S+) (\S+)$", re.MULTILINE)

Figures = dict[tuple[str, ...], float]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "whitelie.db") as served:
        yield served


async def quiet_site(served: Served, visits: int) -> list[Any]:
    """Decisions of a site that has one visitor a minute, arms in turn."""
    decisions = []
    for number in range(visits):
        arm = ("green", "blue")[number % 2]
        decisions += await served.decide("button", available=[arm])
        served.clock.forward(60)
    return decisions


async def seen(served: Served, role: str) -> Figures:
    """All numbers that a key can ask for and that have to do with reports."""
    client, figures = served.as_(role), Figures()
    results = (await client.get(f"{ONE}/results")).json()
    figures["results", "reports"] = results["reports"]
    certificate = results["certificate"]
    figures["results", "certified"] = certificate["state"] == "certified"
    for name in ("progress", "more_reports", "more_days"):
        figures["results", name[:8]] = -1 if certificate[name] is None else certificate[name]
    for rival in certificate["rivals"]:
        figures["results", rival["key"], "rival"] = rival["evidence"]
    figures["results", "alarms"] = len(results["alarms"])
    figures["results", "last_report"] = float(results["last_report"] is not None)
    table = csv.DictReader(io.StringIO((await client.get(f"{ONE}/results.csv")).text))
    for kind, arms in (("results", results["arms"]), ("csv", table)):
        for arm in arms:
            for name in arm.keys() - {"key", "retired", "certified"}:
                if arm[name] not in (None, ""):
                    figures[kind, arm["key"], name] = float(arm[name])
    history = (await client.get(f"{ONE}/history", params={"minutes": 1})).json()
    for bucket in history["buckets"]:
        for arm in bucket["arms"]:
            for name in ("answered", "ones"):
                figures["history", bucket["start"], arm["key"], name] = arm[name]
    for name, value in METRIC.findall((await client.get("/metrics")).text):
        figures["metrics", name] = float(value)
    for name, rows in (await client.get("/v1/stored")).json()["tables"].items():
        figures["stored", name] = rows
    return figures


async def changes(served: Served, role: str, reports: list[Any]) -> list[Figures]:
    """Report one after the other; return after each how the numbers that a key sees have moved."""
    before, moved = await seen(served, role), []
    for number, decision in enumerate(reports):
        await served.report([decision], number % 3 % 2)
        after = await seen(served, role)
        names = before.keys() | after.keys()
        differences = {name: after.get(name, 0) - before.get(name, 0) for name in names}
        moved.append({name: by for name, by in differences.items() if by})
        before = after
    return moved


def answers_in(moved: Figures) -> list[float]:
    """How far the counts of answers have moved."""
    return [by for name, by in moved.items() if "answered" in name[-1] or "reports" in name[-1]]


@asynccontextmanager
async def streamed(served: Served, role: str) -> AsyncIterator[list[Any]]:
    """What a stream has told, when the block has ended."""
    line, told = Line.to(served.app, "GET", f"{ONE}/stream", role), list[Any]()
    await line.send(b"")
    task = line.start()
    await line.next()
    told.append(await line.next())
    yield told
    await asyncio.sleep(1.1)
    await line.hang_up()
    await asyncio.wait_for(task, 60)
    while not line.from_app.empty():
        told.append(line.from_app.get_nowait())
    bodies = [each["body"] for each in told if each.get("body", b"").startswith(b"event")]
    told[:] = [json.loads(body.split(b"data: ")[1])["arms"] for body in bodies]


@pytest.mark.parametrize("reports", [100, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.promise("Readers see steps")
async def test_a_reader_who_polls_after_every_report_isolates_none(
    served: Served, reports: int
) -> None:
    await served.create()
    visits = await quiet_site(served, reports)
    async with streamed(served, "reader") as told:
        moved = await changes(served, "reader", visits)
    shown = [each for each in moved if each]
    assert all(by >= STEP for each in shown for by in answers_in(each))
    assert len(shown) == reports // STEP  # between them no other number moves either
    last = await seen(served, "reader")
    assert last["results", "reports"] == reports
    cells = {name: value for name, value in last.items() if name[0] == "history"}
    assert sum(value for name, value in cells.items() if name[-1] == "answered") == reports
    assert min(value for name, value in cells.items() if name[-1] == "answered" and value) >= STEP
    for before, after in pairwise(told):
        for old, new in zip(before, after, strict=True):
            assert new["answered"] == old["answered"] or new["answered"] - old["answered"] >= STEP


@pytest.mark.parametrize(("role", "step"), [("admin", 10), ("reader", 1)])
async def test_without_steps_every_report_is_isolated(served: Served, role: str, step: int) -> None:
    """The negative control: an admin is meant to see each, a reader where the step is 1."""
    await served.create(step=step)
    moved = await changes(served, role, await quiet_site(served, 30))
    assert sum(1 in answers_in(each) for each in moved) == 30


async def test_readers_see_whole_steps_and_admins_all(served: Served) -> None:
    created = await served.create(step=4)
    assert created["step"] == 4
    green = await served.decide("button", 30, available=["green"])
    served.clock.forward(60)
    await served.report(green[:3], 1)
    await served.report(green[3:5], 0)
    await served.report(green[5:8], 1)

    async def counts(role: str) -> tuple[Any, ...]:
        results = (await served.as_(role).get(f"{ONE}/results")).json()
        arm = results["arms"][0]
        numbers = [arm[name] for name in ("issued", "answered", "ones", "pending", "missing")]
        return results["last_report"], results["reports"], *numbers

    assert await counts("admin") == ("2027-01-15T08:01:00Z", 8, 30, 8, 6, 22, 0)
    assert await counts("reader") == ("2027-01-15T08:01:00Z", 5, 30, 5, 3, 25, None)
    history = (await served.as_("reader").get(f"{ONE}/history")).json()
    assert [(each["start"], each["arms"]) for each in history["buckets"]] == [
        ("2027-01-15T08:00:00Z", [{"key": "green", "issued": 30, "answered": 0, "ones": 0}]),
        ("2027-01-15T08:01:00Z", [{"key": "green", "issued": 0, "answered": 5, "ones": 3}]),
    ]
    served.clock.forward(8 * 86400)
    await asyncio.sleep(0.6)  # maintenance
    assert (await counts("admin"))[3:] == (8, 6, 0, 22)
    assert (await counts("reader"))[3:] == (5, 3, 25, None)


async def test_metrics_of_readers_add_up_what_was_shown(served: Served) -> None:
    """A sum of live counts would tell those of one experiment to whoever knows the others'."""
    await served.create()
    await served.create(name="Open", step=1)
    quiet, reader = await served.decide("button", 12, available=["green"]), served.as_("reader")
    for number, each in enumerate(quiet):
        await served.report([each])
        await served.report(await served.decide("open"))
        samples = dict(METRIC.findall((await reader.get("/metrics")).text))
        shown = number + 1 + (number + 1 if number == STEP - 1 else STEP * (number >= STEP))
        assert float(samples['whitelie_reports_total{outcome="accepted"}']) == shown
        kinds = {name.partition("{")[0].removeprefix("whitelie_") for name in samples}
        columns = ("issued", "answered", "ones", "pending", "misspecified")
        assert kinds == {
            *("decisions_total", "reports_total", "store_available", "clock_trusted"),
            *(f"arm_{name}" for name in columns),
            *("certificate_progress", "certified"),
        }


async def test_readers_do_not_see_who_is_late(served: Served) -> None:
    """What is overdue or missing moves with one report, however it is rounded."""
    await served.create(sending="when-due", feedback_ttl=2 * 86400)
    made = await served.decide("button", 13, available=["green"])
    before, last = await seen(served, "reader"), await seen(served, "admin")
    assert before["results", "green", "pending"] == 13
    for days, reports in ((1, 0), (0, 1), (0, 3), (2, 0)):  # 13 become 9, overdue and then missing
        served.clock.forward(days * 86400)
        await expire(served.service.engine)
        for _ in range(reports):
            await served.report([made.pop()])
        now = await seen(served, "admin")
        assert now != last
        assert await seen(served, "reader") == before
        last = now
    assert not [name for name in before if "overdue" in name[-1] or "missing" in name[-1]]


async def test_alarms_of_expired_decisions_are_for_admins(served: Served) -> None:
    await served.create()
    await served.decide("button", 300)
    served.clock.forward(9 * 86400)
    await expire(served.service.engine)

    async def alarms(role: str) -> list[str]:
        results = (await served.as_(role).get(f"{ONE}/results")).json()
        return [alarm["code"] for alarm in results["alarms"]]

    assert await alarms("admin") == ["nobody_reports"]
    assert await alarms("reader") == []


async def test_alarms_of_impossible_reports_are_for_readers_too(served: Served) -> None:
    await served.create()
    await served.report(await served.decide("button", 300, available=["green"]), 1)
    (alarm,) = (await served.as_("reader").get(f"{ONE}/results")).json()["alarms"]
    assert (alarm["code"], alarm["arm"]) == ("misspecified", "green")


async def test_a_hidden_report_does_not_invalidate_the_results_cache_of_readers(
    served: Served,
) -> None:
    """Else readers would see by the time of an answer that a report came."""
    await served.create()
    made = await served.decide("button", 10, available=["green"])
    engine = served.service.engine
    learner = engine.directory.find("button")
    before = await latest_results(engine, learner, is_admin=False)
    for each in made[:9]:
        await served.report([each])
        await expire(engine)
        assert await latest_results(engine, learner, is_admin=False) is before
    await served.report(made[9:])
    assert (await latest_results(engine, learner, is_admin=False)).reports == 10
    await served.decide("button")
    assert sum(a.issued for a in (await latest_results(engine, learner, is_admin=False)).arms) == 11


async def test_readers_see_tables_without_single_reports(served: Served) -> None:
    tables = (await served.as_("reader").get("/v1/stored")).json()["tables"]
    assert set(tables) == {"epochs", "experiments", "keys", "steps"}


async def test_the_statement_says_the_step_and_nothing_else_may_be_one(served: Served) -> None:
    await served.create(step=250)
    said = (await served.as_(None).get(f"{ONE}/privacy")).json()
    assert said["step"] == 250
    assert any("step" in each for each in said["stored"])
    for step in (0, -1, 10**6 + 1, 2.5, "10", True):
        answer = await served.as_().post(ALL, json=BUTTON | {"step": step})
        assert refused(answer) == (422, "invalid_field", "step")
    assert (await served.create(step=10**6))["step"] == 10**6


async def test_a_rollback_moves_what_readers_see_by_a_step_or_not_at_all(served: Served) -> None:
    await served.create()
    start = int(START) // 60
    for count in (12, 1, 15):
        decisions = await served.decide("button", count, available=["green"])
        served.clock.forward(60)
        await served.report(decisions)

    async def rolled_back(first: int) -> Any:
        span = {"from": 60 * (start + first), "to": 60 * (start + first + 1)}
        times = {name: f"2027-01-15T08:{(at - START) // 60:02.0f}:00Z" for name, at in span.items()}
        answer = await served.as_().post(f"{ONE}/rollback", json=times)
        assert answer.status_code == 200, answer.text
        both = [
            (await served.as_(role).get(f"{ONE}/results")).json() for role in ("reader", "admin")
        ]
        return [each["reports"] for each in both]

    assert served.store.published(1) == {0: Step(28, 28, start + 3)}
    assert await rolled_back(1) == [28, 27]
    assert await rolled_back(0) == [15, 15]
    assert served.store.steps(1, 0, 10**9) == {(start + 3, 0): Step(15, 15, start + 3)}
    assert await rolled_back(2) == [0, 0]


async def test_a_key_that_becomes_a_readers_sees_steps_from_then_on(served: Served) -> None:
    await served.create()
    await served.report(await served.decide("button", 7))
    async with streamed(served, "admin") as told:
        (admin,) = (key for key in list(served.store.keys()) if key.role == "admin")
        served.store.save_key(admin._replace(role="reader"))
        await asyncio.sleep(1.5)
    assert [sum(arm["answered"] for arm in arms) for arms in told] == [7, 0]
