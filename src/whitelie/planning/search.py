"""The smallest epsilon that keeps a budget: a rough search, then a line through fresh runs.

The first epsilon that seems to keep the budget is often one whose runs were lucky. So it is not the
answer: the epsilons around it are simulated again, each with random numbers of its own, and the
answer is where a line through all of them meets the budget.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from whitelie.bounds import lower_constant
from whitelie.channel import RandomizedResponse
from whitelie.planning.budget import Budget
from whitelie.planning.design import Design
from whitelie.planning.option import Option
from whitelie.planning.runs import DesignSimulator

LEAST_EPSILON, MOST_EPSILON, EPSILON_STEP_FACTOR = 0.05, 10.0, 1.02
CERTIFICATE_STRIDE = 8
"""The rough search for a certificate's epsilon, which takes long to simulate, skips so many."""

FRESH_EPSILONS = 9
"""How many epsilons around the rough answer are simulated again."""

FRESH_STRIDE = 2
"""Of these, every second one serves for a certificate, whose readings are exacter."""

FRESH_LOG_REACH = math.log(2)
"""How far they reach to both sides, on the log scale of epsilon."""


def search(
    simulator: DesignSimulator, design: Design, budget: Budget, options: Iterable[Option] = ()
) -> float | None:
    """Return the smallest epsilon that is expected to keep the budget, or None if none up to 10 is.

    Options that have been simulated already say where to begin.
    """
    stride = CERTIFICATE_STRIDE if design.goal.ships else 1
    start = guess(design, budget, options)
    rough = smallest(
        epsilons()[::-stride][::-1],
        lambda epsilon: meets(simulator, design, budget, epsilon),
        None if start is None else start // stride,
    )
    return None if rough is None else refined(simulator, design, budget, rough)


def refined(
    simulator: DesignSimulator, design: Design, budget: Budget, rough: float
) -> float | None:
    """Return where a weighted line through fresh readings meets the budget.

    Readings are nearly straight in the log of Theorem 1's constant, to which what is spent is
    nearly proportional.
    """
    if budget.amount == 0:
        return rough
    low, high = math.log(LEAST_EPSILON), math.log(MOST_EPSILON)
    middle = min(max(math.log(rough), low + FRESH_LOG_REACH), high - FRESH_LOG_REACH)
    tried = np.exp(np.linspace(middle - FRESH_LOG_REACH, middle + FRESH_LOG_REACH, FRESH_EPSILONS))
    places, readings = [], []
    stride = FRESH_STRIDE if design.goal.ships else 1
    for number, epsilon in list(enumerate(tried))[::stride]:
        channel = RandomizedResponse.from_epsilon(epsilon)
        runs = simulator.fresh(number).run(design, channel, reports=budget.reports(design))
        reading = budget.reading(design, runs)
        if reading is not None:
            places.append(ease(design, epsilon))
            readings.append(reading)
    if len(readings) <= 1:
        return rough
    weights = [1 / reading.error for reading in readings]
    slope, height = np.polyfit(places, [reading.value for reading in readings], 1, w=weights)
    if slope <= 0:
        return rough
    needed = max(float(-height / slope), ease(design, float(tried[0])))
    return next((each for each in epsilons() if ease(design, each) >= needed), None)


def ease(design: Design, epsilon: float) -> float:
    """Return minus the log of Theorem 1's constant: the larger, the easier to learn."""
    problem = design.problem(RandomizedResponse.from_epsilon(epsilon))
    return -math.log(lower_constant(problem))


def epsilons() -> list[float]:
    """Return what is searched: from 0.05 to 10 in steps of 2 %, to three figures.

    >>> epsilons()[:4], epsilons()[-1], len(epsilons())
    ([0.05, 0.051, 0.052, 0.0531], 10.0, 269)
    """
    count = math.ceil(math.log(MOST_EPSILON / LEAST_EPSILON) / math.log(EPSILON_STEP_FACTOR))
    steps = LEAST_EPSILON * (MOST_EPSILON / LEAST_EPSILON) ** (np.arange(count + 1) / count)
    return [float(f"{step:.3g}") for step in steps]


def smallest(
    values: Sequence[float], holds: Callable[[float], bool], start: int | None = None
) -> float | None:
    """Return the smallest value for which something holds that then holds for all larger ones.

    The search begins at a guess of its position, takes steps that double, and ends by bisection;
    without a guess it is bisection alone. Where noise breaks the order, the condition holds for the
    result and not for the value before it.

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


def meets(simulator: DesignSimulator, design: Design, budget: Budget, epsilon: float) -> bool:
    """Whether symmetric randomised response at this epsilon keeps the budget."""
    channel = RandomizedResponse.from_epsilon(epsilon)
    runs = simulator.run(design, channel, reports=budget.reports(design))
    return budget.spent(design, runs) <= budget.amount
