"""The engine: answers only after commits, and nothing counted that was not committed."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from service import KEYS, SECRET, START, Clock, Line, Served, serving
from whitelie.service import upkeep, watch, wire
from whitelie.service.engine import Engine
from whitelie.service.keys import hash_of
from whitelie.service.learner import Learner
from whitelie.service.log import Lines
from whitelie.service.refusal import Refusal
from whitelie.service.results import Results
from whitelie.service.round import Issued
from whitelie.service.standing import results_now
from whitelie.service.store import Batch, Counts, Unavailable
from whitelie.service.store.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

MINUTE = 60


class Troubled:
    """The commits of a store, which fail or take long when they are told to."""

    def __init__(self, store: SQLiteStore) -> None:
        self.batches: list[Batch] = []
        self.fails = False
        self.seconds = 0.0
        self._commit, self._probe = store.commit, store.probe
        self._fold, self._forget = store.fold, store.forget_spent
        store.commit = self.commit  # type: ignore[method-assign]
        store.probe = self.probe  # type: ignore[method-assign]
        store.fold = self.fold  # type: ignore[method-assign]
        store.forget_spent = self.forget_spent  # type: ignore[method-assign]

    def commit(self, batch: Batch) -> Sequence[bool]:
        self.batches.append(batch)
        time.sleep(self.seconds)
        self._check()
        return self._commit(batch)

    def probe(self) -> None:
        self._check()
        self._probe()

    def fold(self, experiment: int, before: int, width: int) -> None:
        self._check()
        self._fold(experiment, before, width)

    def forget_spent(self, before: int) -> int:
        self._check()
        return self._forget(before)

    def _check(self) -> None:
        if self.fails:
            raise Unavailable("the disk is full")


@dataclass
class Secrets:
    """A file of secrets, which cannot be read while it is broken."""

    broken: bool = False

    def __call__(self) -> list[bytes]:
        if self.broken:
            raise OSError("the file of secrets cannot be read")
        return [SECRET]


def reports(issued: Issued, bit: int = 1) -> list[wire.Report]:
    return [wire.Report(token=token, bit=1 if bit else 0) for _, token in issued]


async def button(served: Served) -> tuple[Engine, Learner]:
    created = await served.create()
    return served.engine, served.engine.roster.find(created["id"])


def counted(served: Served, learner: Learner) -> Mapping[int, Counts]:
    """Return what the store has counted, after checking that memory says the same."""
    totals = served.store.totals(learner.number)
    for arm in range(len(learner.issued)):
        remembered = learner.issued[arm], learner.answered[arm], learner.ones[arm]
        assert tuple(map(int, remembered)) == totals.get(arm, Counts())
    assert not learner.in_flight.any()
    return totals


async def test_what_is_asked_at_once_is_committed_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        troubled = Troubled(served.store)
        answers = await asyncio.gather(*(engine.decide(learner, 1) for _ in range(50)))
        assert len(troubled.batches) == 1
        outcomes = await asyncio.gather(*(engine.report(reports(issued)) for issued in answers))
        assert outcomes == [["accepted"]] * 50
        assert len(troubled.batches) == 2
        assert sum(counts.answered for counts in counted(served, learner).values()) == 50


async def test_of_many_reports_on_one_decision_one_is_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 1)
        same = reports(issued)
        outcomes = await asyncio.gather(*(engine.report(same * 2) for _ in range(10)))
        assert Counter(chain(*outcomes)) == {"accepted": 1, "duplicate": 19}
        assert await engine.report(same) == ["duplicate"]
        assert served.store.spent_bits() == 1


async def test_a_failed_commit_refuses_everybody_and_counts_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 20)
        before = counted(served, learner)
        troubled = Troubled(served.store)
        troubled.fails = True
        waiting = [engine.decide(learner, 1) for _ in range(5)]
        refused = await asyncio.gather(
            *waiting, engine.report(reports(issued)), return_exceptions=True
        )
        assert [error.code for error in refused if isinstance(error, Refusal)] == [
            "store_unavailable"
        ] * 6
        assert counted(served, learner) == before
        assert served.store.spent_bits() == 0
        assert not engine.writer.is_available
        answer = await served.as_(None).get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")

        troubled.fails = False
        assert await engine.report(reports(issued)) == ["accepted"] * 20
        await engine.writer.probe()
        assert engine.writer.is_available
        assert sum(counts.answered for counts in counted(served, learner).values()) == 20


async def test_the_service_finds_out_by_itself_that_the_store_works_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        troubled = Troubled(served.store)
        troubled.fails = True
        with pytest.raises(Refusal):
            await engine.decide(learner, 1)
        assert not engine.writer.is_available
        troubled.fails = False
        for _ in range(300):  # upkeep probes the store
            await asyncio.sleep(0.02)
            if engine.writer.is_available:
                break
        assert engine.writer.is_available


async def test_sequence_numbers_of_failed_commits_are_never_used_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        troubled = Troubled(served.store)
        tokens = set()
        for fails in (False, True, False):
            troubled.fails = fails
            with suppress(Refusal):
                tokens |= {token for _, token in await engine.decide(learner, 10)}
        opened = [engine._seal.open(token) for token in tokens]
        numbers = sorted(decision.sequence for decision in opened if decision)
        assert numbers == [*range(10), *range(20, 30)]


async def test_a_client_that_has_gone_disturbs_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        gone = asyncio.ensure_future(engine.decide(learner, 1))
        stays = asyncio.ensure_future(engine.decide(learner, 1))
        await asyncio.sleep(0)
        gone.cancel()
        assert len(await stays) == 1
        assert sum(counts.issued for counts in counted(served, learner).values()) == 2


async def test_a_rollback_under_load_leaves_what_the_store_has(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        old = await engine.decide(learner, 30)
        await engine.report(reports(old[:10]))
        clock.forward(2 * MINUTE)
        start = int(START // 60)

        async def visitors() -> None:
            for _ in range(20):
                issued = await engine.decide(learner, 3)
                await engine.report(reports(issued))

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
        assert await engine.report(reports(old[10:])) == ["expired"] * 20


def span() -> tuple[int, int]:
    return int(START // 60), int(START // 60) + 1


async def test_a_rollback_does_not_undo_what_another_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pauses the experiment after the rollback, and before its answer is there."""
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        await engine.decide(learner, 3)
        clock.forward(2 * MINUTE)
        roll_back = served.store.roll_back

        def slowly(*arguments: Any) -> Any:
            removed = roll_back(*arguments)
            with closing(SQLiteStore(tmp_path / "x.db")) as other:
                (saved,) = other.experiments()
                other.change(saved, saved.definition.replace("running", "paused"))
            return removed

        monkeypatch.setattr(served.store, "roll_back", slowly)
        await engine.roll_back(learner, *span())
        assert learner.experiment.status == "paused"
        assert learner.experiment.rolled_back == (span(),)
        with pytest.raises(Refusal, match="paused"):
            await engine.decide(learner, 1)
        assert counted(served, learner) == {}


async def test_a_rollback_that_is_refused_refuses_no_report(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 3)
        clock.forward(2 * MINUTE)
        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            other.change(learner.saved, learner.saved.definition.replace("Button", "Other"))
        reporting = asyncio.ensure_future(engine.report(reports(issued)))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="somebody else has changed it"):
            await engine.roll_back(learner, *span())
        assert await reporting == ["accepted"] * 3


async def test_nobody_waits_where_definitions_have_changed_and_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        troubled = Troubled(served.store)

        def fails() -> int:
            raise Unavailable("all connections are busy")

        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            monkeypatch.setattr(served.store, "generation", fails)
            other.change(learner.saved, learner.saved.definition.replace("Button", "Other"))
        with pytest.raises(Refusal, match="cannot be written now"):
            await asyncio.wait_for(engine.decide(learner, 1), 5)
        assert len(troubled.batches) == 1
        assert not engine.writer.is_available
        assert not learner.in_flight.any()


async def test_what_another_changes_between_two_commits_is_heeded_by_the_second(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 2)
        deciding = asyncio.ensure_future(engine.decide(learner, 1))
        reporting = asyncio.ensure_future(engine.report(reports(issued)))
        await asyncio.sleep(0)
        with closing(SQLiteStore(tmp_path / "x.db")) as other:
            other.change(learner.saved, learner.saved.definition.replace("running", "paused"))
        with pytest.raises(Refusal, match="paused"):
            await deciding
        assert await reporting == ["accepted"] * 2
        assert sum(counts.issued for counts in counted(served, learner).values()) == 2


async def test_unanswered_decisions_are_missing_once_they_have_expired(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 10)
        await engine.report(reports(issued[:4]))
        assert learner.unanswered.pending.sum() == 6
        clock.forward((learner.experiment.lifetime + 2) * MINUTE)
        assert await engine.report(reports(issued[4:])) == ["expired"] * 6
        later = await engine.decide(learner, 2)
        for _ in range(2):
            await upkeep.expire(engine)
            assert learner.unanswered.pending.sum() == 2
        assert served.store.spent_bits() == 4  # for another day: a clock may be set back
        assert await engine.report(reports(later)) == ["accepted"] * 2
        assert await engine.report(reports(issued[:4])) == ["expired"] * 4
        clock.forward(9 * wire.DAY_SECONDS)
        await upkeep.expire(engine)
        assert served.store.spent_bits() == 0


async def test_old_minutes_are_joined_into_days(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(feedback_ttl=3600, retention=wire.DAY_SECONDS)
        engine, learner = served.engine, served.engine.roster.find("button")
        for _ in range(5):
            await engine.report(reports(await engine.decide(learner, 4)))
            clock.forward(MINUTE)
        before = counted(served, learner)
        clock.forward(3 * wire.DAY_SECONDS)
        await upkeep.join_old_minutes(engine)
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
            await engine.roster.refresh()
            assert learner.experiment.status == "paused"
            other.delete(learner.number)
            await engine.roster.refresh()
            assert learner not in engine.roster
        finally:
            other.close()


async def test_what_was_accepted_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 10)
        await engine.report(reports(issued[:5]))
        before, first = counted(served, learner), engine.epoch
    async with serving(tmp_path / "x.db") as served:
        engine, learner = served.engine, served.engine.roster.find("button")
        assert counted(served, learner) == before
        assert engine.epoch > first
        outcomes = await engine.report(reports(issued))
        assert outcomes == ["duplicate"] * 5 + ["accepted"] * 5


async def test_upkeep_goes_on_whatever_happens(tmp_path: Path) -> None:
    secrets = Secrets()
    async with serving(tmp_path / "x.db", secrets=secrets) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 1)
        secrets.broken = True
        await asyncio.sleep(1.2)
        assert await engine.report(reports(issued)) == ["accepted"]  # the old secret is kept
        secrets.broken = False
        served.store.delete(learner.number)
        for _ in range(300):
            await asyncio.sleep(0.02)
            if learner not in engine.roster:
                break
        assert learner not in engine.roster


async def test_days_that_were_joined_are_rolled_back_whole(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        await served.create(feedback_ttl=3600, retention=wire.DAY_SECONDS)
        engine, learner = served.engine, served.engine.roster.find("button")
        await engine.decide(learner, 4)
        clock.forward(3 * wire.DAY_SECONDS)
        await upkeep.join_old_minutes(engine)
        client, path = served.as_(), "/v1/experiments/button/rollback"
        part = {"from": "2027-01-15T08:00:00Z", "to": "2027-01-15T08:01:00Z"}
        refused = await client.post(path, json=part)
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "from"
        assert sum(counts.issued for counts in counted(served, learner).values()) == 4
        day = {"from": "2027-01-15T00:00:00Z", "to": "2027-01-16T00:00:00Z"}
        removed = (await client.post(path, json=day)).json()["arms"]
        assert sum(arm["issued"] for arm in removed) == 4


async def test_requests_gather_while_a_commit_takes_long(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        troubled = Troubled(served.store)
        troubled.seconds = 0.1
        waiting = []
        for _ in range(100):  # they do not wait for each other, and come every 5 ms
            waiting.append(asyncio.ensure_future(engine.decide(learner, 1)))
            await asyncio.sleep(0.005)
        await asyncio.gather(*waiting)
        assert len(troubled.batches) < 20


async def test_a_clock_that_is_set_back_makes_no_token_good_again(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 10)
        await engine.report(reports(issued[:4]))
        for minutes in (learner.experiment.lifetime + 2, -3, 2, -5, 9):
            clock.forward(minutes * MINUTE)
            await upkeep.expire(engine)
            assert await engine.report(reports(issued)) == ["expired"] * 10
            assert learner.unanswered.pending.sum() == 0
            assert learner.closed_issued.sum() == 10
        before = counted(served, learner)
    clock.forward(-20 * MINUTE)
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = served.engine, served.engine.roster.find("button")
        await engine.report(reports(issued[:4]))
        assert counted(served, learner) == before  # the bits are still there


async def test_a_report_in_the_last_moment_is_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 1)
        clock.forward(learner.experiment.lifetime * MINUTE)
        assert await engine.report(reports(issued)) == ["accepted"]
        again = asyncio.ensure_future(engine.report(reports(issued)))
        await asyncio.sleep(0)
        clock.forward(MINUTE)
        await upkeep.expire(engine)
        assert await again == ["duplicate"]
        counted(served, learner)


@pytest.mark.parametrize("method", ["delete", "roll_back"])
async def test_what_fails_half_way_has_not_happened(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with serving(tmp_path / "x.db", clock=clock) as served:
        engine, learner = await button(served)
        issued = await engine.decide(learner, 10)
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
        assert await engine.report(reports(issued)) == ["accepted"] * 10


async def test_nobody_waits_for_ever_and_the_log_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)

        def fails(*arguments: object) -> None:
            raise KeyError("203.0.113.7")

        for name in ("_count", "_choose_for_all"):
            with monkeypatch.context() as patch:
                patch.setattr(engine, name, fails)
                with pytest.raises(Refusal, match="fault"):
                    await asyncio.wait_for(engine.decide(learner, 1), 5)
        assert len(await engine.decide(learner, 1)) == 1
    lines = [Lines().format(record) for record in caplog.records if record.levelno > logging.INFO]
    assert len(lines) == 2
    assert all("KeyError" in line and "203.0.113.7" not in line for line in lines)


async def test_many_who_look_at_once_see_what_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "x.db") as served:
        engine, learner = await button(served)
        computed = []

        def compute(*arguments: Any, **more: Any) -> Results:
            computed.append(arguments)
            return results_now(*arguments, **more)

        monkeypatch.setattr(watch, "results_now", compute)
        await asyncio.gather(
            *(watch.latest_results(engine, learner, is_admin=True) for _ in range(20))
        )
        assert len(computed) == 1
        await engine.decide(learner, 1)
        await asyncio.gather(
            *(watch.watched_results(engine, learner, is_admin=True) for _ in range(20))
        )
        assert len(computed) == 1  # a second has not passed
        results = await watch.latest_results(engine, learner, is_admin=True)
        assert sum(arm.issued for arm in results.arms) == 1
        assert len(computed) == 2


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


async def test_a_stream_ends_with_its_key(tmp_path: Path) -> None:
    async with serving(tmp_path / "x.db") as served:
        await button(served)
        line = Line.to(served.app, "GET", "/v1/experiments/button/stream", "reader")
        await line.send(b"")
        serving_it = line.start()
        assert (await line.from_app.get())["status"] == 200
        assert b"event: results" in (await line.from_app.get())["body"]
        served.store.delete_key(hash_of(KEYS["reader"]))
        await served.engine.roster.refresh()
        await asyncio.wait_for(serving_it, 5)
