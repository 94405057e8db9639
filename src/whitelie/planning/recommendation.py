"""The strongest privacy that a budget allows, and how much it depends on the expected rates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from whitelie.channel import IDENTITY, RandomizedResponse
from whitelie.planning.budget import Budget
from whitelie.planning.design import Design
from whitelie.planning.option import Option, amount, finite, option_of, percent
from whitelie.planning.runs import DesignSimulator
from whitelie.planning.search import FRESH_EPSILONS, LEAST_EPSILON, MOST_EPSILON, search


@dataclass(frozen=True)
class Sensitivity:
    """What the recommended epsilon would cost if the rates were not those expected."""

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
        took = self._took()
        if self.met:
            least = " or less" if self.epsilon == LEAST_EPSILON else ""
            return (
                f"symmetric randomised response with ε = {self.epsilon:g}{least} is the strongest "
                f"privacy that is expected to keep the budget; it takes {took}"
            )
        clear = "" if self.without_noise is None else self.budget.words(self.without_noise)
        return (
            f"no ε up to {MOST_EPSILON:g} keeps a budget of {self.budget.words(self.budget.amount)}"
            f": the closest is ε = {self.epsilon:g}, which takes {took}; without any noise it is "
            f"{clear}"
        )

    def _took(self) -> str:
        if self.budget.kind == "within_days":
            return str(self.option.reached)
        lost = self.option.lost
        interval = f"({amount(float(lost.low[-1]))} to {amount(float(lost.high[-1]))})"
        return f"{self.budget.words(self.spent)} {interval}"

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


def recommend(
    simulator: DesignSimulator, design: Design, budget: Budget, options: Iterable[Option] = ()
) -> Recommendation:
    """Return the smallest epsilon that is expected to keep the budget, and what it costs.

    What it costs comes from runs that the search has not seen. Sensitivity: a base rate higher or
    lower by about a quarter with the same differences, and differences smaller by a fifth; a
    certificate still expects what was planned. Where the goal is to know, all but what the
    recommended epsilon costs is of fewer runs.
    """
    searching = simulator.compared() if design.goal.ships else simulator
    smallest = search(searching, design, budget, options)
    epsilon = MOST_EPSILON if smallest is None else smallest
    channel = RandomizedResponse.from_epsilon(epsilon)
    fresh, searching = (each.fresh(FRESH_EPSILONS) for each in (simulator, searching))
    without_noise = None
    if smallest is None:
        without_noise = budget.spent(design, searching.run(design, IDENTITY))
    sensitivity = []
    for other in (design.with_base(1.25), design.with_base(1 / 1.25), design.with_difference(0.8)):
        if other.rates != design.rates:
            spent = budget.spent(other, searching.run(other, channel))
            words = difference_in_words(design, other)
            sensitivity.append(Sensitivity(words, other.rates, spent, spent <= budget.amount))
    option = option_of(design, channel, epsilon, fresh.run(design, channel))
    return Recommendation(
        budget=budget,
        met=smallest is not None,
        option=option,
        spent=budget.spent_by(option),
        without_noise=without_noise,
        sensitivity=tuple(sensitivity),
    )


def difference_in_words(design: Design, other: Design) -> str:
    """Return in which way the rates of another design differ."""
    if design.base == other.base:
        lead, less = (100 * (max(each.rates) - each.base) for each in (design, other))
        return f"differences were smaller ({less:.3g} instead of {lead:.3g} percentage points)"
    way = "higher" if other.base > design.base else "lower"
    return f"base rates were {way} ({percent(other.base)} instead of {percent(design.base)})"
