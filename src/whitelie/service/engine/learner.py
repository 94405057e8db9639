"""One experiment at work: its counts in memory, and the arms that it chooses from them."""

import math
import secrets
import time
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from whitelie.kernel.arms import Array, pack
from whitelie.kernel.block import thompson_block
from whitelie.kernel.choice import TS_RULE, State, decide, rule_of
from whitelie.service import wire
from whitelie.service.experiment import Experiment
from whitelie.service.refusal import Refusal
from whitelie.service.registry import definition_of
from whitelie.service.store import Counts, Saved
from whitelie.service.unanswered import Ages, Unanswered, likely_answers, unanswered

NOTHING = Counts()
COLUMNS = ("issued", "answered", "ones", "closed_issued", "closed_answered", "overdue", "in_flight")


class Learner:
    """Chooses arms of one experiment; committed counts are added to it.

    `closed_issued` and `closed_answered` are of decisions that have expired, `overdue` are those
    that were so when last looked at, and `likely_answers` are as many as may be expected to pending
    ones, judged by those that stopped pending lately. Decisions that are chosen but not yet
    committed are in flight. When a span has been rolled back, or the clock set back, it
    `must_restart` from what the store has. `is_asked` says that it has chosen
    since it last took the counts of all servers, at the moment `counted`. `last_report` is the
    minute of the latest report, if one came while this learner was at work.
    """

    issued: Array
    answered: Array
    ones: Array
    closed_issued: Array
    closed_answered: Array
    overdue: Array
    in_flight: Array
    experiment: Experiment

    def __init__(self, saved: Saved, totals: Mapping[int, Counts]) -> None:
        self.number = saved.number
        self.slug = saved.slug
        self._random = np.random.default_rng(secrets.randbits(128))
        self._key = np.uint64(secrets.randbits(64))
        self._decisions = 0
        self.last_report: int | None = None
        self.must_restart = False
        self.is_asked = False
        self.restarts = 0
        for name in COLUMNS:
            setattr(self, name, _zeros(0))
        self.define(saved)
        self.restart(totals)

    def define(self, saved: Saved) -> None:
        """Take a new definition: arms may have been added or retired, the status changed."""
        experiment = definition_of(saved)
        if self.restarts and experiment.rolled_back != self.experiment.rolled_back:
            self.must_restart = True
        self.saved, self.experiment = saved, experiment
        self._rule = rule_of(experiment.rule)
        self.shown = np.array([not arm.retired for arm in experiment.arms])
        self._arms = pack(experiment.rule, experiment.channels, self.shown)
        more = len(experiment.arms) - len(self.issued)
        for name in COLUMNS:
            setattr(self, name, np.append(getattr(self, name), _zeros(more)))
        self.answers = [_answer(experiment, position) for position in range(len(experiment.arms))]

    def restart(self, totals: Mapping[int, Counts]) -> None:
        """Set all counts to what the store has; none has expired yet."""
        self._set(totals)
        self.closed_issued[:] = self.closed_answered[:] = self.overdue[:] = 0
        self.closed_before = 0
        self.likely_answers = math.inf
        self.restarts += 1

    def set_back(self, minute: int) -> None:
        """Take note that it is an earlier minute than it seemed: less has expired."""
        self.must_restart = True
        if self.last_report is not None:
            self.last_report = min(self.last_report, minute)

    def count(self, totals: Mapping[int, Counts], minute: int) -> None:
        """Take the counts of all servers, as they are in a minute."""
        before = self.answered.sum()
        self._set(totals)
        if self.answered.sum() > before:
            self.last_report = minute

    def _set(self, totals: Mapping[int, Counts]) -> None:
        for arm in range(len(self.issued)):
            self.issued[arm], self.answered[arm], self.ones[arm] = totals.get(arm, NOTHING)
        self.is_asked = False
        self.counted = time.monotonic()

    def close(self, closed: Mapping[int, Counts], before: int) -> None:
        """Add decisions that have expired, which makes all that were issued before a minute."""
        self.closed_before = before
        for arm, counts in closed.items():
            self.closed_issued[arm] += counts.issued
            self.closed_answered[arm] += counts.answered
            self.overdue[arm] -= counts.issued - counts.answered

    def age(self, ages: Ages, issued: Array | None = None) -> None:
        """Take note of how old decisions are.

        `issued` are those before the ages were read, if there may be more by now. Until the next
        time, all that are issued after these are pending, and all answers are to pending ones.
        """
        missing = self.closed_issued - self.closed_answered
        self.overdue[:] = (self.issued if issued is None else issued) - self.answered - missing
        for arm, counts in ages.recent.items():
            self.overdue[arm] -= counts.issued - counts.answered
        np.maximum(self.overdue, 0, out=self.overdue)
        self.likely_answers = likely_answers(ages, self.experiment)

    @property
    def unanswered(self) -> Unanswered:
        """The decisions of each arm without a report."""
        return unanswered(
            issued=self.issued,
            answered=self.answered,
            closed_issued=self.closed_issued,
            closed_answered=self.closed_answered,
            overdue=self.overdue,
        )

    @property
    def expected(self) -> Array:
        """How many reports on each arm are likely to come: kl-UCB and UCB count them as pulls.

        Tokens that somebody collects and never answers teach nothing, and look like any that are
        pending. So all arms together are not credited with more than the likely answers, whatever
        is pending. An arm has its part of them by what is pending on it: one on which nobody can
        report must not seem ever new.
        """
        pending = self.unanswered.pending
        credited = min(self.likely_answers / max(pending.sum(), 1), 1.0)
        return np.asarray(np.ceil(credited * pending).astype(np.int64) + self.in_flight)

    def choose(self, count: int, available: Iterable[str] | None = None) -> list[int]:
        """Return the arms to show next; they are in flight until they are committed or dropped."""
        self.check_running()
        self.is_asked = True
        choosable = self._choosable(available)
        chosen = np.empty(count, dtype=np.int64)
        state = State(self.answered, self.ones, self.expected, choosable)
        if self._rule.code == TS_RULE:
            thompson_block(self._arms, state, self._key, self._decisions, chosen)
        else:
            decide(self._rule, self._arms, state, self._key, self._decisions, chosen)
        self._decisions += count
        if self.experiment.floor:
            self._raise_to_floor(chosen, np.flatnonzero(choosable))
        np.add.at(self.in_flight, chosen, 1)
        arms: list[int] = chosen.tolist()
        return arms

    def check_running(self) -> None:
        """Refuse to decide where the operator has paused or stopped the experiment."""
        status = self.experiment.status
        if status != "running":
            raise Refusal(f"experiment_{status}", f"this experiment is {status}", "id")

    def is_rolled_back(self, minute: int) -> bool:
        """Whether decisions of this minute no longer count."""
        return any(start <= minute < stop for start, stop in self.experiment.rolled_back)

    def minute_of_issue(self, now: int) -> int:
        """Return the minute of decisions that are issued now: the first that still counts.

        It is another than now only where the clock is behind that of a server which has rolled back
        the minute before its own.
        """
        while self.is_rolled_back(now):
            now += 1
        return now

    def _choosable(self, available: Iterable[str] | None) -> Array:
        if available is None:
            return self.shown
        wanted = np.zeros_like(self.shown)
        for index, key in enumerate(available):
            if key not in self.experiment.positions:
                raise Refusal("unknown_arm", f"there is no arm {key!r}", f"available[{index}]")
            wanted[self.experiment.positions[key]] = True
        choosable = np.asarray(wanted & self.shown)
        if not choosable.any():
            raise Refusal("unknown_arm", "all these arms are retired", "available")
        return choosable

    def _raise_to_floor(self, chosen: Array, places: Array) -> None:
        """Give every arm its least share: choose evenly with probability floor · arms."""
        evenly = self._random.random(len(chosen)) < self.experiment.floor * len(places)
        chosen[evenly] = self._random.choice(places, evenly.sum())


def _zeros(size: int) -> Array:
    return np.zeros(size, dtype=np.int64)


def _answer(experiment: Experiment, position: int) -> tuple[bytes, bytes]:
    """Return a decision as JSON, before and after its token."""
    arm = experiment.arms[position]
    mechanism = wire.Mechanism(arm.p00, arm.p11, experiment.window, experiment.spread)
    whole = msgspec.json.encode(
        wire.Decision(arm.key, arm.payload, "", mechanism, experiment.feedback_ttl)
    )
    rest = msgspec.json.encode(mechanism)
    end = b'","mechanism":' + rest + b',"expires_in":%d}' % experiment.feedback_ttl
    return whole.removesuffix(end), end
