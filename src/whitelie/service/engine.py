"""The engine: counters in memory, one writer, and no answer before its commit.

Requests gather for a moment; then one transaction makes them durable together: decisions issued,
bits spent, counts. Only then are they answered and added to the counters from which arms are
chosen. If the transaction fails, every request of it is refused and nothing has happened; the
sequence numbers that it used are never used again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from whitelie.service import registry, wire
from whitelie.service.learner import Learner
from whitelie.service.log import failure
from whitelie.service.refusal import FAULT, Refusal
from whitelie.service.roster import Roster
from whitelie.service.store import Batch, Counts, Place, Report, Saved, Store, Unavailable
from whitelie.service.token import Decision, Seal
from whitelie.service.wire import Outcome
from whitelie.service.writer import Answer, Writer

GATHER = 0.002
"""Seconds for which requests gather before they are committed."""

Totals = Mapping[int, Counts]
Issued = list[tuple[int, str]]
"""Decisions of one request: arms and tokens."""


class Ask(NamedTuple):
    """A request for decisions."""

    learner: Learner
    wanted: int
    available: Sequence[str] | None
    answer: "asyncio.Future[Issued]"


class Reporter(NamedTuple):
    """A request with reports, which are those from `first` up to `end` of its batch."""

    first: int
    end: int
    answer: "asyncio.Future[Sequence[bool]]"


@dataclass
class Gathered:
    """Requests that wait for the next commit."""

    asks: list[Ask] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    reporters: list[Reporter] = field(default_factory=list)


@dataclass
class Round:
    """Requests on their way through one commit: what it writes, and whom it answers."""

    batch: Batch
    gathered: Gathered
    decided: list[tuple["asyncio.Future[Issued]", Issued]] = field(default_factory=list)
    in_flight: dict[Place, int] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)


@dataclass
class Tally:
    """What the engine has done since it started."""

    decisions: int = 0
    outcomes: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("accepted", "duplicate", "expired", "invalid"), 0)
    )
    commits: int = 0
    failed_commits: int = 0
    commit_seconds: float = 0.0


class Engine:
    """Decides and counts for all experiments of a store; `secrets` returns those of tokens."""

    def __init__(
        self,
        store: Store,
        secrets: Callable[[], Sequence[bytes]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.clock = clock
        self.writer = Writer(store)
        self.roster = Roster(store)
        self.tally = Tally()
        self.epoch = store.new_epoch()
        self._sequence = 0
        self._secrets = secrets
        self._known_secrets = secrets()
        self._seal = Seal(self._known_secrets)
        self._gathered = Gathered()
        self._is_due = False
        self._going = 0
        self._minute = 0
        self._closing = asyncio.Event()

    @property
    def minute(self) -> int:
        """The minute that it is now; if the clock is set back, time stands still for a while."""
        self._minute = max(self._minute, int(self.clock() // 60))
        return self._minute

    @property
    def is_closing(self) -> bool:
        """Whether the service is about to end."""
        return self._closing.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than the service lives."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    def end_pauses(self) -> None:
        """Let those who wait in `pause` go on: the service is about to end."""
        self._closing.set()

    def take_secrets(self) -> None:
        """Take note of secrets that were changed; those known stay if they cannot be read."""
        secrets = self._secrets()
        if secrets != self._known_secrets:
            self._known_secrets, self._seal = secrets, Seal(secrets)

    async def close(self) -> None:
        """Commit all that was accepted, and give up the store."""
        self.end_pauses()
        with suppress(Refusal):
            await self.write(_nothing)
        self.writer.close()
        self.store.close()

    async def decide(
        self, learner: Learner, count: int, available: Sequence[str] | None = None
    ) -> Issued:
        """Return decisions, as arms and tokens, once they are committed."""
        answer: asyncio.Future[Issued] = asyncio.get_running_loop().create_future()
        self._gathered.asks.append(Ask(learner, count, available, answer))
        self._commit_soon()
        return await answer

    async def report(self, items: Iterable[wire.Report]) -> list[Outcome]:
        """Return what became of reports once they are committed."""
        minute = self.minute
        outcomes: list[Outcome] = []
        first = len(self._gathered.reports)
        for item in items:
            decision = self._seal.open(item.token)
            outcome = self._outcome(decision, minute)
            outcomes.append(outcome)
            if decision is not None and outcome == "accepted":
                self._gathered.reports.append(Report(decision, item.bit))
        end = len(self._gathered.reports)
        if end > first:
            answer: asyncio.Future[Sequence[bool]] = asyncio.get_running_loop().create_future()
            self._gathered.reporters.append(Reporter(first, end, answer))
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
        if decision is None:
            return "invalid"
        learner = self.roster.numbered(decision.experiment)
        if learner is None or learner.is_leaving or decision.arm >= len(learner.issued):
            return "invalid"
        if minute > decision.expiry or learner.is_rolled_back(decision.minute):
            return "expired"
        return "accepted"

    def _commit_soon(self, seconds: float = GATHER) -> None:
        """Commit when requests have gathered for a moment, and the commit before is done."""
        if not self._is_due and not self._going:
            self._is_due = True
            asyncio.get_running_loop().call_later(seconds, self._commit)

    def _commit(self) -> None:
        """Choose arms for those who asked, and send what has gathered to the writer."""
        self._is_due = False
        gathered, self._gathered = self._gathered, Gathered()
        if not gathered.asks and not gathered.reports:
            return
        going = Round(Batch(reports=gathered.reports), gathered)
        try:
            self._choose_for_all(going)
            going.in_flight = dict(going.batch.issued)
            committing = self.writer.begin(self.store.commit, going.batch)
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._give_up(going, FAULT)
        else:
            self._going += 1
            committing.add_done_callback(lambda done: self._finish(going, done))

    def _choose_for_all(self, going: Round) -> None:
        together: dict[Learner, list[Ask]] = {}
        for ask in going.gathered.asks:
            if ask.available is None:
                together.setdefault(ask.learner, []).append(ask)
            else:
                self._choose(going, [ask])
        for asks in together.values():
            self._choose(going, asks)

    def _choose(self, going: Round, asks: Sequence[Ask]) -> None:
        """Choose arms for requests of the same experiment and arms, and seal tokens."""
        learner = asks[0].learner
        try:
            arms = learner.choose(sum(ask.wanted for ask in asks), asks[0].available)
        except Refusal as refused:
            for ask in asks:
                _refuse(ask.answer, refused)
            return
        issued = iter(self._issue(learner, arms, going.batch.issued))
        for ask in asks:
            going.decided.append((ask.answer, [next(issued) for _ in range(ask.wanted)]))

    def _issue(self, learner: Learner, arms: list[int], issued: dict[Place, int]) -> Issued:
        number, minute, seal = learner.number, self.minute, self._seal.close
        expiry = minute + learner.experiment.lifetime
        for arm, count in Counter(arms).items():
            place = Place(number, arm, minute)
            issued[place] = issued.get(place, 0) + count
        first, self._sequence = self._sequence, self._sequence + len(arms)
        return [
            (arm, seal(Decision(number, arm, self.epoch, sequence, minute, expiry)))
            for sequence, arm in enumerate(arms, first)
        ]

    def _finish(self, going: Round, done: "asyncio.Future[Sequence[bool]]") -> None:
        """Answer everybody whose request was in a commit, and begin the next."""
        self._going -= 1
        elapsed = time.perf_counter() - going.started
        self.tally.commit_seconds += elapsed
        try:
            if isinstance(done.exception(), Unavailable):
                self._give_up(going, unavailable())
            else:
                self._answer(going, done.result())
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._give_up(going, FAULT)
        if self._gathered.asks or self._gathered.reports:
            self._commit_soon(max(0.0, GATHER - elapsed))

    def _answer(self, going: Round, free: Sequence[bool]) -> None:
        """Count what was committed, and tell those who asked for it."""
        self._land(going)
        self._count(going.batch, free)
        for answer, decisions in going.decided:
            _settle(answer, decisions)
        for reporter in going.gathered.reporters:
            _settle(reporter.answer, free[reporter.first : reporter.end])

    def _give_up(self, going: Round, refused: Refusal) -> None:
        """Refuse everybody whose request was in a commit that was not done."""
        self.tally.failed_commits += 1
        self._land(going)
        for ask in going.gathered.asks:
            _refuse(ask.answer, refused)
        for reporter in going.gathered.reporters:
            _refuse(reporter.answer, refused)

    def _land(self, going: Round) -> None:
        """Take note that decisions are no longer in flight."""
        in_flight, going.in_flight = going.in_flight, {}
        for place, count in in_flight.items():
            if learner := self.roster.numbered(place.experiment):
                learner.in_flight[place.arm] -= count

    def _count(self, batch: Batch, accepted: Sequence[bool]) -> None:
        self.tally.commits += 1
        for place, count in batch.issued.items():
            self.tally.decisions += count
            if learner := self.roster.numbered(place.experiment):
                learner.issued[place.arm] += count
        answers = Counter(
            (report.decision.experiment, report.decision.arm, report.bit)
            for report, free in zip(batch.reports, accepted, strict=True)
            if free
        )
        for (experiment, arm, bit), count in answers.items():
            if learner := self.roster.numbered(experiment):
                learner.answered[arm] += count
                learner.ones[arm] += bit * count
                learner.last_report = self.minute

    async def write(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Let the writer do other work, after all that has been accepted so far."""
        self._commit()
        try:
            return await self.writer.begin(work, *arguments)
        except Unavailable:
            raise unavailable() from None

    async def delete(self, learner: Learner) -> None:
        """Delete an experiment; nothing is asked of it or counted meanwhile."""
        learner.is_leaving = True
        try:
            await self.write(self.store.delete, learner.number)
        except BaseException:
            learner.is_leaving = False
            raise
        await self.roster.refresh_if_possible()

    async def roll_back(self, learner: Learner, start: int, stop: int) -> Totals:
        """Remove the counts of a span of minutes; its tokens are refused from now on."""
        number, before = learner.number, learner.experiment.expired_before(self.minute)
        changed = learner.experiment.rolled_back_too(start, stop)
        learner.leaving_span = start, stop

        def work() -> tuple[Saved, Totals, Totals, Totals]:
            saved, removed = registry.roll_back(self.store, learner.saved, changed, (start, stop))
            return saved, removed, self.store.totals(number), self.store.totals(number, before)

        try:
            saved, removed, totals, closed = await self.write(work)
            learner.restart(totals)
            learner.close(closed, before)
            await self.roster.take(saved)
        finally:
            learner.leaving_span = 0, 0
        return removed


def unavailable() -> Refusal:
    """Return the refusal while the store cannot be written."""
    message = "the store cannot be written now; nothing was changed, try again"
    return Refusal("store_unavailable", message, retry_after=2)


def _nothing() -> None:
    """Work that is done when all before it is done."""


def _settle(answer: "asyncio.Future[Any]", value: Any) -> None:
    """Answer whoever still waits: a client may have gone."""
    if not answer.done():
        answer.set_result(value)


def _refuse(answer: "asyncio.Future[Any]", refused: Refusal) -> None:
    if not answer.done():
        answer.set_exception(refused)
