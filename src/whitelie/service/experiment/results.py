"""Results of an experiment: a table of its arms, one sentence, and alarms."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
import numpy as np

from whitelie.estimate import estimate_arms, is_misspecified
from whitelie.kernel.interval import feedback_interval
from whitelie.service.experiment.arrival import Arrival
from whitelie.service.experiment.certificate_state import CertificateState, certificate_of
from whitelie.service.experiment.snapshot import Snapshot
from whitelie.service.experiment.words import number_of, percent
from whitelie.service.minutes import time_of
from whitelie.service.refusals import CLOCK_TO_DO
from whitelie.service.wire import Shipped

REDEEM_ALPHA = 0.001
"""The probability that arms which are answered equally often ever raise `redeem_ratio`."""

SILENT_DECISIONS = 100
"""How many decisions must have expired, without a single report, for `nobody_reports`."""

STATUS_WORDS = {"paused": "Paused: ", "stopped": "Stopped. "}

DOUBTS = {
    "misspecified": "some reports do not fit the agreed flipping",
    "redeem_ratio": "the arms are not answered equally often",
    "clock_jumped": "the server's clock has jumped",
}
"""Alarms while which nothing is certified, and why."""

ALARM_WORDS = {
    "misspecified": "some reports do not fit the agreed flipping",
    "redeem_ratio": "the arms are not answered equally often",
    "nobody_reports": "nobody reports",
}


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """An arm in the table.

    Of its decisions, `answered` have a report; the others are `pending`, `overdue` or `missing`.
    Readers see all others as `pending`, and null as `overdue` and `missing`.
    `raw_rate` is the share of ones among the flipped bits; `estimate`, within [lower, upper], is
    the mean reward that it stands for. `evidence` is how clearly the leader is better than this
    arm, and `needed` how much of it a certificate takes; both are null for the leader and for
    retired arms.
    """

    key: str
    retired: bool
    issued: int
    answered: int
    ones: int
    pending: int
    overdue: int | None
    missing: int | None
    raw_rate: float | None
    estimate: float | None
    lower: float
    upper: float
    probability_best: float
    traffic_share: float
    evidence: float | None
    needed: float | None
    certified: bool


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to doubt the numbers, and what to do about it."""

    code: str
    arm: str | None
    message: str


CLOCK_JUMPED = Alarm(
    code="clock_jumped",
    arm=None,
    message="The server's clock has jumped. Reports count, but clients keep those that have "
    "expired by the time before or by the new time alone. Nothing is decided until the clock is "
    f"known to be right: {CLOCK_TO_DO}.",
)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/experiments/{id}/results.

    `certificate` says whether one arm is known to be best. `last_report` is the minute in which the
    latest report came since the service started, which is not stored; for readers it is that of the
    latest step. `arrival` says how late reports come, to admins only: it counts single ones.
    """

    experiment: str
    name: str
    status: str
    reports: int
    arms: list[ArmResult]
    sentence: str
    certificate: CertificateState
    alarms: list[Alarm]
    shipped: Shipped | None = None
    last_report: datetime | None = None
    arrival: list[Arrival] | None = None


def results_of(snapshot: Snapshot, *, is_clock_trusted: bool = True) -> Results:
    """Return what the counts of a snapshot say."""
    raised = [*([] if is_clock_trusted else [CLOCK_JUMPED]), *alarms(snapshot)]
    certificate, status = certificate_of(snapshot, doubt(raised)), snapshot.status
    arms, last = _table(snapshot, certificate), snapshot.last_report
    return Results(
        experiment=snapshot.slug,
        name=snapshot.name,
        status=status,
        reports=int(snapshot.answered.sum()),
        arms=arms,
        sentence=_warning(raised) + _status(snapshot) + _state(arms, certificate, status),
        certificate=certificate,
        alarms=raised,
        shipped=snapshot.shipped,
        last_report=None if last is None else time_of(last),
    )


def doubt(raised: list[Alarm]) -> str | None:
    """Return why nothing is certified while these alarms stand, if so."""
    return next((DOUBTS[alarm.code] for alarm in raised if alarm.code in DOUBTS), None)


def _status(snapshot: Snapshot) -> str:
    if snapshot.shipped is not None:
        return f"Shipped: everybody sees {snapshot.shipped.arm}. "
    return STATUS_WORDS.get(snapshot.status, "")


def _table(snapshot: Snapshot, certificate: CertificateState) -> list[ArmResult]:
    rivals = {rival.key: rival for rival in certificate.rivals}
    pending, overdue, missing = snapshot.unanswered
    shares = snapshot.traffic_shares
    estimates = estimate_arms(snapshot.channels, snapshot.answered, snapshot.ones, snapshot.retired)
    return [
        ArmResult(
            key=snapshot.keys[k],
            retired=estimate.retired,
            issued=int(snapshot.issued[k]),
            answered=estimate.pulls,
            ones=int(snapshot.ones[k]),
            pending=int(pending[k]),
            overdue=None if snapshot.is_for_readers else int(overdue[k]),
            missing=None if snapshot.is_for_readers else int(missing[k]),
            raw_rate=estimate.rate,
            estimate=estimate.estimate,
            lower=estimate.lower,
            upper=estimate.upper,
            probability_best=estimate.probability_best,
            traffic_share=float(shares[k]),
            evidence=None if (rival := rivals.get(snapshot.keys[k])) is None else rival.evidence,
            needed=None if rival is None else rival.needed,
            certified=snapshot.keys[k] == certificate.winner,
        )
        for k, estimate in enumerate(estimates)
    ]


def alarms(snapshot: Snapshot) -> list[Alarm]:
    """Return the reasons to doubt the numbers of arms that are not retired."""
    return [*_silence(snapshot), *_impossible_reports(snapshot), *_unequal_redeeming(snapshot)]


def _misspecified(snapshot: Snapshot, k: int) -> bool:
    return is_misspecified(snapshot.channels[k], int(snapshot.answered[k]), int(snapshot.ones[k]))


def _silence(snapshot: Snapshot) -> Iterator[Alarm]:
    expired = int(snapshot.expired_issued.sum())
    if expired >= SILENT_DECISIONS and not snapshot.answered.sum():
        yield Alarm(
            code="nobody_reports",
            arm=None,
            message=f"{expired:,} decisions have run out of time to report, and not one was "
            "answered. Probably the clients do not report at all: check that they send the token "
            "of the decision back, to this service, before it expires.",
        )


def _impossible_reports(snapshot: Snapshot) -> Iterator[Alarm]:
    for k in snapshot.active:
        if not _misspecified(snapshot, k):
            continue
        key, reports, channel = snapshot.keys[k], int(snapshot.answered[k]), snapshot.channels[k]
        rate = snapshot.ones[k] / reports
        low, high = sorted((channel.mean_feedback(0.0), channel.mean_feedback(1.0)))
        yield Alarm(
            code="misspecified",
            arm=key,
            message=f"{key}: {percent(rate, 2)} of {reports:,} reports are 1, but whatever people "
            f"like, honest flipping gives between {percent(low, 2)} and {percent(high, 2)}. "
            "Perhaps some clients report without flipping, or flip with other probabilities than "
            "this experiment's, or somebody sends made-up reports. Until this is mended, "
            "nothing can be said about this arm. Check which clients report and how they flip, "
            "then roll back the time in which it happened.",
        )


def _unequal_redeeming(snapshot: Snapshot) -> Iterator[Alarm]:
    active = snapshot.active
    if len(active) < 2:
        return
    expired = snapshot.expired_issued[active]
    answered = np.maximum(expired - snapshot.unanswered.missing[active], 0)
    level = REDEEM_ALPHA / len(snapshot.keys)
    lower, upper = np.array(
        [feedback_interval(int(n), int(s), level) for n, s in zip(expired, answered, strict=True)]
    ).T
    most, least = int(lower.argmax()), int(upper.argmin())
    if lower[most] <= upper[least]:
        return

    def ratio(i: int) -> str:
        return f"{percent(answered[i] / expired[i], 1)} ({answered[i]:,} of {expired[i]:,})"

    less, more = snapshot.keys[active[least]], snapshot.keys[active[most]]
    yield Alarm(
        code="redeem_ratio",
        arm=less,
        message=f"{less} is answered less often than {more}: {ratio(least)} against {ratio(most)} "
        "of the decisions whose time to report is over. Those who do not answer may think "
        "otherwise than those who do, so comparing the arms may mislead. Check that every arm is "
        "shown and reported on in the same way. It can also be that fewer people answer at some "
        "times, and traffic moved between the arms meanwhile.",
    )


def _warning(raised: list[Alarm]) -> str:
    codes = dict.fromkeys(alarm.code for alarm in raised)
    words = " and ".join(ALARM_WORDS[code] for code in codes if code in ALARM_WORDS)
    clock = "Check the server's clock: it has jumped. " if CLOCK_JUMPED in raised else ""
    return clock + (f"Check the clients: {words}. " if words else "")


def _state(arms: list[ArmResult], certificate: CertificateState, status: str) -> str:
    total = sum(arm.answered for arm in arms)
    active = [arm for arm in arms if not arm.retired]
    reports = number_of(total, "report")
    yet = "" if status == "stopped" else " yet"
    if certificate.state != "certified":
        if not total:
            issued = sum(arm.issued for arm in arms)
            return f"No reports{yet}; {number_of(issued, 'decision')} issued."
        if not active:
            return f"No arm is active; {reports}."
        if len(active) == 1:
            return f"{active[0].key} is the only active arm, nothing to compare; {reports}."
        if not any(arm.answered for arm in active):
            return f"No reports on the active arms{yet}; {reports} on retired ones."
    if certificate.state == "cannot_say":  # the alarm has said why
        return f"Until this is mended, nobody can say which arm is best; {reports}."
    return f"{certificate.sentence} {reports}{' so far' if yet else ''}."
