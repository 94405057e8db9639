"""How long it takes: the first time at which 95 of 100 runs have reached something."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.planning.design import DAYS_PER_YEAR, Design
from whitelie.planning.runs import Runs

SURE_SHARE = 0.95
"""The share of runs that must have reached something."""

CONFIDENCE_LEVEL = 0.95
"""The confidence of every interval that comes from a finite number of runs."""


@dataclass(frozen=True)
class Chance:
    """A probability estimated from runs, and its 95 % interval of Clopper and Pearson (1934)."""

    estimate: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Return plain data."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Time:
    """After how many reports something is reached, and its 95 % interval; None is beyond the year.

    >>> print(Time(5000, 4000, None, 1000.0))
    5 days (4 to > 365)
    """

    reports: int | None
    low: int | None
    high: int | None
    reports_per_day: float

    @property
    def days(self) -> float | None:
        """The time in days."""
        return self._days(self.reports)

    @property
    def days_low(self) -> float | None:
        """The lower end of its interval in days."""
        return self._days(self.low)

    @property
    def days_high(self) -> float | None:
        """The upper end of its interval in days."""
        return self._days(self.high)

    def _days(self, reports: int | None) -> float | None:
        return None if reports is None else reports / self.reports_per_day

    def __str__(self) -> str:
        if self.reports is None and self.low is None:
            return f"> {DAYS_PER_YEAR} days"
        ends = f"({day_figure(self.days_low)} to {day_figure(self.days_high)})"
        return f"{day_figure(self.days)} days {ends}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is beyond the year."""
        return {
            "reports": self.reports,
            "days": self.days,
            "days_low": self.days_low,
            "days_high": self.days_high,
            "text": str(self),
        }


def time_to_settle(runs: Runs, design: Design) -> Time:
    """Return when nearly all traffic goes to the best arm.

    That is the first batch end t at which, in 95 % of runs, the best arm received more than 90 % of
    the reports after u, where u is the last batch end that is at most 0.9·t. Only a simulation can
    see this: whoever runs an experiment does not know which arm is the best.
    """
    return first_time(runs.settled.sum(axis=0), runs, design)


def time_to_certificate(runs: Runs, design: Design) -> Time:
    """Return when 95 % of runs have had their certificate."""
    return first_time((runs.certified[:, None] <= runs.times).sum(axis=0), runs, design)


def time_to_goal(runs: Runs, design: Design) -> Time:
    """Return when 95 % of runs have what the plan is for: a certificate, or settled traffic."""
    from_runs = time_to_certificate if design.goal.ships else time_to_settle
    return from_runs(runs, design)


def first_time(reached: Array, runs: Runs, design: Design) -> Time:
    """Return the first time at which 95 % of runs have reached something, and its interval.

    Its ends are the first times at which the upper, and at which the lower, end of Clopper and
    Pearson's interval for the share of such runs is 95 % or more. The first end lies after the true
    time with probability 2.5 % at most, since the upper end must then miss the true share at one
    fixed time. The second lies before it with the same probability, if runs do not turn back.
    """
    runs_needed = np.arange(len(runs.regret) + 1)
    low, high = clopper_pearson(runs_needed, len(runs.regret))
    marks = (runs_needed / len(runs.regret) >= SURE_SHARE, high >= SURE_SHARE, low >= SURE_SHARE)
    reports, low_end, high_end = (_first(mark[reached], runs.times) for mark in marks)
    return Time(reports, low_end, high_end, design.reports_per_day)


def chance(happened: Array) -> Chance:
    """Return the chance of what happened in some runs: one entry per run, true where it did."""
    low, high = clopper_pearson(np.array([happened.sum()]), len(happened))
    return Chance(float(happened.mean()), float(low[0]), float(high[0]))


def clopper_pearson(successes: Array, trials: int) -> tuple[Array, Array]:
    """Return the ends of Clopper and Pearson's exact interval for a probability.

    >>> low, high = clopper_pearson(np.array([0, 10]), 10)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.692], [0.308, 1.0])
    """
    from scipy.special import betaincinv  # noqa: PLC0415 (heavy)

    tail = (1 - CONFIDENCE_LEVEL) / 2
    failures = trials - successes
    inner_low = betaincinv(np.maximum(successes, 1), failures + 1, tail)
    inner_high = betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail)
    return np.where(successes == 0, 0.0, inner_low), np.where(failures == 0, 1.0, inner_high)


def _first(holds: Array, times: Array) -> int | None:
    return int(times[holds.argmax()]) if holds.any() else None


def day_figure(days: float | None) -> str:
    """Return days to two figures, or more before the point; None is beyond the year.

    >>> day_figure(0.123), day_figure(5.0), day_figure(123.4), day_figure(None)
    ('0.12', '5', '123', '> 365')
    """
    if days is None:
        return f"> {DAYS_PER_YEAR}"
    if days == 0:
        return "0"
    return f"{days:.{max(0, 1 - math.floor(math.log10(days)))}f}".removesuffix(".0")
