"""Maintenance: what others change is noticed, tokens expire, minutes are joined, whatever fails."""

import asyncio
from pathlib import Path

import pytest

from helpers.engine_cases import MINUTE, FailingStore, Secrets, button, counted, reports
from helpers.in_process_service import KEYS, START, Clock, serving
from whitelie.service import wire
from whitelie.service.engine import maintenance
from whitelie.service.engine.keys import hash_of
from whitelie.service.refusals import Refusal
from whitelie.service.store.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio


async def test_the_service_finds_out_by_itself_that_the_store_works_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        failing = FailingStore(served.store)
        failing.fails = True
        with pytest.raises(Refusal):
            await engine.pipeline.decide(learner, 1)
        assert not engine.writer.is_available
        failing.fails = False
        for _ in range(300):  # maintenance probes the store
            await asyncio.sleep(0.02)
            if engine.writer.is_available:
                break
        assert engine.writer.is_available


async def test_unanswered_decisions_are_missing_once_they_have_expired(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 10)
        await engine.pipeline.report(reports(issued[:4]))
        assert learner.unanswered.pending.sum() == 6
        clock.forward((learner.experiment.lifetime + 2) * MINUTE)
        assert await engine.pipeline.report(reports(issued[4:])) == ["expired"] * 6
        later = await engine.pipeline.decide(learner, 2)
        for _ in range(2):
            await maintenance.expire(engine)
            assert learner.unanswered.pending.sum() == 2
        assert served.store.spent_bits() == 4  # for another day: a clock may be set back
        assert await engine.pipeline.report(reports(later)) == ["accepted"] * 2
        assert await engine.pipeline.report(reports(issued[:4])) == ["expired"] * 4
        clock.forward(9 * wire.DAY_SECONDS)
        await maintenance.expire(engine)
        assert served.store.spent_bits() == 0


async def test_old_minutes_are_joined_into_days(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(feedback_ttl=3600, retention=wire.DAY_SECONDS)
        engine, learner = served.engine, served.engine.directory.find("button")
        for _ in range(5):
            await engine.pipeline.report(reports(await engine.pipeline.decide(learner, 4)))
            clock.forward(MINUTE)
        before = counted(served, learner)
        clock.forward(3 * wire.DAY_SECONDS)
        await maintenance.join_old_minutes(engine)
        assert counted(served, learner) == before
        first = int(START // 60)
        minutes = {minute for minute, _ in served.store.history(learner.number, 0, first + 10**6)}
        assert minutes == {first - first % (24 * 60)}


async def test_another_process_changes_experiments_and_keys(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        other = SQLiteStore(tmp_path / "x.db")
        try:
            other.change(learner.saved, learner.saved.definition.replace("running", "paused"))
            await engine.directory.refresh()
            assert learner.experiment.status == "paused"
            other.delete(learner.number)
            await engine.directory.refresh()
            assert learner not in engine.directory
        finally:
            other.close()


async def test_maintenance_goes_on_whatever_happens(tmp_path: Path) -> None:
    secrets = Secrets()
    async with serving(tmp_path / "x.db", secrets=secrets) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 1)
        secrets.broken = True
        await asyncio.sleep(1.2)
        assert await engine.pipeline.report(reports(issued)) == [
            "accepted"
        ]  # the old secret is kept
        secrets.broken = False
        served.store.delete(learner.number)
        for _ in range(300):
            await asyncio.sleep(0.02)
            if learner not in engine.directory:
                break
        assert learner not in engine.directory


async def test_a_bad_file_of_secrets_stops_nothing_else(tmp_path: Path) -> None:
    secrets = Secrets()
    async with serving(tmp_path / "x.db", secrets=secrets) as served:
        _, learner = await button(served)
        secrets.broken = True
        client, path = served.as_(), "/v1/experiments/button"
        answer = await client.patch(path, json={"status": "paused"})
        assert (answer.status_code, learner.experiment.status) == (200, "paused")
        served.store.delete_key(hash_of(KEYS["admin"]))
        for _ in range(300):
            await asyncio.sleep(0.02)
            if (await client.get(path)).status_code == 401:
                break
        assert (await client.get(path)).status_code == 401


async def test_a_clock_that_is_set_back_makes_no_token_good_again(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 10)
        await engine.pipeline.report(reports(issued[:4]))
        for minutes in (learner.experiment.lifetime + 2, -3, 2, -5, 9):
            clock.forward(minutes * MINUTE)
            await maintenance.expire(engine)
            assert await engine.pipeline.report(reports(issued)) == ["expired"] * 10
            assert learner.unanswered.pending.sum() == 0
            assert learner.expired_issued.sum() == 10
        before = counted(served, learner)
    clock.forward(-20 * MINUTE)
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = served.engine, served.engine.directory.find("button")
        await engine.pipeline.report(reports(issued[:4]))
        assert counted(served, learner) == before  # the bits are still there
