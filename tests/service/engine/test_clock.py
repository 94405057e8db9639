"""A clock that jumps, ahead or back: nothing is forgotten, and no honest report is thrown away."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from helpers.in_process_service import FEEDBACK, ONE, START, Clock, Served, refused, serving
from helpers.postgres_server import Postgres
from helpers.service_process import Ledger, Server, Visitor, run, together, until
from whitelie.service import wire
from whitelie.service.engine import maintenance
from whitelie.service.engine.clock import (
    JUMP_TOLERANCE_SECONDS,
    SETTLING_SECONDS,
    TrustedClock,
    steady_time,
)

DAY = wire.DAY_SECONDS
FORTY_DAYS = 40 * DAY


@dataclass
class Wall(Clock):
    """A wall clock that jumps by itself, and passes together with a steady one beside it."""

    steady: Clock = field(default_factory=lambda: Clock(500.0))

    def pass_(self, seconds: float) -> None:
        self.forward(seconds)
        self.steady.forward(seconds)

    def trusted(self) -> TrustedClock:
        return TrustedClock(self, self.steady)


# The clock itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-JUMP_TOLERANCE_SECONDS, -0.5, 0.5, JUMP_TOLERANCE_SECONDS])
def test_small_steps_are_followed(step: float) -> None:
    wall = Wall()
    trusted = wall.trusted()
    for _ in range(9):
        wall.pass_(1000)
        wall.forward(step)
        assert trusted() == wall()
        assert trusted.is_trusted
    assert not trusted.times_set_back


@pytest.mark.parametrize(
    "jump", [FORTY_DAYS, -FORTY_DAYS, JUMP_TOLERANCE_SECONDS + 1, -JUMP_TOLERANCE_SECONDS - 1]
)
def test_time_goes_on_by_the_steady_clock_after_a_jump(jump: float) -> None:
    wall = Wall()
    trusted = wall.trusted()
    wall.pass_(SETTLING_SECONDS)
    wall.forward(jump)
    for _ in range(3):
        wall.pass_(1000)
        assert trusted() == wall() - jump
        assert not trusted.is_trusted
    wall.forward(-jump + JUMP_TOLERANCE_SECONDS)
    assert trusted() == wall()
    assert trusted.is_trusted


def test_a_clock_that_is_set_back_in_the_first_hour_is_followed() -> None:
    wall = Wall()
    trusted = wall.trusted()
    wall.pass_(SETTLING_SECONDS - 1)
    wall.forward(-FORTY_DAYS)
    assert trusted() == wall()
    assert trusted.is_trusted
    assert trusted.times_set_back == 1
    wall.pass_(1)
    wall.forward(-FORTY_DAYS)
    assert trusted() == wall() + FORTY_DAYS
    assert not trusted.is_trusted


def test_a_pause_between_looks_at_two_clocks_is_no_jump(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "whitelie.service")
    wall = Wall()
    pauses = [FORTY_DAYS, 0.0, 0.0, 0.0]

    def looked_at_slowly() -> float:
        now = wall()
        wall.pass_(pauses.pop() if pauses else 0.0)
        return now

    trusted = TrustedClock(looked_at_slowly, wall.steady)
    for _ in range(5):
        assert trusted() == wall()
    assert not pauses
    assert not caplog.records


def test_a_computer_that_sleeps_makes_no_jump() -> None:
    """The steady clock counts the sleep, as that of Linux does; one that does not would jump."""
    wall = Wall()
    trusted = wall.trusted()
    wall.pass_(8 * 3600)
    assert trusted() == wall()
    assert trusted.is_trusted
    wall.forward(8 * 3600)
    assert not trusted.is_trusted
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(steady_time() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


def test_a_jump_is_logged_once_and_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "whitelie.service")
    wall = Wall()
    trusted = wall.trusted()
    for step in (0, FORTY_DAYS, 0, 0, -FORTY_DAYS, 0):
        wall.pass_(1)
        wall.forward(step)
        trusted()
    said = [(record.msg, getattr(record, "facts", {})) for record in caplog.records]
    assert [name for name, _ in said] == ["clock_jumped", "clock_trusted"]
    assert said[0][1]["seconds"] == FORTY_DAYS
    assert "restart" in said[0][1]["to_do"]


def test_nothing_is_forgotten_in_the_first_hour_nor_after_a_jump() -> None:
    wall = Wall()
    trusted = wall.trusted()
    wall.pass_(SETTLING_SECONDS - 1)
    assert not trusted.may_forget
    wall.pass_(1)
    assert trusted.may_forget
    wall.forward(FORTY_DAYS)
    assert not trusted.may_forget


# The service ------------------------------------------------------------------------------------


async def maintain_now(served: Served) -> None:
    """Do now what maintenance does once a minute or an hour."""
    await maintenance.expire(served.engine)
    await maintenance.join_old_minutes(served.engine)


def minute_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds // 60 * 60, UTC).isoformat()


async def refuses_for_now(served: Served, made: Sequence[Any]) -> None:
    """Check that reports are refused, one by one and together, in a way that clients keep them."""
    items = [{"token": each["token"], "bit": 1} for each in made]
    for body in (*items, {"items": items}):
        answer = await served.as_(None).post(FEEDBACK, json=body)
        assert refused(answer) == (503, "clock_jumped", None)
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.anyio
@pytest.mark.promise("Trusted time")
async def test_three_seconds_of_a_wrong_clock_do_no_harm(tmp_path: Path) -> None:
    wall = Wall()
    async with serving(tmp_path / "x.db", clock=wall) as served:
        await served.create(retention=DAY)
        wall.pass_(2 * SETTLING_SECONDS)
        issued = wall()
        made = await served.decide("button", 10)
        assert await served.report(made[:4]) == ["accepted"] * 4
        wall.pass_(120)
        wall.forward(FORTY_DAYS)
        for _ in range(3):
            wall.pass_(1)
            await maintain_now(served)
        assert await served.report(made[4:6]) == ["accepted"] * 2
        served.store.is_shared = True  # others may have forgotten what was answered
        await refuses_for_now(served, made[6:8])
        served.store.is_shared = False
        assert served.store.spent_bits() == 6
        wall.forward(-FORTY_DAYS)
        wall.pass_(60)
        await maintain_now(served)
        assert await served.report(made) == ["duplicate"] * 6 + ["accepted"] * 4
        assert len(await served.decide("button", 5)) == 5
        for counts in served.store.totals(1).values():
            assert counts.answered <= counts.issued
        results = (await served.as_().get(f"{ONE}/results")).json()
        assert results["alarms"] == []
        assert [arm["missing"] for arm in results["arms"]] == [0, 0]
        span = {"from": minute_of(issued), "to": minute_of(issued + 60)}
        removed = await served.as_().post(f"{ONE}/rollback", json=span)
        assert removed.status_code == 200, removed.text
        assert sum(arm["issued"] for arm in removed.json()["arms"]) == 10


@pytest.mark.anyio
@pytest.mark.parametrize("jump", [2 * DAY, -2 * DAY])
async def test_a_jump_that_stays_is_said_until_it_is_confirmed(tmp_path: Path, jump: int) -> None:
    wall = Wall()
    async with serving(tmp_path / "x.db", clock=wall) as served:
        await served.create()
        wall.pass_(SETTLING_SECONDS)
        made = await served.decide("button", 4)
        assert "whitelie_clock_trusted 1.0" in (await served.as_().get("/metrics")).text
        wall.forward(jump)
        for _ in range(3):
            for answer in (
                await served.as_().post(f"{ONE}/decisions"),
                await served.as_(None).get("/readyz"),
            ):
                assert refused(answer) == (503, "clock_jumped", None)
                assert int(answer.headers["retry-after"]) > 0
                assert "restart" in answer.json()["error"]["message"]
            wall.pass_(3600)
            await maintain_now(served)
        assert await served.report(made[:2]) == ["accepted"] * 2
        assert (await served.as_(None).get("/healthz")).status_code == 200
        assert "whitelie_clock_trusted 0.0" in (await served.as_().get("/metrics")).text
        results = (await served.as_().get(f"{ONE}/results")).json()
        assert [alarm["code"] for alarm in results["alarms"]] == ["clock_jumped"]
        assert results["sentence"].startswith("Check the server's clock: it has jumped. ")
        assert "clients" not in results["sentence"]
        wall.pass_(6 * DAY)
        if jump > 0:  # by the steady clock there is time left
            assert await served.report(made[2:3]) == ["accepted"]
        wall.pass_(2 * DAY)
        if jump < 0:  # what the wall clock would accept is not thrown away
            await refuses_for_now(served, made[2:])
        wall.pass_(2 * DAY)
        assert await served.report(made[3:]) == ["expired"]
    async with serving(tmp_path / "x.db", clock=wall) as served:
        assert (await served.as_(None).get("/readyz")).status_code == 200
        assert len(await served.decide("button")) == 1


@pytest.mark.anyio
async def test_a_start_with_a_wrong_clock_forgets_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(retention=DAY)
        made = await served.decide("button", 10)
        assert await served.report(made[:4]) == ["accepted"] * 4
    clock.forward(FORTY_DAYS)
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await maintain_now(served)
        assert set(await served.report(made)) == {"expired"}
    clock.forward(60 - FORTY_DAYS)
    async with serving(tmp_path / "x.db", clock=clock) as served:
        assert await served.report(made) == ["duplicate"] * 4 + ["accepted"] * 6
        span = {"from": minute_of(START), "to": minute_of(START + 60)}
        assert (await served.as_().post(f"{ONE}/rollback", json=span)).status_code == 200


@pytest.mark.anyio
async def test_a_clock_that_is_set_right_soon_after_the_start_throws_nothing_away(
    tmp_path: Path,
) -> None:
    wall = Wall()
    async with serving(tmp_path / "x.db", clock=wall) as served:
        await served.create()
        made = await served.decide("button", 10)
    wall.forward(FORTY_DAYS)
    async with serving(tmp_path / "x.db", clock=wall) as served:
        await maintain_now(served)
        assert await served.report(made[:1]) == ["expired"]
        late = await served.decide("button", 1)
        assert await served.report(late) == ["accepted"]
        wall.pass_(3)
        wall.forward(-FORTY_DAYS)
        assert await served.report(made[:4]) == ["accepted"] * 4
        await maintain_now(served)
        await maintenance.recount_where_due(served.engine)
        results = (await served.as_().get(f"{ONE}/results")).json()
        assert results["alarms"] == []
        assert sum(arm["missing"] for arm in results["arms"]) == 0
        assert sum(arm["pending"] for arm in results["arms"]) == 6
        assert datetime.fromisoformat(results["last_report"]).timestamp() <= wall()
        assert (await served.as_(None).get("/readyz")).status_code == 200
        assert len(await served.decide("button", 1)) == 1
        (minute,) = {minute for (minute, _) in served.store.history(1, 0, int(wall() // 60) + 1)}
        assert minute == wall() // 60  # and not of the time that was wrong


@pytest.mark.anyio
async def test_a_clock_that_is_set_right_late_loses_no_report(tmp_path: Path) -> None:
    wall = Wall()
    async with serving(tmp_path / "x.db", clock=wall) as served:
        await served.create()
        made = await served.decide("button", 4)
    wall.forward(FORTY_DAYS)
    async with serving(tmp_path / "x.db", clock=wall) as served:
        wall.pass_(SETTLING_SECONDS)
        wall.forward(-FORTY_DAYS)
        await refuses_for_now(served, made)
    async with serving(tmp_path / "x.db", clock=wall) as served:
        assert await served.report(made) == ["accepted"] * 4


# A process whose clock is set -------------------------------------------------------------------


@dataclass
class SetClock:
    """The clock of a process, which is ahead by as many seconds as a file says."""

    file: Path
    library: str = ""

    def ahead(self, seconds: int) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self.file)

    @property
    def environment(self) -> dict[str, str | None]:
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def set_clock(tmp_path: Path) -> SetClock:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("there is no libfaketime to set the clock of a process (Debian: faketime)")
    clock = SetClock(tmp_path / "clock", str(library))
    clock.ahead(0)
    return clock


def test_a_process_survives_a_jump_of_its_clock(tmp_path: Path, set_clock: SetClock) -> None:
    ledger = Ledger()
    early: list[str] = []

    async def decide(visitor: Visitor) -> None:
        early.extend(await ledger.decide(visitor, experiment, 20))
        await ledger.report(visitor, [(token, 1) for token in early[:10]])

    async def report(visitor: Visitor) -> None:
        await ledger.report(visitor, [(token, 0) for token in early[10:15]])

    async def settle(visitor: Visitor) -> None:
        await ledger.report(visitor, [(token, 0) for token in early[15:]])
        await ledger.repeat(visitor, early[:15])
        assert await ledger.decide(visitor, experiment, 3)

    environment = set_clock.environment
    with Server(tmp_path / "x.db", tmp_path / "log", environment=environment).ready() as server:

        def code() -> Any:
            answer = server.ask("GET", "/readyz")
            return answer.status, msgspec.json.decode(answer.body).get("error", {}).get("code")

        experiment = server.create()
        run(together(server.port, [decide]))
        set_clock.ahead(FORTY_DAYS)
        until(lambda: code() == (503, "clock_jumped"))
        run(together(server.port, [report]))
        set_clock.ahead(0)
        until(lambda: code() == (200, None))
        run(together(server.port, [settle]))
        assert server.stop() == 0
    assert not ledger.refused
    assert not ledger.refusals
    assert not ledger.faults(tmp_path / "x.db")
    said = (tmp_path / "log").read_text()
    assert said.count('"event":"clock_jumped"') == said.count('"event":"clock_trusted"') == 1


WRONG_TIME = """
import pathlib, time
right = time.time
time.time = lambda: right() + float(pathlib.Path({!r}).read_text())
"""
"""What Python reads at its start. Not libfaketime, under which `time.sleep` of a parent fails."""


@pytest.mark.promise("Trusted time")
def test_workers_that_are_started_anew_do_not_confirm_a_jump(
    tmp_path: Path, postgres: Postgres
) -> None:
    log, clock = tmp_path / "log", SetClock(tmp_path / "clock")
    clock.ahead(0)
    (tmp_path / "sitecustomize.py").write_text(WRONG_TIME.format(str(clock.file)))
    others = os.environ.get("PYTHONPATH", "")
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{others}"}

    def said(name: str) -> int:
        return log.read_text().count(f'"event":"{name}"')

    def readiness() -> set[int]:
        return {server.ask("GET", "/readyz").status for _ in range(20)}

    with Server(postgres.new_database(), log, "--workers", "2", environment=environment) as server:
        until(lambda: said("serving") == 2)
        assert readiness() == {200}
        clock.ahead(FORTY_DAYS)
        until(lambda: said("clock_jumped") == 3)  # the supervisor notices it too
        for worker in psutil.Process(server.process.pid).children():
            worker.kill()
        until(lambda: said("serving") == 4)
        assert readiness() == {503}
        clock.ahead(0)
        until(lambda: readiness() == {200})
        assert server.stop() == 0
