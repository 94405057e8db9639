"""Budgets: what may be spent on privacy, in days or in lost rewards."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from whitelie.errors import real_number
from whitelie.planning.design import DAYS_PER_YEAR, Design
from whitelie.planning.option import Option, amount, lost_rewards
from whitelie.planning.runs import BATCH_SHARE, Runs
from whitelie.planning.times import CONFIDENCE_LEVEL, SURE_SHARE, time_to_goal


class Reading(NamedTuple):
    """How far runs are within the budget, on a scale that is nearly straight in ln ε."""

    value: float
    error: float


@dataclass(frozen=True)
class Budget:
    """What may be spent: days until the goal is reached in 95 % of runs, or rewards lost in a year.

    The goal is a certificate, or that nearly all traffic goes to the best arm.
    """

    kind: str
    amount: float

    def spent(self, design: Design, runs: Runs) -> float:
        """Return what these runs spent, infinity for days beyond them."""
        if self.kind == "lose_at_most":
            return lost_rewards(design, runs)
        days = time_to_goal(runs, design).days
        return math.inf if days is None else days

    def spent_by(self, option: Option) -> float:
        """Return what an option spends, infinity for days beyond the year."""
        if self.kind == "lose_at_most":
            return option.lost_rewards
        return math.inf if option.reached.days is None else option.reached.days

    def reports(self, design: Design) -> int | None:
        """Return how many reports decide whether the budget is kept; None is the whole year."""
        if self.kind == "lose_at_most" or design.goal.ships:
            return None
        return math.floor(self.amount * design.reports_per_day)

    def reading(self, design: Design, runs: Runs) -> Reading | None:
        """Return the distance from the budget and its standard error; None if runs tell neither.

        For rewards it is the log of the budget over what was lost, and for days to the certificate
        the log of the budget over them. Traffic settles and unsettles: there it is the probit of
        the largest share of runs in which it has settled at one time within the budget, minus that
        of 95 %.
        """
        if self.kind == "lose_at_most":
            lost = runs.regret[:, -1] / design.arrive
            mean = max(float(lost.mean()), 1e-300)
            error = float(lost.std(ddof=1)) / math.sqrt(len(lost)) / mean
            return Reading(math.log(self.amount / mean), max(error, 1e-6))
        from scipy.special import ndtri  # noqa: PLC0415 (heavy)

        if design.goal.ships:
            time = time_to_goal(runs, design)
            if time.days is None or time.low is None or time.high is None:
                return None
            width = math.log(time.high / time.low)
            error = max(width / (2 * float(ndtri((1 + CONFIDENCE_LEVEL) / 2))), BATCH_SHARE)
            return Reading(math.log(self.amount / time.days), error)
        count = len(runs.settled)
        share = (float(runs.settled.sum(axis=0).max()) + 0.5) / (count + 1)
        place = float(ndtri(share))
        density = math.exp(-place * place / 2) / math.sqrt(2 * math.pi)
        error = math.sqrt(share * (1 - share) / count) / density
        return Reading(place - float(ndtri(SURE_SHARE)), error)

    def words(self, spent: float) -> str:
        """Return what was spent, in words."""
        if self.kind == "lose_at_most":
            return f"{amount(spent)} lost rewards in a year"
        return f"> {DAYS_PER_YEAR} days" if spent == math.inf else f"{spent:.3g} days"


def budget_of(within_days: Any, lose_at_most: Any) -> Budget | None:
    """Return the one budget that was given, or None."""
    if within_days is not None:
        reason = f"give days above 0 and at most {DAYS_PER_YEAR}: a plan looks one year ahead"
        days = real_number("within_days", within_days, reason, least=5e-324, most=DAYS_PER_YEAR)
        return Budget("within_days", days)
    if lose_at_most is not None:
        reason = "give how many rewards may be lost in a year, a number from 0 on"
        lost = real_number("lose_at_most", lose_at_most, reason, least=0, most=1e300)
        return Budget("lose_at_most", lost)
    return None
