"""The engine: counters in memory, one writer, and no answer before its commit.

Requests gather for a moment; then one transaction makes them durable together: decisions issued,
bits spent, counts. Only then are they answered and added to the counters from which arms are
chosen. If the transaction fails, every request of it is refused and nothing has happened; the
sequence numbers that it used are never used again. If definitions were changed meanwhile, the
requests are looked at again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from whitelie.service import registry, wire
from whitelie.service.clock import Clock, TrustedClock
from whitelie.service.learner import Learner
from whitelie.service.log import failure
from whitelie.service.refusal import FAULT, Refusal, unavailable
from whitelie.service.roster import Roster
from whitelie.service.round import Ask, Gathered, Issued, Reporter, Round, refuse, settle
from whitelie.service.store import Batch, Counts, Place, Report, Stale, Store, Unavailable
from whitelie.service.tally import Tally
from whitelie.service.token import Decision, Seal
from whitelie.service.unanswered import Ages, ages_of
from whitelie.service.wire import Outcome
from whitelie.service.writer import SILENT, STUCK, Answer, Writer

GATHER = 0.002
"""Seconds for which requests gather before they are committed."""

SOME = 50
"""Experiments whose counts are read between two commits."""

FAREWELL = 2.0
"""Seconds that the last commits have when the service ends."""

Totals = Mapping[int, Counts]


class Engine:
    """Decides and counts for all experiments of a store; `secrets` returns those of tokens."""

    def __init__(
        self,
        store: Store,
        secrets: Callable[[], Sequence[bytes]],
        *,
        clock: Clock | None = None,
        steady: Clock | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.store = store
        self.clock = clock if isinstance(clock, TrustedClock) else TrustedClock(clock, steady)
        self._times_set_back = self.clock.times_set_back
        self.writer = Writer(store)
        self.roster = Roster(store)
        self.tally = tally or Tally()
        self.epoch = store.new_epoch()
        self._sequence = 0
        self._secrets = secrets
        self._known_secrets = secrets()
        self._seal = Seal(self._known_secrets)
        self._gathered = Gathered()
        self._is_due = False
        self._going = 0
        self._minute = 0
        self._again: asyncio.Task[None] | None = None  # a loop alone would forget it
        self._closing = asyncio.Event()

    @property
    def minute(self) -> int:
        """The minute that it is now.

        It stands still while the clock goes back by seconds. Where the clock was set back and is
        followed, what has expired is counted anew.
        """
        minute = int(self.clock() // 60)
        if self._times_set_back != self.clock.times_set_back:
            self._times_set_back, self._minute = self.clock.times_set_back, minute
            for learner in self.roster:
                learner.set_back(minute)
        self._minute = max(self._minute, minute)
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
        with suppress(Refusal, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self.write(_nothing)
        self.store.close()
        self.writer.close()

    async def decide(
        self, learner: Learner, count: int, available: Sequence[str] | None = None
    ) -> Issued:
        """Return decisions, as arms and tokens, once they are committed.

        None is made at a time that the operator may have to correct: its token might expire early.
        """
        self.clock.check()
        answer: asyncio.Future[Issued] = asyncio.get_running_loop().create_future()
        self._gathered.asks.append(Ask(learner, count, available, answer))
        self._commit_soon()
        return await answer

    async def report(self, items: Iterable[wire.Report]) -> list[Outcome]:
        """Return what became of reports once they are committed."""
        minute, reports, is_news = self.minute, list[Report | None](), False
        for item in items:
            decision = self._seal.open(item.token)
            reports.append(None if decision is None else Report(decision, item.bit))
            is_news = is_news or (decision is not None and not self.roster.knows(decision))
        self._check_expiry(reports, minute)
        if is_news:  # another server may have decided what this one has not heard of
            await self.roster.refresh_or_refuse()
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._gathered.reporters.append(Reporter(reports, minute, answer))
        self._commit_soon()
        outcomes = await answer
        for outcome in outcomes:
            self.tally.add(outcome)
        return outcomes

    def _check_expiry(self, reports: Iterable[Report | None], minute: int) -> None:
        """Refuse for now what may or may not have expired, while the clock is not trusted.

        Whoever reports keeps it and tries again. A report with time left by the wall clock alone
        must not be thrown away. One with time left by the steady clock alone counts, unless there
        are other servers: they may have forgotten that it was answered.
        """
        wall = int(self.clock.wall() // 60)
        for report in reports:
            if report is None:
                continue
            expiry = report.decision.expiry
            if minute > expiry >= wall or (self.store.is_shared and wall > expiry >= minute):
                self.clock.check()

    def _judge(self, going: Round) -> None:
        """Say of every report what becomes of it if its decision is unanswered."""
        for reporter in going.gathered.reporters:
            outcomes = [self._outcome(report, reporter.minute) for report in reporter.reports]
            going.judged.append(outcomes)
            going.batch.reports += [
                report
                for report, outcome in zip(reporter.reports, outcomes, strict=True)
                if report is not None and outcome == "accepted"
            ]

    def _outcome(self, report: Report | None, minute: int) -> Outcome:
        if report is None or not self.roster.knows(decision := report.decision):
            return "invalid"
        learner = self.roster.numbered(decision.experiment)
        assert learner is not None
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
        if not gathered:
            return
        known = self.roster
        batch = Batch(generation=known.generation, minute=self.minute, steps=known.steps)
        going = Round(batch, gathered)
        try:
            self._judge(going)
            self._choose_for_all(going)
            if not (going.batch.issued or going.batch.reports):
                self._answer(going, [])
                return
            committing = self.writer.begin(self.store.commit, going.batch)
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._give_up(going, FAULT)
        else:
            self._going += 1
            self._watch(going, STUCK)
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
            self.roster.check(learner)
            arms = learner.choose(sum(ask.wanted for ask in asks), asks[0].available)
        except Refusal as refused:
            for ask in asks:
                refuse(ask.answer, refused)
            return
        issued = iter(self._issue(learner, arms, going.batch.issued))
        for ask in asks:
            going.decided.append((ask.answer, [next(issued) for _ in range(ask.wanted)]))

    def _issue(self, learner: Learner, arms: list[int], issued: dict[Place, int]) -> Issued:
        number, seal = learner.number, self._seal.close
        minute = learner.minute_of_issue(self.minute)
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
        elapsed = time.perf_counter() - going.started
        self.tally.add("commit_seconds", elapsed)
        error = done.exception()
        if isinstance(error, Stale):
            self._land(going)
            self._again = asyncio.ensure_future(self._look_again(going))
            return
        self._end(going)
        try:
            if isinstance(error, Unavailable):
                self._give_up(going, unavailable())
            else:
                self.tally.add("commits")
                self._answer(going, done.result())
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._give_up(going, FAULT)
        if self._gathered:
            self._commit_soon(max(0.0, GATHER - elapsed))

    async def _look_again(self, going: Round) -> None:
        """Send requests again once what was changed meanwhile is known."""
        try:
            async with asyncio.timeout(STUCK):
                await self.roster.refresh()
        except (Unavailable, TimeoutError) as error:
            self.writer.miss(str(error) or SILENT)
            going.gathered.refuse(unavailable())
        except Exception as error:  # nobody may be left waiting
            failure(error)
            going.gathered.refuse(FAULT)
        else:
            self._gathered.take_back(going.gathered)
        self._end(going)
        self._commit_soon()

    def _end(self, going: Round) -> None:
        self._going -= 1
        if going.watch is not None:
            going.watch.cancel()

    def _watch(self, going: Round, seconds: float) -> None:
        """Refuse those who wait behind a commit, if it does not end for so long."""
        loop = asyncio.get_running_loop()
        going.watch = loop.call_later(seconds, self._refuse_waiting, going)

    def _refuse_waiting(self, going: Round) -> None:
        gathered, self._gathered = self._gathered, Gathered()
        gathered.refuse(unavailable())
        self._watch(going, GATHER)

    def _answer(self, going: Round, free: Sequence[bool]) -> None:
        """Count what was committed, and tell those who asked for it."""
        self._land(going)
        self._count(going.batch, free)
        for answer, decisions in going.decided:
            settle(answer, decisions)
        unanswered = iter(free)
        for reporter, judged in zip(going.gathered.reporters, going.judged, strict=True):
            outcomes: list[Outcome] = [
                "duplicate" if outcome == "accepted" and not next(unanswered) else outcome
                for outcome in judged
            ]
            settle(reporter.answer, outcomes)

    def _give_up(self, going: Round, refused: Refusal) -> None:
        """Refuse everybody whose request was in a commit that was not done."""
        self.tally.add("failed_commits")
        self._land(going)
        going.gathered.refuse(refused)

    def _land(self, going: Round) -> None:
        """Take note that decisions are no longer in flight."""
        if going.has_landed:
            return
        going.has_landed = True
        for place, count in going.batch.issued.items():
            if learner := self.roster.numbered(place.experiment):
                learner.in_flight[place.arm] -= count

    def _count(self, batch: Batch, accepted: Sequence[bool]) -> None:
        for place, count in batch.issued.items():
            self.tally.add("decisions", count)
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
        """Delete an experiment; what was asked of it meanwhile is refused."""
        await self.write(self.store.delete, learner.number)
        await self.roster.refresh_if_possible()

    async def roll_back(self, learner: Learner, start: int, stop: int) -> Totals:
        """Remove the counts of a span of minutes; its tokens are refused from now on."""
        changed = learner.experiment.rolled_back_too(start, stop)
        arguments = self.store, learner.saved, changed, (start, stop), self.minute
        removed = await self.write(registry.roll_back, *arguments)
        with suppress(Unavailable):  # then upkeep does it later
            await self.roster.refresh()
            if learner.must_restart:
                await self.restart(learner)
        return removed

    async def recount(self, learners: Sequence[Learner]) -> float:
        """Take the counts of all servers from the store; return how many seconds that took.

        The writer reads them, so that they have all that was committed here before, and what comes
        after is added to them. Commits may come between some and others.
        """
        taken = 0.0
        for start in range(0, len(learners), SOME):
            some = learners[start : start + SOME]
            try:
                async with asyncio.timeout(STUCK):
                    found, seconds = await self.writer.begin(self._totals, some)
            except TimeoutError:
                raise Unavailable(SILENT) from None
            taken += seconds
            for learner, totals in zip(some, found, strict=True):
                learner.count(totals, self.minute)
        return taken

    def _totals(self, learners: Sequence[Learner]) -> tuple[list[Totals], float]:
        started = time.perf_counter()
        totals = [self.store.totals(learner.number) for learner in learners]
        return totals, time.perf_counter() - started

    async def restart(self, learner: Learner) -> None:
        """Take all counts from the store anew after a rollback, or after the clock was set back."""
        number, experiment, minute = learner.number, learner.experiment, self.minute
        before = experiment.expired_before(minute)

        def read() -> tuple[Totals, Totals, Ages]:
            totals, closed = self.store.totals(number), self.store.totals(number, before)
            # Last: what others issue meanwhile is then not taken for overdue.
            return totals, closed, ages_of(self.store, number, experiment, minute)

        learner.must_restart = False  # unless another span is rolled back from now on
        try:
            totals, closed, ages = await self.writer.begin(read)
        except BaseException:
            learner.must_restart = True
            raise
        learner.restart(totals)
        learner.close(closed, before)
        learner.age(ages)


def _nothing() -> None:
    """Work that is done when all before it is done."""
