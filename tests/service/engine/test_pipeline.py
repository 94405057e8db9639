"""The commit pipeline: no answer before its commit, nothing counted that was not committed."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

import pytest

from helpers.engine_cases import MINUTE, FailingStore, button, counted, reports
from helpers.in_process_service import Clock, serving
from whitelie.service.engine import maintenance
from whitelie.service.log import JsonFormatter
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Batch, Unavailable
from whitelie.service.store.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio


@pytest.mark.promise("No answer before its commit")
async def test_no_answer_before_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        (known,) = await engine.pipeline.decide(learner, 1)
        commit, has_begun, may_commit = served.store.commit, threading.Event(), threading.Event()

        def slowly(batch: Batch) -> Sequence[bool]:
            has_begun.set()
            assert may_commit.wait(60)
            return commit(batch)

        monkeypatch.setattr(served.store, "commit", slowly)
        deciding = asyncio.ensure_future(engine.pipeline.decide(learner, 1))
        reporting = asyncio.ensure_future(engine.pipeline.report(reports([known])))
        await asyncio.to_thread(has_begun.wait, 60)
        await asyncio.sleep(0.05)
        assert not deciding.done()
        assert not reporting.done()
        assert (learner.issued.sum(), learner.answered.sum()) == (1, 0)
        may_commit.set()
        assert len(await deciding) == 1
        assert await reporting == ["accepted"]
        assert sum(counts.issued for counts in counted(served, learner).values()) == 2


async def test_requests_of_the_same_time_share_one_commit(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        failing = FailingStore(served.store)
        pipeline = engine.pipeline
        answers = await asyncio.gather(*(pipeline.decide(learner, 1) for _ in range(50)))
        assert len(failing.batches) == 1
        outcomes = await asyncio.gather(
            *(engine.pipeline.report(reports(issued)) for issued in answers)
        )
        assert outcomes == [["accepted"]] * 50
        assert len(failing.batches) == 2
        assert sum(counts.answered for counts in counted(served, learner).values()) == 50


async def test_of_many_reports_on_one_decision_one_is_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 1)
        same = reports(issued)
        outcomes = await asyncio.gather(*(engine.pipeline.report(same * 2) for _ in range(10)))
        assert Counter(chain(*outcomes)) == {"accepted": 1, "duplicate": 19}
        assert await engine.pipeline.report(same) == ["duplicate"]
        assert served.store.spent_bits() == 1


@pytest.mark.promise("No answer before its commit")
async def test_a_failed_commit_refuses_everybody_and_counts_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 20)
        before = counted(served, learner)
        failing = FailingStore(served.store)
        failing.fails = True
        waiting = [engine.pipeline.decide(learner, 1) for _ in range(5)]
        refused = await asyncio.gather(
            *waiting, engine.pipeline.report(reports(issued)), return_exceptions=True
        )
        assert [error.code for error in refused if isinstance(error, Refusal)] == [
            "store_unavailable"
        ] * 6
        assert len(set(map(id, refused))) == 6  # one that many raise would keep all their frames
        assert counted(served, learner) == before
        assert served.store.spent_bits() == 0
        assert not engine.writer.is_available
        answer = await served.as_(None).get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")

        failing.fails = False
        assert await engine.pipeline.report(reports(issued)) == ["accepted"] * 20
        await engine.writer.probe()
        assert engine.writer.is_available
        assert sum(counts.answered for counts in counted(served, learner).values()) == 20


@pytest.mark.promise("A decision's name")
async def test_sequence_numbers_of_failed_commits_are_never_used_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        failing = FailingStore(served.store)
        tokens = set()
        for fails in (False, True, False):
            failing.fails = fails
            with suppress(Refusal):
                tokens |= {token for _, token in await engine.pipeline.decide(learner, 10)}
        opened = [engine.cipher.open(token) for token in tokens]
        numbers = sorted(decision.sequence for decision in opened if decision)
        assert numbers == [*range(10), *range(20, 30)]


async def test_a_client_that_has_gone_disturbs_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        gone = asyncio.ensure_future(engine.pipeline.decide(learner, 1))
        stays = asyncio.ensure_future(engine.pipeline.decide(learner, 1))
        await asyncio.sleep(0)
        gone.cancel()
        assert len(await stays) == 1
        assert sum(counts.issued for counts in counted(served, learner).values()) == 2


async def test_a_stale_batch_is_refused_where_definitions_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        failing = FailingStore(served.store)

        def fails() -> int:
            raise Unavailable("all connections are busy")

        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            monkeypatch.setattr(served.store, "generation", fails)
            other.change(learner.saved, learner.saved.definition.replace("Button", "Other"))
        with pytest.raises(Refusal, match="cannot be written now"):
            await asyncio.wait_for(engine.pipeline.decide(learner, 1), 60)
        assert len(failing.batches) == 1
        assert not engine.writer.is_available
        assert not learner.in_flight.any()


async def test_a_stale_batch_is_retried_under_the_new_definitions(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 2)
        deciding = asyncio.ensure_future(engine.pipeline.decide(learner, 1))
        reporting = asyncio.ensure_future(engine.pipeline.report(reports(issued)))
        await asyncio.sleep(0)
        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            other.change(learner.saved, learner.saved.definition.replace("running", "paused"))
        with pytest.raises(Refusal, match="paused"):
            await deciding
        assert await reporting == ["accepted"] * 2
        assert sum(counts.issued for counts in counted(served, learner).values()) == 2


async def test_what_was_accepted_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 10)
        await engine.pipeline.report(reports(issued[:5]))
        before, first = counted(served, learner), engine.pipeline.epoch
    async with serving(tmp_path / "x.db") as served:
        engine, learner = served.engine, served.engine.directory.find("button")
        assert counted(served, learner) == before
        assert engine.pipeline.epoch > first
        outcomes = await engine.pipeline.report(reports(issued))
        assert outcomes == ["duplicate"] * 5 + ["accepted"] * 5


async def test_requests_queue_while_a_commit_takes_long(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        failing = FailingStore(served.store)
        failing.seconds = 0.1
        waiting = []
        for _ in range(100):  # they do not wait for each other, and come every 5 ms
            waiting.append(asyncio.ensure_future(engine.pipeline.decide(learner, 1)))
            await asyncio.sleep(0.005)
        await asyncio.gather(*waiting)
        assert len(failing.batches) < 20


async def test_a_report_in_the_last_minute_of_its_token_is_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.pipeline.decide(learner, 1)
        clock.forward(learner.experiment.lifetime * MINUTE)
        assert await engine.pipeline.report(reports(issued)) == ["accepted"]
        again = asyncio.ensure_future(engine.pipeline.report(reports(issued)))
        await asyncio.sleep(0)
        clock.forward(MINUTE)
        await maintenance.expire(engine)
        assert await again == ["duplicate"]
        counted(served, learner)


async def test_a_fault_in_a_commit_refuses_its_requests_and_logs_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)

        def fails(*arguments: object) -> None:
            raise KeyError("203.0.113.7")

        for name in ("_count", "_choose_arms"):
            with monkeypatch.context() as patch:
                patch.setattr(engine.pipeline, name, fails)
                with pytest.raises(Refusal, match="fault"):
                    await asyncio.wait_for(engine.pipeline.decide(learner, 1), 60)
        assert len(await engine.pipeline.decide(learner, 1)) == 1
    lines = [
        JsonFormatter().format(record) for record in caplog.records if record.levelno > logging.INFO
    ]
    assert len(lines) == 2
    assert all("KeyError" in line and "203.0.113.7" not in line for line in lines)
