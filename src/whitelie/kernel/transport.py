"""How unlikely the counts of two arms are if they were alike: the least cost over common rewards.

Of arm k, ℓ_k(x) = N·d(λ̂, g_k(x)) says how much less likely its feedback is under the mean reward x
than under its own rate. If arm a reads better than arm b, and b is granted a tolerance, then

    W = min over x of ℓ_a(x) + ℓ_b(x + tolerance)

is the *transport cost* of the pair. The least lies between b's estimate minus the tolerance and a's
estimate: there ℓ_a falls and ℓ_b rises. With a tolerance, x and x + tolerance stay in [0, 1]: where
that leaves nothing, x is the nearest end. The certificate needs the least of

    ln(e^both·e^(ℓ_a + ℓ_b) + e^only_a·e^ℓ_a + e^only_b·e^ℓ_b),

of which W is the case both = 0, only_a = only_b = −∞: `Weights`. On affine channels this is convex
in x, being the logarithm of a sum of log-convex functions, and Newton's method finds the least. On
tables it may have several dips, so cells of x are halved until the lower bound of each, from ℓ_a at
its end and ℓ_b at its start, is near the least value that was found.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, feedback_at, reward_at
from whitelie.kernel.divergence import divergence
from whitelie.kernel.jit import jit
from whitelie.kernel.state import State, mean_of

MOST_STEPS = 100
"""Steps of Newton's method; where one leaves the bracket, the bracket is halved."""

MOST_CELLS, MOST_OPEN_CELLS = 4096, 64
"""Cells of x that are looked at on tables, and of them at one time."""

CELL_TOLERANCE = 1e-3
"""How far below the least value found the lower bound of a cell may stay on tables."""


class Pair(NamedTuple):
    """Arms a and b: positions, numbers of reports, mean feedbacks, and their affine channels.

    Arm b is granted the tolerance: its intercept is that at which its reward is so much larger.
    Where `is_tabulated`, a channel of the two is a table, and `tolerance` is added to b's rewards.
    """

    a: int
    b: int
    n_a: float
    n_b: float
    mean_a: float
    mean_b: float
    intercept_a: float
    intercept_b: float
    slope_a: float
    slope_b: float
    tolerance: float
    is_tabulated: bool


class Weights(NamedTuple):
    """The logarithms of the weights of e^(ℓ_a + ℓ_b), e^ℓ_a and e^ℓ_b."""

    both: float
    only_a: float
    only_b: float


class Least(NamedTuple):
    """A lower bound on the least value, met up to rounding or `CELL_TOLERANCE`, and its x."""

    value: float
    x: float


TRANSPORT = Weights(0.0, -math.inf, -math.inf)


@jit
def pair_of(arms: Arms, state: State, a: int, b: int, tolerance: float) -> Pair:
    """Return two arms with their counts; pending decisions count as reports of the same mean."""
    start = arms.table_start
    return Pair(
        a,
        b,
        float(state.pulls[a] + state.pending[a]),
        float(state.pulls[b] + state.pending[b]),
        mean_of(arms, state, a),
        mean_of(arms, state, b),
        arms.intercept[a],
        arms.intercept[b] + arms.slope[b] * tolerance,
        arms.slope[a],
        arms.slope[b],
        tolerance,
        start[a] != start[a + 1] or start[b] != start[b + 1],
    )


@jit
def affine_costs(pair: Pair, x: float) -> tuple[float, float]:
    """Return ℓ_a(x) and ℓ_b(x + tolerance) on affine channels, which never leave [0, 1]."""
    level_a = min(max(pair.intercept_a + pair.slope_a * x, 0.0), 1.0)
    level_b = min(max(pair.intercept_b + pair.slope_b * x, 0.0), 1.0)
    return (
        pair.n_a * divergence(pair.mean_a, level_a),
        pair.n_b * divergence(pair.mean_b, level_b),
    )


@jit
def costs_at(arms: Arms, pair: Pair, x: float) -> tuple[float, float]:
    """Return ℓ_a(x) and ℓ_b(x + tolerance)."""
    if not pair.is_tabulated:
        return affine_costs(pair, x)
    level_a = feedback_at(arms, pair.a, x)
    level_b = feedback_at(arms, pair.b, x + pair.tolerance)
    return (
        pair.n_a * divergence(pair.mean_a, level_a),
        pair.n_b * divergence(pair.mean_b, level_b),
    )


@jit
def combined(cost_a: float, cost_b: float, weights: Weights) -> float:
    """Return ln(e^both·e^(ℓ_a + ℓ_b) + e^only_a·e^ℓ_a + e^only_b·e^ℓ_b)."""
    both = weights.both + cost_a + cost_b
    if both == math.inf or weights.only_a == weights.only_b == -math.inf:
        return both
    only_a, only_b = weights.only_a + cost_a, weights.only_b + cost_b
    return both + math.log1p(math.exp(only_a - both) + math.exp(only_b - both))


@jit
def least(arms: Arms, pair: Pair, weights: Weights) -> Least:
    """Return the least value, and where; −∞ where arm a does not read better, or has no reports."""
    if pair.is_tabulated:
        return least_on_tables(arms, pair, weights)
    return least_on_line(pair, weights)


@jit
def slope_and_bend(mean: float, level: float, rise: float) -> tuple[float, float]:
    """Return the first and second derivative of d(mean, level) in x, where level' = rise."""
    away, variance = level - mean, level * (1 - level)
    bend = (mean * (1 - level) ** 2 + (1 - mean) * level * level) / (variance * variance)
    return rise * away / variance, rise * rise * bend


@jit
def within_unit(low: float, high: float, tolerance: float) -> tuple[float, float]:
    """Return the part of [low, high] in which x and x + tolerance are rewards, or the nearest end.

    Without a tolerance all of it: estimates beyond [0, 1] are compared as they are.
    """
    if tolerance == 0:
        return low, high
    end = 1 - tolerance
    return min(max(low, 0.0), end), min(max(high, 0.0), end)


@jit
def least_on_line(pair: Pair, weights: Weights) -> Least:
    """Return the least value on affine channels, by safeguarded Newton's method.

    It starts at the estimate of both arms pooled: the place itself, if they have one channel and
    W is asked for. A convex function is nowhere below its tangent, so value − |slope|·(width of
    the bracket) is a lower bound on the least, whenever the steps end.
    """
    low = (pair.mean_b - pair.intercept_b) / pair.slope_b
    high = (pair.mean_a - pair.intercept_a) / pair.slope_a
    if not low < high or pair.n_a == 0 or pair.n_b == 0:
        return Least(-math.inf, high)
    low, high = within_unit(low, high, pair.tolerance)
    if low == high:
        return Least(combined(*affine_costs(pair, low), weights), low)
    x = (pair.n_a * high + pair.n_b * low) / (pair.n_a + pair.n_b)
    same = pair.slope_a == pair.slope_b and pair.intercept_a == pair.intercept_b
    if same and weights.only_a == weights.only_b == -math.inf:
        cost_a, cost_b = affine_costs(pair, x)
        return Least(weights.both + cost_a + cost_b, x)
    value, first = -math.inf, 0.0
    for _ in range(MOST_STEPS):
        level_a = pair.intercept_a + pair.slope_a * x
        level_b = pair.intercept_b + pair.slope_b * x
        if level_a <= 0 or level_b >= 1:
            if level_a <= 0:
                low = x
            else:
                high = x
            x = (low + high) / 2
            continue
        cost_a, cost_b = affine_costs(pair, x)
        value = combined(cost_a, cost_b, weights)
        first_a, second_a = slope_and_bend(pair.mean_a, level_a, pair.slope_a)
        first_b, second_b = slope_and_bend(pair.mean_b, level_b, pair.slope_b)
        first_a, second_a = pair.n_a * first_a, pair.n_a * second_a
        first_b, second_b = pair.n_b * first_b, pair.n_b * second_b
        share_a = math.exp(weights.only_a + cost_a - value)
        share_b = math.exp(weights.only_b + cost_b - value)
        first = (1 - share_b) * first_a + (1 - share_a) * first_b
        second = (1 - share_b) * (second_a + first_a * first_a)
        second += (1 - share_a) * (second_b + first_b * first_b)
        second += 2 * (1 - share_a - share_b) * first_a * first_b - first * first
        if first < 0:
            low = x
        else:
            high = x
        if abs(first) * (high - low) <= 1e-10 or high - low <= 1e-15 * abs(x):
            break
        x -= first / second
        if not low < x < high:
            x = (low + high) / 2
    return Least(value - abs(first) * (high - low), x)


@jit
def least_on_tables(arms: Arms, pair: Pair, weights: Weights) -> Least:
    """Return the least value where a channel is a table, by halving cells; undecided ones count."""
    low = reward_at(arms, pair.b, pair.mean_b) - pair.tolerance
    high = reward_at(arms, pair.a, pair.mean_a)
    if not low < high or pair.n_a == 0 or pair.n_b == 0:
        return Least(-math.inf, high)
    low, high = within_unit(low, high, pair.tolerance)
    cells = np.empty((MOST_OPEN_CELLS, 2))
    cells[0, 0], cells[0, 1] = low, high
    count, smallest, place, bound = 1, math.inf, low, math.inf
    for looked in range(MOST_CELLS + MOST_OPEN_CELLS):
        if count == 0:
            break
        count -= 1
        u, v = cells[count, 0], cells[count, 1]
        lower = combined(costs_at(arms, pair, v)[0], costs_at(arms, pair, u)[1], weights)
        middle = (u + v) / 2
        full = looked >= MOST_CELLS or count + 2 > MOST_OPEN_CELLS or not u < middle < v
        if full or lower >= smallest - CELL_TOLERANCE:
            bound = min(bound, lower)
            continue
        cost_a, cost_b = costs_at(arms, pair, middle)
        value = combined(cost_a, cost_b, weights)
        if value < smallest:
            smallest, place = value, middle
        cells[count, 0], cells[count, 1] = middle, v
        cells[count + 1, 0], cells[count + 1, 1] = u, middle
        count += 2
    return Least(min(bound, smallest), place)
