"""A running experiment: its counts in memory, and the arms that it chooses from them."""

import math
import secrets
import time
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from whitelie.chooser import Chooser
from whitelie.kernel.arms import Array
from whitelie.kernel.state import State
from whitelie.service import wire
from whitelie.service.experiment.changes import definition_of
from whitelie.service.experiment.definition import Arm, Experiment
from whitelie.service.experiment.snapshot import Snapshot
from whitelie.service.experiment.unanswered import (
    Ages,
    StoredCounts,
    Unanswered,
    likely_answers,
    unanswered,
)
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Counts, StoredExperiment

Answer = tuple[bytes, bytes]
"""A decision as JSON, before and after its token."""

NOTHING = Counts()
COLUMNS = (
    "issued",
    "answered",
    "ones",
    "expired_issued",
    "expired_answered",
    "overdue",
    "in_flight",
)


class Learner:
    """Chooses the arms of one experiment, from counts that it alone changes.

    Others read the counts, which are arrays by arm, and tell it what happened. `expired_issued` and
    `expired_answered` count decisions whose tokens have expired, `overdue` those that were overdue
    when maintenance last looked, `in_flight` those that are chosen and not yet committed.
    `likely_answers` are as many as pending decisions may have, judged by those that stopped pending
    lately. `must_restart` says that the counts must be taken from the store anew: a span was rolled
    back, or the clock was set back. `is_asked` says that it has chosen since it last took the
    counts of all servers, which was at `recounted`. `last_report` is the minute of the latest
    report, if one came while this learner was at work.
    """

    issued: Array
    answered: Array
    ones: Array
    expired_issued: Array
    expired_answered: Array
    overdue: Array
    in_flight: Array
    experiment: Experiment

    def __init__(self, saved: StoredExperiment, totals: Mapping[int, Counts]) -> None:
        self.number = saved.number
        self.slug = saved.slug
        self._random = np.random.default_rng(secrets.randbits(128))
        self._chooser = Chooser(secrets.randbits(64))
        self.last_report: int | None = None
        self.must_restart = False
        self.is_asked = False
        self.restarts = 0
        self._reports_at_look: int | None = None
        for name in COLUMNS:
            setattr(self, name, _zeros(0))
        self.define(saved)
        self.restart(totals)

    def define(self, saved: StoredExperiment) -> None:
        """Take a new definition: arms may have been added or retired, the status changed."""
        experiment = definition_of(saved)
        if self.restarts and experiment.rolled_back != self.experiment.rolled_back:
            self.must_restart = True
        if not hasattr(self, "experiment") or experiment.arms != self.experiment.arms:
            self.require_look()
        self.saved, self.experiment = saved, experiment
        self.shown = np.array([not arm.retired for arm in experiment.arms])
        self._chooser.define(experiment.policy, experiment.channels, self.shown)
        more = len(experiment.arms) - len(self.issued)
        for name in COLUMNS:
            setattr(self, name, np.append(getattr(self, name), _zeros(more)))
        self.answers = [_answer(experiment, position) for position in range(len(experiment.arms))]
        self.shipped_answers = [_shipped_answer(arm) for arm in experiment.arms]

    def commit_issued(self, arm: int, count: int) -> None:
        """Count decisions that were committed."""
        self.issued[arm] += count

    def release(self, arm: int, count: int) -> None:
        """Note that decisions are no longer in flight: their commit is done, or has failed."""
        self.in_flight[arm] -= count

    def commit_answers(self, arm: int, count: int, ones: int, minute: int) -> None:
        """Count reports that were committed in a minute, and how many of them were 1."""
        self.answered[arm] += count
        self.ones[arm] += ones
        self.last_report = minute

    def recount(self, totals: Mapping[int, Counts], minute: int) -> None:
        """Take the counts of all servers, as they are in a minute."""
        before = self.answered.sum()
        self._set(totals)
        if self.answered.sum() > before:
            self.last_report = minute

    def restart(self, totals: Mapping[int, Counts]) -> None:
        """Set all counts to what the store has; none has expired yet."""
        self._set(totals)
        self.expired_issued[:] = self.expired_answered[:] = self.overdue[:] = 0
        self.expired_before = 0
        self.likely_answers = math.inf
        self.restarts += 1
        self.require_look()

    def restart_from(self, counts: StoredCounts) -> None:
        """Set all counts to what the store has, and what of them is overdue or has expired."""
        self.restart(counts.totals)
        self.expire(counts.expired, counts.expired_before)
        self.age(counts.ages)

    def begin_restart(self) -> None:
        """Note that counts are read now; a rollback from now on requires another restart."""
        self.must_restart = False

    def require_restart(self) -> None:
        """Note that the counts must be taken from the store anew."""
        self.must_restart = True

    def set_clock_back(self, minute: int) -> None:
        """Note that it is an earlier minute than it seemed: less has expired."""
        self.require_restart()
        if self.last_report is not None:
            self.last_report = min(self.last_report, minute)

    def is_look_due(self, least: int) -> bool:
        """Whether so many reports came since the last look at evidence, or a look is required."""
        looked = self._reports_at_look
        return looked is None or int(self.answered.sum()) >= looked + least

    def note_look(self) -> None:
        """Note that evidence is looked at now."""
        self._reports_at_look = int(self.answered.sum())

    def require_look(self) -> None:
        """Note that evidence must be looked at anew, whether reports come or not."""
        self._reports_at_look = None

    def _set(self, totals: Mapping[int, Counts]) -> None:
        for arm in range(len(self.issued)):
            self.issued[arm], self.answered[arm], self.ones[arm] = totals.get(arm, NOTHING)
        self.is_asked = False
        self.recounted = time.monotonic()

    def expire(self, expired: Mapping[int, Counts], before: int) -> None:
        """Add expired decisions, so that all issued before the minute `before` are counted."""
        self.expired_before = before
        for arm, counts in expired.items():
            self.expired_issued[arm] += counts.issued
            self.expired_answered[arm] += counts.answered
            self.overdue[arm] -= counts.issued - counts.answered

    def age(self, ages: Ages, issued: Array | None = None) -> None:
        """Note how old decisions are.

        `issued` are the decisions before the ages were read, if there may be more by now. Until the
        next time, all later decisions are pending, and all answers are to pending ones.
        """
        issued = self.issued if issued is None else issued
        self.overdue[:] = issued - self.answered - self.unanswered.missing
        for arm, counts in ages.recent.items():
            self.overdue[arm] -= counts.issued - counts.answered
        np.maximum(self.overdue, 0, out=self.overdue)
        self.likely_answers = likely_answers(ages, self.experiment)

    def snapshot(self, recent: Mapping[int, Counts]) -> Snapshot:
        """Return a copy of all counts, beside those of `recent` decisions."""
        lately = [recent.get(arm, NOTHING).issued for arm in range(len(self.issued))]
        return Snapshot(
            slug=self.slug,
            name=self.experiment.name,
            status=self.experiment.status,
            keys=tuple(self.experiment.positions),
            channels=self.experiment.channels,
            retired=~self.shown,
            issued=self.issued.copy(),
            answered=self.answered.copy(),
            ones=self.ones.copy(),
            expired_issued=self.expired_issued.copy(),
            expired_answered=self.expired_answered.copy(),
            overdue=self.overdue.copy(),
            recent=np.array(lately),
            last_report=self.last_report,
            certificate=self.experiment.certificate,
            beginning=self.experiment.beginning,
            created=self.experiment.created,
            begun_anew=self.experiment.evidence_begins,
            certified=self.experiment.certified,
            shipped=self.experiment.shipped_view,
        )

    @property
    def unanswered(self) -> Unanswered:
        """The decisions of each arm without a report."""
        return unanswered(
            issued=self.issued,
            answered=self.answered,
            expired_issued=self.expired_issued,
            expired_answered=self.expired_answered,
            overdue=self.overdue,
        )

    @property
    def expected(self) -> Array:
        """How many reports on each arm are likely to come: kl-UCB and UCB count them as pulls.

        Tokens that somebody collects and never answers look like pending ones, and nothing is
        learned from them. So all arms together are credited with no more than the likely answers,
        however many decisions are pending. Each arm gets a part in proportion to its pending
        decisions: an arm on which nobody can report must not seem new for ever.
        """
        pending = self.unanswered.pending
        credited = min(self.likely_answers / max(pending.sum(), 1), 1.0)
        return np.asarray(np.ceil(credited * pending).astype(np.int64) + self.in_flight)

    def choose(self, count: int, available: Iterable[str] | None = None) -> list[int]:
        """Return the arms to show next; they are in flight until they are released."""
        self.check_running()
        self.is_asked = True
        choosable = self._choosable(available)
        state = State(self.answered, self.ones, self.expected, choosable)
        chosen = self._chooser.choose(state, count)
        if self.experiment.floor:
            self._raise_to_floor(chosen, np.flatnonzero(choosable))
        np.add.at(self.in_flight, chosen, 1)
        arms: list[int] = chosen.tolist()
        return arms

    def check_running(self) -> None:
        """Refuse to choose while the experiment is paused, stopped or shipped."""
        status = self.experiment.status
        if status != "running":
            raise Refusal(f"experiment_{status}", f"this experiment is {status}", "id")

    def answer_shipped(self, available: Iterable[str] | None) -> Answer | None:
        """Return the decision for the shipped arm, or None if no arm is shipped.

        It is refused where that arm is not available.
        """
        shipped = self.experiment.shipped
        if shipped is None:
            return None
        position = self.experiment.positions[shipped.arm]
        if not self._choosable(available)[position]:
            raise Refusal(
                "unknown_arm",
                "the shipped arm is not among these: leave this out, or include it",
                "available",
            )
        return self.shipped_answers[position]

    def is_rolled_back(self, minute: int) -> bool:
        """Whether decisions of this minute no longer count."""
        return any(start <= minute < stop for start, stop in self.experiment.rolled_back)

    def minute_of_issue(self, now: int) -> int:
        """Return the minute that decisions issued now belong to: the first that is not rolled back.

        It is later than now only if this clock is behind that of a server which has rolled back the
        minute before its own.
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
            raise Refusal(
                "unknown_arm", "all these arms are retired: give one that is not", "available"
            )
        return choosable

    def _raise_to_floor(self, chosen: Array, places: Array) -> None:
        """Give every arm its least share: choose evenly with probability floor · arms."""
        evenly = self._random.random(len(chosen)) < self.experiment.floor * len(places)
        chosen[evenly] = self._random.choice(places, evenly.sum())


def _zeros(size: int) -> Array:
    return np.zeros(size, dtype=np.int64)


def _answer(experiment: Experiment, position: int) -> Answer:
    arm = experiment.arms[position]
    mechanism = wire.Mechanism(arm.p00, arm.p11, experiment.window, experiment.spread)
    return _around_token(
        wire.Decision(arm.key, arm.payload, "", mechanism, experiment.feedback_ttl)
    )


def _shipped_answer(arm: Arm) -> Answer:
    """Return a decision on which nobody is to report.

    Clients take no decision without a token, and none without a coin. So it has a token that is
    good for nothing, a coin that says nothing of the reward, and no time in which to report.
    """
    mechanism = wire.Mechanism(0.5, 0.5, 0, 0)
    return _around_token(wire.Decision(arm.key, arm.payload, "", mechanism, 0))


def _around_token(decision: wire.Decision) -> Answer:
    whole, mechanism = msgspec.json.encode(decision), msgspec.json.encode(decision.mechanism)
    end = b'","mechanism":' + mechanism + b',"expires_in":%d}' % decision.expires_in
    return whole.removesuffix(end), end
