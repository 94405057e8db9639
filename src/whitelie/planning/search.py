"""The smallest epsilon that keeps a budget: a rough search, then a curve through fresh runs.

The first epsilon that seems to keep the budget is often one whose runs were lucky. So the answer is
not taken from there: epsilons around it are run anew, each on random numbers of its own, and the
budget is read off a line through all of them.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from whitelie.bounds import lower_constant
from whitelie.channel import RandomizedResponse
from whitelie.planning.budget import Budget
from whitelie.planning.design import Design
from whitelie.planning.option import Option
from whitelie.planning.runs import Laboratory

LEAST_EPSILON, MOST_EPSILON, FINENESS = 0.05, 10.0, 1.02
PROBES = 9
REACH = math.log(2)
"""Fresh runs reach this far to both sides, on the log scale of epsilon."""


def search(
    lab: Laboratory, design: Design, budget: Budget, options: Iterable[Option] = ()
) -> float | None:
    """Return the smallest epsilon that is expected to keep the budget, or None if none up to 10 is.

    Options that are known already say where to begin.
    """
    rough = smallest(
        epsilons(),
        lambda epsilon: meets(lab, design, budget, epsilon),
        guess(design, budget, options),
    )
    return None if rough is None else refined(lab, design, budget, rough)


def refined(lab: Laboratory, design: Design, budget: Budget, rough: float) -> float | None:
    """Return where a weighted line through fresh readings meets the budget.

    Readings are nearly straight in the log of Theorem 1's constant, to which what is spent is
    nearly proportional.
    """
    if budget.amount == 0:
        return rough
    low, high = math.log(LEAST_EPSILON), math.log(MOST_EPSILON)
    middle = min(max(math.log(rough), low + REACH), high - REACH)
    tried = np.exp(np.linspace(middle - REACH, middle + REACH, PROBES))
    readings = []
    for number, epsilon in enumerate(tried):
        channel = RandomizedResponse.from_epsilon(epsilon)
        runs = lab.fresh(number).run(design, channel, reports=budget.reports(design))
        readings.append(budget.reading(design, runs))
    places = [ease(design, epsilon) for epsilon in tried]
    weights = [1 / reading.error for reading in readings]
    slope, height = np.polyfit(places, [reading.value for reading in readings], 1, w=weights)
    if slope <= 0:
        return rough
    needed = max(float(-height / slope), places[0])
    return next((each for each in epsilons() if ease(design, each) >= needed), None)


def ease(design: Design, epsilon: float) -> float:
    """Return minus the log of Theorem 1's constant: how easily a design is learned."""
    problem = design.problem(RandomizedResponse.from_epsilon(epsilon))
    return -math.log(lower_constant(problem))


def epsilons() -> list[float]:
    """Return what is searched: from 0.05 to 10 in steps of 2 %, to three figures.

    >>> epsilons()[:4], epsilons()[-1], len(epsilons())
    ([0.05, 0.051, 0.052, 0.0531], 10.0, 269)
    """
    count = math.ceil(math.log(MOST_EPSILON / LEAST_EPSILON) / math.log(FINENESS))
    steps = LEAST_EPSILON * (MOST_EPSILON / LEAST_EPSILON) ** (np.arange(count + 1) / count)
    return [float(f"{step:.3g}") for step in steps]


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
        if ease(design, epsilon) >= -math.log(most):
            return position
    return len(epsilons()) - 1


def meets(lab: Laboratory, design: Design, budget: Budget, epsilon: float) -> bool:
    """Whether symmetric randomised response at this epsilon keeps the budget."""
    channel = RandomizedResponse.from_epsilon(epsilon)
    runs = lab.run(design, channel, reports=budget.reports(design))
    return budget.spent(design, runs) <= budget.amount
