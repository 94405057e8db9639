"""What an experiment has found: a table of its arms, one sentence, and alarms."""

import io
import unicodedata
from collections.abc import Iterator
from csv import QUOTE_NONNUMERIC, writer
from dataclasses import dataclass
from datetime import datetime

import msgspec
import numpy as np

from whitelie.channel import RandomizedResponse
from whitelie.estimate import ALPHA, estimate_arms, is_misspecified, reward_interval
from whitelie.kernel.arms import Array
from whitelie.kernel.interval import feedback_interval
from whitelie.service.clock import WHAT_TO_DO
from whitelie.service.unanswered import Unanswered, unanswered

REDEEM_ALPHA = 0.001
"""Chance that arms which are answered equally often ever raise the alarm `redeem_ratio`."""

SILENCE = 100
"""Decisions that went unanswered, all of them, before the alarm `nobody_reports`."""

LEAD = 2 / 3
"""The chance of being best from which on an arm leads."""

STATUS_WORDS = {"paused": "Paused: ", "stopped": "Stopped. "}

ALARM_WORDS = {
    "misspecified": "some reports do not fit the agreed flipping",
    "redeem_ratio": "the arms are not answered equally often",
    "nobody_reports": "nobody reports",
}


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """An arm in the table.

    Of its decisions, `answered` were reported on; the others are `pending`, `overdue` or `missing`,
    as `whitelie.service.unanswered` has it. Readers see all others as `pending`, and None beside.
    `raw_rate` is the share of ones among the flipped bits; `estimate`, within [lower, upper], is
    the mean reward that it stands for.
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


class Arrival(msgspec.Struct, frozen=True, rename={"start": "from", "stop": "to"}):
    """Of the decisions issued `from` … `to` seconds ago, how many have been answered by now."""

    start: int
    stop: int
    issued: int
    answered: int


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that makes the numbers doubtful, and what to do about it."""

    code: str
    arm: str | None
    message: str


CLOCK_JUMPED = Alarm(
    code="clock_jumped",
    arm=None,
    message="The server's clock has jumped. Reports count, but clients keep those that have "
    "expired by the time before or by the new time alone. Nothing is decided until the clock is "
    f"known to be right: {WHAT_TO_DO}.",
)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/experiments/{id}/results.

    `converged` says whether one active arm is told from all others, or None where the counts
    cannot say: without reports, with fewer than two active arms, or with reports that the declared
    channel cannot have produced. `last_report` is the minute in which the latest report came since
    the service started, which is not stored; for readers it is that of the latest step. `arrival`
    says how late reports come, to admins only: it counts single ones.
    """

    experiment: str
    name: str
    status: str
    reports: int
    arms: list[ArmResult]
    sentence: str
    converged: bool | None
    alarms: list[Alarm]
    last_report: datetime | None = None
    arrival: list[Arrival] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """The counts of an experiment at one moment, by arm.

    `closed_issued` and `closed_answered` are the part of `issued` and `answered` whose tokens have
    expired; `overdue` are those that may come late; `recent` counts the decisions issued lately.
    """

    keys: tuple[str, ...]
    channels: tuple[RandomizedResponse, ...]
    retired: Array
    issued: Array
    answered: Array
    ones: Array
    closed_issued: Array
    closed_answered: Array
    overdue: Array
    recent: Array

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
    def traffic_shares(self) -> Array:
        """Each arm's share of the recent decisions; of all, if none is recent."""
        counts = self.recent if self.recent.sum() else self.issued
        return np.asarray(counts / max(counts.sum(), 1))

    @property
    def active(self) -> list[int]:
        """The arms that are not retired."""
        return [int(k) for k in np.flatnonzero(~self.retired)]


def results_of(
    standing: Standing,
    *,
    experiment: str,
    name: str,
    status: str,
    last_report: datetime | None = None,
    is_clock_trusted: bool = True,
) -> Results:
    """Return what the counts say; status is "running", "paused" or "stopped"."""
    arms = _table(standing)
    converged = is_converged(standing)
    raised = [*([] if is_clock_trusted else [CLOCK_JUMPED]), *alarms(standing)]
    return Results(
        experiment=experiment,
        name=name,
        status=status,
        reports=int(standing.answered.sum()),
        arms=arms,
        sentence=_warning(raised) + STATUS_WORDS.get(status, "") + _state(arms, converged, status),
        converged=converged,
        alarms=raised,
        last_report=last_report,
    )


def _table(standing: Standing) -> list[ArmResult]:
    pending, overdue, missing = standing.unanswered
    shares = standing.traffic_shares
    estimates = estimate_arms(standing.channels, standing.answered, standing.ones, standing.retired)
    return [
        ArmResult(
            key=standing.keys[k],
            retired=estimate.retired,
            issued=int(standing.issued[k]),
            answered=estimate.pulls,
            ones=estimate.successes,
            pending=int(pending[k]),
            overdue=int(overdue[k]),
            missing=int(missing[k]),
            raw_rate=estimate.rate,
            estimate=estimate.estimate,
            lower=estimate.lower,
            upper=estimate.upper,
            probability_best=estimate.probability_best,
            traffic_share=float(shares[k]),
        )
        for k, estimate in enumerate(estimates)
    ]


def is_converged(standing: Standing, alpha: float = ALPHA) -> bool | None:
    """Whether one active arm's interval lies above all others', each at level alpha/K.

    Then this arm is best, except with probability alpha, however often one looks. K counts retired
    arms too, since arms are retired after looking at the intervals.
    """
    active = standing.active
    if len(active) < 2 or not standing.answered[active].sum():
        return None
    if any(_misspecified(standing, k) for k in active):
        return None
    level = alpha / len(standing.keys)
    intervals = [
        reward_interval(
            standing.channels[k], int(standing.answered[k]), int(standing.ones[k]), level
        )
        for k in active
    ]
    first = max(range(len(active)), key=lambda i: intervals[i][0])
    others = [upper for i, (_, upper) in enumerate(intervals) if i != first]
    return intervals[first][0] > max(others)


def alarms(standing: Standing) -> list[Alarm]:
    """Return what makes the numbers doubtful now, about arms that are not retired."""
    return [*_silence(standing), *_impossible_reports(standing), *_unequal_redeeming(standing)]


def _misspecified(standing: Standing, k: int) -> bool:
    return is_misspecified(standing.channels[k], int(standing.answered[k]), int(standing.ones[k]))


def _silence(standing: Standing) -> Iterator[Alarm]:
    closed = int(standing.closed_issued.sum())
    if closed >= SILENCE and not standing.answered.sum():
        yield Alarm(
            code="nobody_reports",
            arm=None,
            message=f"{closed:,} decisions have run out of time to report, and not one was "
            "answered. Probably the clients do not report at all: check that they send the token "
            "of the decision back, to this service, before it expires.",
        )


def _impossible_reports(standing: Standing) -> Iterator[Alarm]:
    for k in standing.active:
        if not _misspecified(standing, k):
            continue
        key, reports, channel = standing.keys[k], int(standing.answered[k]), standing.channels[k]
        rate = standing.ones[k] / reports
        low, high = sorted((channel.mean_feedback(0.0), channel.mean_feedback(1.0)))
        yield Alarm(
            code="misspecified",
            arm=key,
            message=f"{key}: {_percent(rate, 2)} of {reports:,} reports are 1, but whatever people "
            f"like, honest flipping gives between {_percent(low, 2)} and {_percent(high, 2)}. "
            "Perhaps some clients report without flipping, or flip with other probabilities than "
            "this experiment's, or somebody sends made-up reports. Until this is mended, "
            "nothing can be said about this arm. Check which clients report and how they flip, "
            "then roll back the time in which it happened.",
        )


def _unequal_redeeming(standing: Standing) -> Iterator[Alarm]:
    active = standing.active
    if len(active) < 2:
        return
    closed = standing.closed_issued[active]
    answered = np.minimum(standing.closed_answered[active], closed)
    level = REDEEM_ALPHA / len(standing.keys)
    lower, upper = np.array(
        [feedback_interval(int(n), int(s), level) for n, s in zip(closed, answered, strict=True)]
    ).T
    most, least = int(lower.argmax()), int(upper.argmin())
    if lower[most] <= upper[least]:
        return

    def ratio(i: int) -> str:
        return f"{_percent(answered[i] / closed[i], 1)} ({answered[i]:,} of {closed[i]:,})"

    less, more = standing.keys[active[least]], standing.keys[active[most]]
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


def _state(arms: list[ArmResult], converged: bool | None, status: str) -> str:
    total = sum(arm.answered for arm in arms)
    active = [arm for arm in arms if not arm.retired]
    reports = _number(total, "report")
    yet = "" if status == "stopped" else " yet"
    if not total:
        return f"No reports{yet}; {_number(sum(arm.issued for arm in arms), 'decision')} issued."
    if not active:
        return f"No arm is active; {reports}."
    if len(active) == 1:
        return f"{active[0].key} is the only active arm, nothing to compare; {reports}."
    if not any(arm.answered for arm in active):
        return f"No reports on the active arms{yet}; {reports} on retired ones."
    settled = f"; not settled{yet}" if converged is False else ""
    return f"{_comparison(active, converged)}; {reports}{settled}."


def _comparison(active: list[ArmResult], converged: bool | None) -> str:
    if converged is None:
        return "Until this is mended, nobody can say which arm is best"
    if converged:
        # The arm told apart at level alpha/K; the table's narrower intervals order it the same.
        return f"{max(active, key=lambda arm: arm.lower).key} is best (settled)"
    first, second = sorted(active, key=lambda arm: -arm.probability_best)[:2]
    if first.probability_best >= LEAD:
        return f"{first.key} leads; {_percent(first.probability_best)} likely best"
    chances = [f"{arm.key} {_percent(arm.probability_best)}" for arm in (first, second)]
    return f"No clear leader: {' and '.join(chances)} likely best"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _percent(share: float, digits: int = 0) -> str:
    """Return a share in words that are true: never rounded to 0 % or 100 %."""
    unit = 10.0**-digits
    percent = round(100 * share, digits)
    if percent >= 100:
        return f"more than {100 - unit:.{digits}f} %"
    if percent <= 0:
        return f"less than {unit:.{digits}f} %"
    return f"{percent:.{digits}f} %"


def csv(results: Results) -> str:
    """Return the table of arms as RFC 4180; a key that a spreadsheet would run stays text."""
    text = io.StringIO()
    # With quotes around all text, a spreadsheet that splits at semicolons makes no new cells of it.
    rows = writer(text, quoting=QUOTE_NONNUMERIC)
    rows.writerow(ArmResult.__struct_fields__)
    for arm in results.arms:
        rows.writerow([_cell(getattr(arm, field)) for field in ArmResult.__struct_fields__])
    return text.getvalue()


FORMULA = ("=", "+", "-", "\N{MINUS SIGN}", "@")
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that are drawn as nothing."""


def _cell(value: str | bool | float | None) -> str | float | None:
    """Return what stands in the file; a text that a spreadsheet may run begins with a quote.

    Spreadsheets take signs of any width for a formula's, and pass over what nobody sees before
    them: spaces, control and format characters, marks.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        visible = (c for c in value if unicodedata.category(c)[0] not in "CZM" and c not in BLANKS)
        first = unicodedata.normalize("NFKC", next(visible, ""))
        if first.startswith(FORMULA) or value.startswith(("\t", "\r", "\n")):
            return "'" + value
    return value
