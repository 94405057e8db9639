"""How long until one knows: the first time at which 95 of 100 runs have reached something."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.planning.design import YEAR, Design
from whitelie.planning.runs import Runs

SURE = 0.95
"""The share of runs that must have reached something."""

LEVEL = 0.95
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
    """After how many reports something is reached, and a 95 % interval of that; None is never.

    Never is: not within the year that a plan looks at.

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
            return f"> {YEAR} days"
        ends = f"({_figure(self.days_low)} to {_figure(self.days_high)})"
        return f"{_figure(self.days)} days {ends}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is beyond the year."""
        return {
            "reports": self.reports,
            "days": self.days,
            "days_low": self.days_low,
            "days_high": self.days_high,
            "text": str(self),
        }


def time_to_know(runs: Runs, design: Design) -> Time:
    """Return when the learner can be said to know.

    The first batch end t at which, in 95 % of runs, the best arm received more than 90 % of the
    reports after u, where u is the last batch end that is at most 0.9·t.
    """
    return first_time(runs.known.sum(axis=0), runs, design)


def time_to_separate(runs: Runs, design: Design) -> Time:
    """Return when 95 % of runs have had, at some batch end, one interval above all others.

    The intervals are those that stay valid under continuous looking, at level 5 %/K for each of K
    arms, so that all of them hold at all times with probability 95 %.
    """
    reached = (runs.separated[:, None] <= runs.times).sum(axis=0)
    return first_time(reached, runs, design)


def first_time(reached: Array, runs: Runs, design: Design) -> Time:
    """Return the first time at which 95 % of runs have reached something, and its interval.

    Its ends are the first times at which the upper, and at which the lower, end of Clopper and
    Pearson's interval for the share of such runs is 95 % or more. The first end is after the truth
    with probability 2.5 % at most, since that needs the upper end to miss the true share at one
    fixed time. So is the second before it, where runs that have reached something stay there.
    """
    runs_needed = np.arange(len(runs.regret) + 1)
    low, high = clopper_pearson(runs_needed, len(runs.regret))
    marks = (runs_needed / len(runs.regret) >= SURE, high >= SURE, low >= SURE)
    found = [_first(mark[reached], runs.times) for mark in marks]
    return Time(found[0], found[1], found[2], design.reports_per_day)


def chance(happened: Array) -> Chance:
    """Return the chance of what happened in some of the runs."""
    low, high = clopper_pearson(np.array([happened.sum()]), len(happened))
    return Chance(float(happened.mean()), float(low[0]), float(high[0]))


def clopper_pearson(successes: Array, trials: int) -> tuple[Array, Array]:
    """Return the ends of the exact interval for a probability, at LEVEL (Clopper, Pearson, 1934).

    >>> low, high = clopper_pearson(np.array([0, 10]), 10)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.692], [0.308, 1.0])
    """
    from scipy.special import betaincinv  # noqa: PLC0415 (heavy)

    tail = (1 - LEVEL) / 2
    failures = trials - successes
    inner_low = betaincinv(np.maximum(successes, 1), failures + 1, tail)
    inner_high = betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail)
    return np.where(successes == 0, 0.0, inner_low), np.where(failures == 0, 1.0, inner_high)


def _first(holds: Array, times: Array) -> int | None:
    return int(times[holds.argmax()]) if holds.any() else None


def _figure(days: float | None) -> str:
    if days is None:
        return f"> {YEAR}"
    if days == 0:
        return "0"
    return f"{days:.{max(0, 1 - math.floor(math.log10(days)))}f}".removesuffix(".0")
