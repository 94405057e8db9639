"""The certificate in a plan: when it comes, how often it is wrong, what is lost until then."""

import math
from dataclasses import dataclass
from typing import Any

from whitelie.kernel.arms import Array
from whitelie.planning.design import DAYS_PER_YEAR, Design
from whitelie.planning.runs import Runs
from whitelie.planning.times import Chance, Time, chance, day_figure, time_to_certificate


@dataclass(frozen=True)
class Mean:
    """A mean over runs and its standard error."""

    value: float
    error: float

    def to_dict(self) -> dict[str, float]:
        """Return plain data."""
        return {"mean": self.value, "standard_error": self.error}


@dataclass(frozen=True)
class Certified:
    """What the certificate of the best arm takes, over runs of a year.

    `share` of the runs have a certificate within the year; in 95 % it comes `within` a time. `days`
    is the mean, in which a run without certificate counts as a year: if there are such runs, the
    true mean is larger. `wrong`: it names an arm that is not the best, or, with a tolerance, one
    that another exceeds by more. Rewards are lost `lost_until` the certificate (or until the year's
    end), and `lost_in_year` with the winner shown alone from the certificate on.
    """

    days: Mean
    share: Chance
    within: Time
    wrong: Chance
    lost_until: Mean
    lost_in_year: Mean

    @property
    def in_all_runs(self) -> bool:
        """Whether every run has its certificate within the year."""
        return self.share.estimate == 1

    @property
    def mean_text(self) -> str:
        """The mean of days with its standard error; its bound, if runs have no certificate."""
        if self.share.estimate == 0:
            return f"> {DAYS_PER_YEAR}"
        bound = "" if self.in_all_runs else "≥ "
        return f"{bound}{day_figure(self.days.value)} ± {self.days.error:.2g}"

    @property
    def within_text(self) -> str:
        """The days within which 95 % of runs have their certificate."""
        return day_figure(self.within.days)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the mean of days is None unless every run has a certificate."""
        days = self.days.to_dict()
        return {
            "days": {
                "mean": days["mean"] if self.in_all_runs else None,
                "at_least": days["mean"],
                "standard_error": days["standard_error"],
                "text": self.mean_text,
            },
            "within_year": self.share.to_dict(),
            "within": self.within.to_dict(),
            "wrong": self.wrong.to_dict(),
            "lost_until": self.lost_until.to_dict(),
            "lost_in_year": self.lost_in_year.to_dict(),
        }


def certified_of(runs: Runs, design: Design) -> Certified:
    """Return what the certificate took in these runs."""
    days = (runs.certified / design.reports_per_day).clip(max=DAYS_PER_YEAR)
    return Certified(
        days=mean(days),
        share=chance(runs.certified < math.inf),
        within=time_to_certificate(runs, design),
        wrong=chance(runs.error),
        lost_until=mean(runs.until / design.arrive),
        lost_in_year=mean(runs.shipped / design.arrive),
    )


def mean(values: Array) -> Mean:
    """Return the mean over runs and its standard error."""
    return Mean(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))
