"""The engine: counters in memory, one writer, and no answer before its commit.

Requests gather for a moment; then one transaction makes them durable together: decisions issued,
bits spent, counts. Only then are they answered and added to the counters from which arms are
chosen. If the transaction fails, every request of it is refused and nothing has happened; the
sequence numbers that it used are never used again.

Everything here runs on the event loop's thread, except for the store's own work. The writer is one
thread that works in order: what is written between two batches sees all of the first and nothing
of the second, and so do the counters.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from whitelie.service.keys import Keyring
from whitelie.service.learner import Learner
from whitelie.service.log import event
from whitelie.service.refusal import Refusal
from whitelie.service.store import Batch, Counts, Key, Place, Report, Saved, Store, Unavailable
from whitelie.service.token import Decision, Seal
from whitelie.service.wire import Outcome

GATHER = 0.002
RETRY_AFTER = 2
DAY = 24 * 60
Answer = TypeVar("Answer")


@dataclass
class Gathered:
    """Requests that wait for the next commit, each with the future that its answer goes to."""

    asks: list[tuple[Learner, int, Sequence[str] | None, asyncio.Future[Any]]] = field(
        default_factory=list
    )
    reports: list[Report] = field(default_factory=list)
    reporters: list[tuple[int, int, asyncio.Future[Any]]] = field(default_factory=list)


@dataclass
class Tally:
    """What the engine has done since it started, for /metrics."""

    decisions: int = 0
    outcomes: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("accepted", "duplicate", "expired", "invalid"), 0)
    )
    commits: int = 0
    failed_commits: int = 0
    commit_seconds: float = 0.0


class Engine:
    """Decides and counts for all experiments of a store."""

    def __init__(
        self,
        store: Store,
        secrets: Callable[[], Sequence[bytes]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._secrets = secrets
        self._known_secrets: Sequence[bytes] = ()
        self._take_secrets()
        self.clock = clock
        self.learners: dict[str, Learner] = {}
        self.keyring = Keyring()
        self.tally = Tally()
        self.is_available = True
        self._by_number: dict[int, Learner] = {}
        self._closing = asyncio.Event()
        self._gathered = Gathered()
        self._is_due = False
        self._writer = ThreadPoolExecutor(1, "whitelie-writer")
        self._refreshing = asyncio.Lock()
        self._generation: int | None = None
        self._sequence = 0
        self._closed_before: dict[int, int] = {}
        self.epoch = store.new_epoch()

    @property
    def minute(self) -> int:
        """The minute that it is now."""
        return int(self.clock() // 60)

    @property
    def is_closing(self) -> bool:
        """Whether the service is about to end."""
        return self._closing.is_set()

    def end_streams(self) -> None:
        """Let those who wait in `pause` go on: the service is about to end."""
        self._closing.set()

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than the service lives."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    # Deciding and reporting ------------------------------------------------------------------

    async def decide(
        self, learner: Learner, count: int, available: Sequence[str] | None = None
    ) -> list[tuple[int, str]]:
        """Return decisions, as arms and tokens, once they are committed."""
        answer = asyncio.get_running_loop().create_future()
        self._gathered.asks.append((learner, count, available, answer))
        self._commit_soon()
        decided: list[tuple[int, str]] = await answer
        return decided

    async def report(self, items: Iterable[tuple[str, int]]) -> list[Outcome]:
        """Return what became of reports, given as tokens and bits, once they are committed."""
        minute = self.minute
        outcomes: list[Outcome] = []
        good: list[Report] = []
        for token, bit in items:
            decision = self._seal.open(token)
            outcome = self._outcome(decision, minute)
            outcomes.append(outcome)
            if decision is not None and outcome == "accepted":
                good.append(Report(decision, bit))
        if good:
            answer = asyncio.get_running_loop().create_future()
            first = len(self._gathered.reports)
            self._gathered.reports += good
            self._gathered.reporters.append((first, first + len(good), answer))
            self._commit_soon()
            free = iter(await answer)
            outcomes = [
                "duplicate" if outcome == "accepted" and not next(free) else outcome
                for outcome in outcomes
            ]
        for outcome in outcomes:
            self.tally.outcomes[outcome] += 1
        return outcomes

    def _outcome(self, decision: Decision | None, minute: int) -> Outcome:
        """Return what becomes of a report if nobody has answered this decision before."""
        learner = decision and self._by_number.get(decision.experiment)
        if decision is None or learner is None or decision.arm >= len(learner.issued):
            return "invalid"
        if minute > decision.expiry or learner.is_rolled_back(decision.minute):
            return "expired"
        return "accepted"

    # Committing ------------------------------------------------------------------------------

    def _commit_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(GATHER, self._commit)

    def _commit(self) -> None:
        """Send what has gathered to the writer."""
        self._is_due = False
        gathered, self._gathered = self._gathered, Gathered()
        if not gathered.asks and not gathered.reports:
            return
        batch = Batch(reports=gathered.reports)
        decided = self._choose(gathered, batch.issued)
        started = time.perf_counter()
        loop = asyncio.get_running_loop()
        committing = loop.run_in_executor(self._writer, self.store.commit, batch)
        committing.add_done_callback(
            lambda done: self._answer(done, batch, gathered, decided, started)
        )

    def _choose(
        self, gathered: Gathered, issued: dict[Place, int]
    ) -> list[tuple[asyncio.Future[Any], list[tuple[int, str]]]]:
        """Choose arms for all who asked, those of one experiment together, and seal tokens."""
        together: dict[Learner, list[tuple[int, asyncio.Future[Any]]]] = {}
        decided = []
        for learner, count, available, answer in gathered.asks:
            if available is None:
                together.setdefault(learner, []).append((count, answer))
                continue
            try:
                arms = learner.choose(count, available)
            except Refusal as refused:
                answer.set_exception(refused)
            else:
                decided.append((answer, self._issue(learner, arms, issued)))
        for learner, asks in together.items():
            arms = learner.choose(sum(count for count, _ in asks))
            decisions = iter(self._issue(learner, arms, issued))
            decided += [(answer, [next(decisions) for _ in range(n)]) for n, answer in asks]
        return decided

    def _issue(
        self, learner: Learner, arms: list[int], issued: dict[Place, int]
    ) -> list[tuple[int, str]]:
        number, minute, seal = learner.number, self.minute, self._seal.close
        expiry = minute + learner.experiment.lifetime
        decisions = []
        for sequence, arm in enumerate(arms, self._sequence):
            place = Place(number, arm, minute)
            issued[place] = issued.get(place, 0) + 1
            token = seal(Decision(number, arm, self.epoch, sequence, minute, expiry))
            decisions.append((arm, token))
        self._sequence += len(arms)
        return decisions

    def _answer(
        self,
        done: "asyncio.Future[Sequence[bool]]",
        batch: Batch,
        gathered: Gathered,
        decided: list[tuple[asyncio.Future[Any], list[tuple[int, str]]]],
        started: float,
    ) -> None:
        """Answer everybody whose request was in a batch, and count it."""
        self.tally.commit_seconds += time.perf_counter() - started
        waiting = [answer for answer, _ in decided]
        waiting += [answer for _, _, answer in gathered.reporters]
        for place, count in batch.issued.items():
            if learner := self._by_number.get(place.experiment):
                learner.in_flight[place.arm] -= count
        failure = done.exception()
        if failure is not None:
            self._fail(failure, waiting)
            return
        self._count(batch, done.result())
        for answer, decisions in decided:
            _settle(answer, decisions)
        for first, end, answer in gathered.reporters:
            _settle(answer, done.result()[first:end])

    def _fail(self, failure: BaseException, waiting: list[asyncio.Future[Any]]) -> None:
        self.tally.failed_commits += 1
        if self.is_available:
            self.is_available = False
            event("store_unavailable", reason=type(failure).__name__)
        refused = Refusal(
            "store_unavailable",
            "the store cannot be written now; nothing was changed, try again",
            retry_after=RETRY_AFTER,
        )
        for answer in waiting:
            if not answer.done():
                answer.set_exception(refused)

    def _count(self, batch: Batch, accepted: Sequence[bool]) -> None:
        self._recover()
        self.tally.commits += 1
        for place, count in batch.issued.items():
            self.tally.decisions += count
            if learner := self._by_number.get(place.experiment):
                learner.issued[place.arm] += count
        for (decision, bit), free in zip(batch.reports, accepted, strict=True):
            if free and (learner := self._by_number.get(decision.experiment)):
                learner.answered[decision.arm] += 1
                learner.ones[decision.arm] += bit

    def _recover(self) -> None:
        if not self.is_available:
            self.is_available = True
            event("store_available")

    async def write(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Let the writer do other work, after all that has been accepted so far."""
        self._commit()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)
        except Unavailable as failure:
            self._fail(failure, [])
            raise

    # Experiments -----------------------------------------------------------------------------

    def learner(self, slug: str) -> Learner:
        """Return the experiment of this id, or refuse the request."""
        try:
            return self.learners[slug]
        except KeyError:
            raise Refusal("unknown_experiment", "there is no experiment of this id", "id") from None

    def _take_secrets(self) -> None:
        secrets = self._secrets()
        if secrets != self._known_secrets:
            self._known_secrets, self._seal = secrets, Seal(secrets)

    async def refresh(self) -> None:
        """Read experiments, keys and secrets anew, if anybody has changed them."""
        self._take_secrets()
        async with self._refreshing:
            generation = await asyncio.to_thread(self.store.generation)
            if generation == self._generation:
                return
            saved, keys = await asyncio.to_thread(_read, self.store)
            for each in saved:
                await self._take(each)
            known = {each.slug for each in saved}
            for slug in self.learners.keys() - known:
                self.forget(slug)
            self.keyring.replace(keys)
            self._generation = generation

    async def _take(self, saved: Saved) -> None:
        learner = self.learners.get(saved.slug)
        if learner is None:
            totals = await asyncio.to_thread(self.store.totals, saved.number)
            learner = self.learners[saved.slug] = Learner(saved, totals)
            self._by_number[saved.number] = learner
            await self._close_expired(learner)
        elif learner.saved != saved:
            learner.define(saved)

    def forget(self, slug: str) -> None:
        """Drop an experiment from memory; its tokens are invalid from now on."""
        learner = self.learners.pop(slug)
        del self._by_number[learner.number]
        self._closed_before.pop(learner.number, None)

    async def delete(self, learner: Learner) -> None:
        """Delete an experiment; its tokens are refused first, then all its counts go."""
        self.forget(learner.slug)
        try:
            await self.write(self.store.delete, learner.number)
        finally:
            self._generation = None
            await self.refresh()

    async def roll_back(self, learner: Learner, start: int, stop: int) -> Mapping[int, Counts]:
        """Remove the counts of a span of minutes, and count anew from what is left."""
        before = learner.experiment.expired_before(self.minute)

        def work() -> tuple[Mapping[int, Counts], Mapping[int, Counts], Mapping[int, Counts]]:
            removed = self.store.roll_back(learner.number, start, stop)
            totals = self.store.totals
            return removed, totals(learner.number), totals(learner.number, before)

        removed, totals, closed = await self.write(work)
        learner.restart(totals, closed)
        self._closed_before[learner.number] = before
        return removed

    # Upkeep ----------------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """Do what time brings, for ever: look for changes, let tokens expire, join old minutes."""
        last_minute = last_hour = -1
        while not self.is_closing:
            try:
                await self.refresh()
                if not self.is_available:
                    await self.write(self.store.probe)
                    self._recover()
                if self.minute != last_minute:
                    last_minute = self.minute
                    await self._expire()
                if self.minute // 60 != last_hour:
                    last_hour = self.minute // 60
                    await self._join_old_minutes()
            except Unavailable:
                pass  # it has been logged, and is tried again
            await self.pause(1)

    async def _expire(self) -> None:
        for learner in tuple(self.learners.values()):
            await self._close_expired(learner)
        await self.write(self.store.forget_spent, self.minute)

    async def _close_expired(self, learner: Learner) -> None:
        """Count unanswered decisions as missing once their minute of issue has expired."""
        before = learner.experiment.expired_before(self.minute)
        since = self._closed_before.get(learner.number)
        if since is None:
            closed = await asyncio.to_thread(self.store.totals, learner.number, before)
        else:
            found = await asyncio.to_thread(self.store.history, learner.number, since, before)
            closed = {}
            for (_, arm), counts in found.items():
                closed[arm] = Counts(*map(sum, zip(closed.get(arm, Counts()), counts, strict=True)))
        learner.close(closed)
        self._closed_before[learner.number] = before

    async def _join_old_minutes(self) -> None:
        for learner in tuple(self.learners.values()):
            experiment = learner.experiment
            old = self.minute - experiment.retention // 60
            before = min(old, experiment.expired_before(self.minute))
            await self.write(self.store.fold, learner.number, before, DAY)

    async def close(self) -> None:
        """Commit all that was accepted, and give up the store."""
        self.end_streams()
        with suppress(Unavailable):
            await self.write(lambda: None)
        self._writer.shutdown()
        self.store.close()


def _settle(answer: asyncio.Future[Any], value: Any) -> None:
    """Answer whoever still waits: a client may have gone."""
    if not answer.done():
        answer.set_result(value)


def _read(store: Store) -> tuple[Sequence[Saved], Sequence[Key]]:
    return store.experiments(), store.keys()
