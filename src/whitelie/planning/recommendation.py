"""The strongest privacy that a budget allows, found by searching epsilon."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whitelie.bounds import lower_constant
from whitelie.channel import IDENTITY, RandomizedResponse
from whitelie.errors import real_number
from whitelie.planning.design import YEAR, Design
from whitelie.planning.knowing import time_to_know
from whitelie.planning.option import Option, finite, lost_rewards, option_of
from whitelie.planning.runs import Laboratory, Runs

LEAST_EPSILON, MOST_EPSILON, FINENESS = 0.05, 10.0, 1.02


def epsilons() -> list[float]:
    """Return what is searched: from 0.05 to 10 in steps of 2 %, to three figures.

    >>> epsilons()[:4], epsilons()[-1], len(epsilons())
    ([0.05, 0.051, 0.052, 0.0531], 10.0, 269)
    """
    count = math.ceil(math.log(MOST_EPSILON / LEAST_EPSILON) / math.log(FINENESS))
    steps = LEAST_EPSILON * (MOST_EPSILON / LEAST_EPSILON) ** (np.arange(count + 1) / count)
    return [float(f"{step:.3g}") for step in steps]


@dataclass(frozen=True)
class Budget:
    """What may be spent: days until the best arm is known, or rewards lost in a year."""

    kind: str
    amount: float

    def spent(self, design: Design, runs: Runs) -> float:
        """Return what these runs spent, infinity for days beyond them."""
        if self.kind == "lose_at_most":
            return lost_rewards(design, runs)
        days = time_to_know(runs, design).days
        return math.inf if days is None else days

    def spent_by(self, option: Option) -> float:
        """Return what an option spends, infinity for days beyond the year."""
        if self.kind == "lose_at_most":
            return option.lost_rewards
        return math.inf if option.know.days is None else option.know.days

    def reports(self, design: Design) -> int | None:
        """Return how many reports decide whether the budget is kept; None is the whole year."""
        if self.kind == "lose_at_most":
            return None
        return math.floor(self.amount * design.reports_per_day)

    def words(self, spent: float) -> str:
        """Return what was spent, in words."""
        if self.kind == "lose_at_most":
            return f"{spent:,.0f} lost rewards in a year"
        return f"> {YEAR} days" if spent == math.inf else f"{spent:.3g} days"


def budget_of(within_days: Any, lose_at_most: Any) -> Budget | None:
    """Return the one budget that was given, or None."""
    if within_days is not None:
        reason = f"give a number of days above 0 and at most {YEAR}: a plan looks one year ahead"
        days = real_number("within_days", within_days, reason, least=5e-324, most=YEAR)
        return Budget("within_days", days)
    if lose_at_most is not None:
        reason = "give how many rewards may be lost in a year, a number from 0 on"
        lost = real_number("lose_at_most", lose_at_most, reason, least=0, most=1e300)
        return Budget("lose_at_most", lost)
    return None


@dataclass(frozen=True)
class Sensitivity:
    """What the recommended epsilon would cost if the rates were others than expected."""

    guess: str
    rates: tuple[float, ...]
    spent: float
    met: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is beyond the year."""
        spent = {"spent": finite(self.spent), "met": self.met}
        return {"guess": self.guess, "rates": list(self.rates), **spent}


@dataclass(frozen=True)
class Recommendation:
    """The smallest epsilon of symmetric randomised response that keeps the budget.

    Where none up to 10 does, `met` is false and `option` is the closest, 10; `without_noise` says
    what answers without any noise would spend.
    """

    budget: Budget
    met: bool
    option: Option
    spent: float
    without_noise: float | None
    sensitivity: tuple[Sensitivity, ...]

    @property
    def epsilon(self) -> float:
        """The recommended epsilon, or the closest to keeping the budget."""
        return self.option.epsilon

    def __str__(self) -> str:
        spent = self.budget.words(self.spent)
        if self.budget.kind == "within_days" and self.spent < math.inf:
            spent = str(self.option.know)
        if self.met:
            least = " or less" if self.epsilon == LEAST_EPSILON else ""
            return f"ε = {self.epsilon:g}{least} keeps the budget, with {spent}"
        clear = "" if self.without_noise is None else self.budget.words(self.without_noise)
        return (
            f"no ε up to {MOST_EPSILON:g} keeps a budget of {self.budget.words(self.budget.amount)}"
            f": the closest is ε = {self.epsilon:g} with {spent}; without any noise it is {clear}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is beyond the year."""
        return {
            "budget": {"kind": self.budget.kind, "amount": self.budget.amount},
            "met": self.met,
            "epsilon": self.epsilon,
            "spent": finite(self.spent),
            "without_noise": None if self.without_noise is None else finite(self.without_noise),
            "text": str(self),
            "option": self.option.to_dict(),
            "sensitivity": [guess.to_dict() for guess in self.sensitivity],
        }


def smallest(
    values: Sequence[float], holds: Callable[[float], bool], start: int | None = None
) -> float | None:
    """Return the smallest value for which something holds that then holds for all larger ones.

    From a guess of its position in steps that double, then by bisection; by bisection alone
    without a guess. Where it holds for some and not for others out of order, as with noise, the
    result holds and the value before it does not.

    >>> smallest([1, 2, 3, 4, 5], lambda x: x > 2.5, start=0)
    3
    """
    below, above, step = -1, len(values), 1
    probe = len(values) // 2 if start is None else start
    while above - below > 1:
        probe = min(max(probe, below + 1), above - 1)
        if holds(values[probe]):
            above, probe = probe, probe - step
        else:
            below, probe = probe, probe + step
        step *= 2
        if start is None or (below >= 0 and above < len(values)):
            probe = (below + above) // 2
    return values[above] if above < len(values) else None


def guess(design: Design, budget: Budget, options: Iterable[Option]) -> int | None:
    """Return where among `epsilons` the smallest may be: what is spent grows as Theorem 1's Σ Δ/d.

    From the option that spends nearest to the budget; None where none spends a finite amount.
    """
    spent = {budget.spent_by(option): option for option in options}
    known = {value: option for value, option in spent.items() if 0 < value < math.inf}
    if not known or budget.amount == 0:
        return None
    nearest = min(known, key=lambda value: abs(math.log(value / budget.amount)))
    most = known[nearest].theory.constant * budget.amount / nearest
    for position, epsilon in enumerate(epsilons()):
        problem = design.problem(RandomizedResponse.from_epsilon(epsilon))
        if lower_constant(problem) <= most:
            return position
    return len(epsilons()) - 1


def meets(lab: Laboratory, design: Design, budget: Budget, epsilon: float) -> bool:
    """Whether symmetric randomised response at this epsilon keeps the budget."""
    channel = RandomizedResponse.from_epsilon(epsilon)
    runs = lab.run(design, channel, reports=budget.reports(design))
    return budget.spent(design, runs) <= budget.amount


def recommend(
    lab: Laboratory, design: Design, budget: Budget, options: Iterable[Option] = ()
) -> Recommendation:
    """Return the smallest epsilon that keeps the budget, to 2 %, and how sure that is.

    All epsilons are tried on common random numbers; options that are known already say where to
    begin. Sensitivity: a base rate a quarter higher or lower with the same differences, and
    differences smaller by a fifth.
    """
    found = smallest(
        epsilons(),
        lambda epsilon: meets(lab, design, budget, epsilon),
        guess(design, budget, options),
    )
    epsilon = MOST_EPSILON if found is None else found
    channel = RandomizedResponse.from_epsilon(epsilon)
    runs = lab.run(design, channel)
    without_noise = None
    if found is None:
        without_noise = budget.spent(design, lab.run(design, IDENTITY))
    others = {
        "base rate × 1.25": design.with_base(1.25),
        "base rate ÷ 1.25": design.with_base(1 / 1.25),
        "differences × 0.8": design.with_difference(0.8),
    }
    sensitivity = []
    for words, other in others.items():
        if other.rates != design.rates:
            spent = budget.spent(other, lab.run(other, channel))
            sensitivity.append(Sensitivity(words, other.rates, spent, spent <= budget.amount))
    return Recommendation(
        budget=budget,
        met=found is not None,
        option=option_of(design, channel, epsilon, runs),
        spent=budget.spent(design, runs),
        without_noise=without_noise,
        sensitivity=tuple(sensitivity),
    )
