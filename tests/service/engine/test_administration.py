"""Deleting and rolling back: whole or not at all, also under load."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.engine_cases import MINUTE, button, counted, reports, span
from helpers.in_process_service import START, Clock, serving
from whitelie.service import wire
from whitelie.service.engine import administration, maintenance
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Unavailable
from whitelie.service.store.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio


async def test_a_rollback_under_load_leaves_what_the_store_has(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        old = await engine.pipeline.decide(learner, 30)
        await engine.pipeline.report(reports(old[:10]))
        clock.forward(2 * MINUTE)
        start = int(START // 60)

        async def visitors() -> None:
            for _ in range(20):
                issued = await engine.pipeline.decide(learner, 3)
                await engine.pipeline.report(reports(issued))

        async def operator() -> None:
            await asyncio.sleep(0.01)
            span = {
                "from": "2027-01-15T08:00:00Z",
                "to": "2027-01-15T08:01:00Z",
            }
            answer = await served.as_().post("/v1/experiments/button/rollback", json=span)
            assert answer.status_code == 200, answer.text
            assert sum(arm["issued"] for arm in answer.json()["arms"]) == 30

        await asyncio.gather(visitors(), operator(), visitors())
        totals = counted(served, learner)
        assert sum(counts.issued for counts in totals.values()) == 120
        assert sum(counts.answered for counts in totals.values()) == 120
        assert not served.store.history(learner.number, start, start + 1)
        assert await engine.pipeline.report(reports(old[10:])) == ["expired"] * 20


async def test_a_rollback_does_not_undo_what_another_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pauses the experiment after the rollback, and before its answer is there."""
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        await engine.pipeline.decide(learner, 3)
        clock.forward(2 * MINUTE)
        roll_back = served.store.roll_back

        def slowly(*arguments: Any) -> Any:
            removed = roll_back(*arguments)
            with closing(SQLiteStore(tmp_path / "x.db")) as other:
                (saved,) = other.experiments()
                other.change(saved, saved.definition.replace("running", "paused"))
            return removed

        monkeypatch.setattr(served.store, "roll_back", slowly)
        await administration.roll_back(engine, learner, *span())
        assert learner.experiment.status == "paused"
        assert learner.experiment.rolled_back == (span(),)
        with pytest.raises(Refusal, match="paused"):
            await engine.pipeline.decide(learner, 1)
        assert counted(served, learner) == {}


async def test_a_rollback_that_is_refused_refuses_no_report(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 3)
        clock.forward(2 * MINUTE)
        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            other.change(learner.saved, learner.saved.definition.replace("Button", "Other"))
        reporting = asyncio.ensure_future(engine.pipeline.report(reports(issued)))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="somebody else has changed it"):
            await administration.roll_back(engine, learner, *span())
        assert await reporting == ["accepted"] * 3


async def test_days_that_were_joined_are_rolled_back_whole(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(feedback_ttl=3600, retention=wire.DAY_SECONDS)
        engine, learner = served.engine, served.engine.directory.find("button")
        await engine.pipeline.decide(learner, 4)
        clock.forward(3 * wire.DAY_SECONDS)
        await maintenance.join_old_minutes(engine)
        client, path = served.as_(), "/v1/experiments/button/rollback"
        part = {"from": "2027-01-15T08:00:00Z", "to": "2027-01-15T08:01:00Z"}
        refused = await client.post(path, json=part)
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "from"
        assert sum(counts.issued for counts in counted(served, learner).values()) == 4
        day = {"from": "2027-01-15T00:00:00Z", "to": "2027-01-16T00:00:00Z"}
        removed = (await client.post(path, json=day)).json()["arms"]
        assert sum(arm["issued"] for arm in removed) == 4


@pytest.mark.parametrize("method", ["delete", "roll_back"])
async def test_a_deletion_or_rollback_that_fails_half_way_changes_nothing(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 10)
        clock.forward(2 * MINUTE)
        before = counted(served, learner)

        def fails(*arguments: object) -> None:
            raise Unavailable("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(served.store, method, fails)
            path = "/v1/experiments/button"
            if method == "delete":
                answer = await served.as_().delete(path)
            else:
                span = {"from": "2027-01-15T08:00:00Z", "to": "2027-01-15T08:01:00Z"}
                answer = await served.as_().post(f"{path}/rollback", json=span)
            assert answer.status_code == 503
        assert counted(served, learner) == before
        assert await engine.pipeline.report(reports(issued)) == ["accepted"] * 10
