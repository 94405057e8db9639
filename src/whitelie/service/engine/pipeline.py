"""The commit pipeline: from a request to its answer, which never comes before its commit.

Requests wait in a queue for two milliseconds; then one transaction makes all of them durable:
decisions issued, bits spent, counts. Only after it are they answered, and added to the counts from
which arms are chosen. If the transaction fails, every request of it is refused and nothing has
happened; the sequence numbers that it used are never used again.

Definitions are under optimistic concurrency: nobody locks them. A batch names the *generation* of
definitions that it was made under, and the store refuses it as `Stale` if anybody has changed
definitions since. The pipeline then reads them anew and puts the requests back into the queue.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from whitelie.service import wire
from whitelie.service.engine.clock import TrustedClock
from whitelie.service.engine.directory import ExperimentDirectory
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.requests import (
    Commit,
    DecisionRequest,
    FeedbackRequest,
    Issued,
    RequestQueue,
    refuse,
    resolve,
)
from whitelie.service.engine.shared_counters import SharedCounters
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.engine.writer import WRITE_TIMED_OUT, WRITE_TIMEOUT_SECONDS, Answer, Writer
from whitelie.service.log import failure
from whitelie.service.refusals import INTERNAL_ERROR, Refusal, unavailable
from whitelie.service.store.contract import (
    Batch,
    Cell,
    Decision,
    ReportedBit,
    Stale,
    Store,
    Unavailable,
)
from whitelie.service.wire import Outcome

BATCH_DELAY_SECONDS = 0.002
"""How long requests wait for others that share their commit."""


class CommitPipeline:
    """Decides and takes reports for all experiments of a store, one commit at a time."""

    def __init__(
        self,
        store: Store,
        clock: TrustedClock,
        writer: Writer,
        directory: ExperimentDirectory,
        cipher: TokenCipher,
        counters: SharedCounters,
    ) -> None:
        self.epoch = store.new_epoch()
        self._sequence = 0
        self._store = store
        self._clock = clock
        self._writer = writer
        self._directory = directory
        self._cipher = cipher
        self._counters = counters
        self._queue = RequestQueue()
        self._is_scheduled = False
        self._unfinished = 0
        self._retrying: asyncio.Task[None] | None = None  # a loop alone would forget the task

    async def decide(
        self, learner: Learner, count: int, available: Sequence[str] | None = None
    ) -> Issued:
        """Return decisions, as arms and tokens, once they are committed.

        None is made at a time that the operator may have to correct: its token might expire early.
        """
        self._clock.check()
        answer: asyncio.Future[Issued] = asyncio.get_running_loop().create_future()
        self._queue.decisions.append(DecisionRequest(learner, count, available, answer))
        self._schedule()
        return await answer

    async def report(self, items: Iterable[wire.Report]) -> list[Outcome]:
        """Return what became of reports once they are committed."""
        minute, reports, is_news = self._clock.minute, list[ReportedBit | None](), False
        for item in items:
            decision = self._cipher.open(item.token)
            reports.append(None if decision is None else ReportedBit(decision, item.bit))
            is_news = is_news or (decision is not None and not self._directory.knows(decision))
        if self._clock.has_jumped:
            self._check_expiry(reports, minute)
        if is_news:  # another server may have decided what this one has not heard of
            await self._directory.refresh_or_refuse()
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._queue.feedback.append(FeedbackRequest(reports, minute, answer))
        self._schedule()
        outcomes = await answer
        for outcome in outcomes:
            self._counters.add(outcome)
        return outcomes

    async def write(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Let the writer do other work, after all requests that have come so far."""
        self._commit()
        try:
            return await self._writer.begin(work, *arguments)
        except Unavailable:
            raise unavailable() from None

    def _check_expiry(self, reports: Iterable[ReportedBit | None], minute: int) -> None:
        """Refuse for now reports that may or may not have expired: the clock is not trusted.

        Their sender keeps them and tries again. A report that has time left by the wall clock alone
        must not be thrown away. One that has time left by the steady clock alone counts, unless
        there are other servers: they may have forgotten that its decision was answered.
        """
        wall = int(self._clock.wall() // 60)
        for report in reports:
            if report is None:
                continue
            expiry = report.decision.expiry
            if minute > expiry >= wall or (self._store.is_shared and wall > expiry >= minute):
                self._clock.check()

    def _schedule(self, seconds: float = BATCH_DELAY_SECONDS) -> None:
        """Commit after a delay, unless a commit is scheduled or unfinished."""
        if not self._is_scheduled and not self._unfinished:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(seconds, self._commit)

    def _commit(self) -> None:
        """Choose arms for all requests in the queue, and send their batch to the writer."""
        self._is_scheduled = False
        requests, self._queue = self._queue, RequestQueue()
        if not requests:
            return
        known = self._directory
        batch = Batch(generation=known.generation, minute=self._clock.minute, steps=known.steps)
        commit = Commit(batch, requests)
        try:
            self._judge_reports(commit)
            self._choose_arms(commit)
            if not (batch.issued or batch.reports):
                self._answer(commit, [])
                return
            committing = self._writer.begin(self._store.commit, batch)
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._refuse(commit, INTERNAL_ERROR)
        else:
            self._unfinished += 1
            self._start_timeout(commit, WRITE_TIMEOUT_SECONDS)
            committing.add_done_callback(lambda done: self._finish(commit, done))

    def _judge_reports(self, commit: Commit) -> None:
        """Say of every report what becomes of it if its decision is unanswered."""
        for request in commit.requests.feedback:
            outcomes = [self._outcome(report, request.minute) for report in request.reports]
            commit.outcomes.append(outcomes)
            commit.batch.reports += [
                report
                for report, outcome in zip(request.reports, outcomes, strict=True)
                if report is not None and outcome == "accepted"
            ]

    def _outcome(self, report: ReportedBit | None, minute: int) -> Outcome:
        if report is None or not self._directory.knows(decision := report.decision):
            return "invalid"
        learner = self._directory.numbered(decision.experiment)
        assert learner is not None
        if minute > decision.expiry or learner.is_rolled_back(decision.minute):
            return "expired"
        return "accepted"

    def _choose_arms(self, commit: Commit) -> None:
        """Choose arms for every request: for all that name no arms at once, by experiment."""
        together: dict[Learner, list[DecisionRequest]] = {}
        for request in commit.requests.decisions:
            if request.available is None:
                together.setdefault(request.learner, []).append(request)
            else:
                self._choose(commit, [request])
        for requests in together.values():
            self._choose(commit, requests)

    def _choose(self, commit: Commit, requests: Sequence[DecisionRequest]) -> None:
        """Choose arms for requests of the same experiment and arms, and seal tokens."""
        learner = requests[0].learner
        try:
            self._directory.check(learner)
            wanted = sum(request.wanted for request in requests)
            arms = learner.choose(wanted, requests[0].available)
        except Refusal as refused:
            for request in requests:
                refuse(request.answer, refused)
            return
        issued = iter(self._issue(learner, arms, commit.batch.issued))
        for request in requests:
            commit.decided.append((request.answer, [next(issued) for _ in range(request.wanted)]))

    def _issue(self, learner: Learner, arms: list[int], issued: dict[Cell, int]) -> Issued:
        number, seal = learner.number, self._cipher.seal
        minute = learner.minute_of_issue(self._clock.minute)
        expiry = minute + learner.experiment.lifetime
        for arm, count in Counter(arms).items():
            place = Cell(number, arm, minute)
            issued[place] = issued.get(place, 0) + count
        first, self._sequence = self._sequence, self._sequence + len(arms)
        return [
            (arm, seal(Decision(number, arm, self.epoch, sequence, minute, expiry)))
            for sequence, arm in enumerate(arms, first)
        ]

    def _finish(self, commit: Commit, done: "asyncio.Future[Sequence[bool]]") -> None:
        """Answer all requests of a commit, and schedule the next."""
        elapsed = time.perf_counter() - commit.started
        self._counters.add("commit_seconds", elapsed)
        error = done.exception()
        if isinstance(error, Stale):
            self._release(commit)
            self._retrying = asyncio.ensure_future(self._retry(commit))
            return
        self._end(commit)
        try:
            if isinstance(error, Unavailable):
                self._refuse(commit, unavailable())
            else:
                self._counters.add("commits")
                self._answer(commit, done.result())
        except Exception as error:  # nobody may be left waiting
            failure(error)
            self._refuse(commit, INTERNAL_ERROR)
        if self._queue:
            self._schedule(max(0.0, BATCH_DELAY_SECONDS - elapsed))

    async def _retry(self, commit: Commit) -> None:
        """Read definitions anew, and put the requests of a stale batch back into the queue."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await self._directory.refresh()
        except (Unavailable, TimeoutError) as error:
            self._writer.note_failure(str(error) or WRITE_TIMED_OUT)
            commit.requests.refuse(unavailable())
        except Exception as error:  # nobody may be left waiting
            failure(error)
            commit.requests.refuse(INTERNAL_ERROR)
        else:
            self._queue.put_back(commit.requests)
        self._end(commit)
        self._schedule()

    def _end(self, commit: Commit) -> None:
        self._unfinished -= 1
        if commit.timeout is not None:
            commit.timeout.cancel()

    def _start_timeout(self, commit: Commit, seconds: float) -> None:
        """Refuse the requests that wait behind a commit, once it has taken so long."""
        loop = asyncio.get_running_loop()
        commit.timeout = loop.call_later(seconds, self._refuse_queue, commit)

    def _refuse_queue(self, commit: Commit) -> None:
        requests, self._queue = self._queue, RequestQueue()
        requests.refuse(unavailable())
        self._start_timeout(commit, BATCH_DELAY_SECONDS)

    def _answer(self, commit: Commit, free: Sequence[bool]) -> None:
        """Count what was committed, and answer its requests.

        `free` says for each report of the batch whether its decision was unanswered.
        """
        self._release(commit)
        self._count(commit.batch, free)
        for answer, decisions in commit.decided:
            resolve(answer, decisions)
        unanswered = iter(free)
        for request, judged in zip(commit.requests.feedback, commit.outcomes, strict=True):
            outcomes: list[Outcome] = [
                "duplicate" if outcome == "accepted" and not next(unanswered) else outcome
                for outcome in judged
            ]
            resolve(request.answer, outcomes)

    def _refuse(self, commit: Commit, refused: Refusal) -> None:
        """Refuse all requests of a commit that failed."""
        self._counters.add("failed_commits")
        self._release(commit)
        commit.requests.refuse(refused)

    def _release(self, commit: Commit) -> None:
        """Tell learners once that the decisions of a commit are no longer in flight."""
        if commit.is_released:
            return
        commit.is_released = True
        for place, count in commit.batch.issued.items():
            if learner := self._directory.numbered(place.experiment):
                learner.release(place.arm, count)

    def _count(self, batch: Batch, free: Sequence[bool]) -> None:
        """Add a batch that was committed to the counts in memory."""
        for place, count in batch.issued.items():
            self._counters.add("decisions", count)
            if learner := self._directory.numbered(place.experiment):
                learner.commit_issued(place.arm, count)
        answers = Counter(
            (report.decision.experiment, report.decision.arm, report.bit)
            for report, is_free in zip(batch.reports, free, strict=True)
            if is_free
        )
        for (experiment, arm, bit), count in answers.items():
            if learner := self._directory.numbered(experiment):
                learner.commit_answers(arm, count, bit * count, self._clock.minute)
