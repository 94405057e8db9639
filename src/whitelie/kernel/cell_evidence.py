"""Mixtures over reports in cells: intervals, and evidence that an arm is better than another.

As in `evidence.py`, with e^−L in place of a Beta likelihood: under the truth, the mean of
e^(L(q) − L(q')) over a prior of q' is a martingale that begins at 1, whichever mechanism is chosen
for a report before its outcome is known. A prior is Beta(a, b) on t = (q − low)/(high − low), for
which the two-cell case is that of the mean feedback. Integrals are by Gauss–Legendre quadrature on
panels around the mode, which is exact to about 10^-12: the integrand is analytic and log-concave.
"""

import math

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.cells import (
    Cells,
    CellState,
    Likelihood,
    estimate_of,
    excess,
    last_within,
    least_point,
    likelihood,
    slopes,
)
from whitelie.kernel.evidence import LOG_BOTH, LOG_ONLY, Test, log_mean
from whitelie.kernel.jit import jit
from whitelie.kernel.transport import TRANSPORT, Weights, combined, within_unit
from whitelie.kernel.words import ZERO

HALVINGS = 60
"""How often the span of common rewards is halved: to the last digit."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
NEGLIGIBLE = 60.0
"""Beyond an excess of this, nothing is added to an integral."""


@jit
def log_area(of: Likelihood, start: float) -> float:
    """Return ln of the mean of e^−(L(q) − L(start)) over D, where L is least at start."""
    first, second = slopes(of, start)
    width = of.high - of.low
    reach = width
    if second > 0:
        reach = min(reach, 1 / math.sqrt(second))
    if first != 0:
        reach = min(reach, 1 / abs(first))
    total = 0.0
    for side in (-1.0, 1.0):
        end = of.high if side > 0 else of.low
        near, span = start, reach
        while (end - near) * side > 0:
            far = near + side * span
            if (end - far) * side < 0:
                far = end
            if excess(of, near, start) > NEGLIGIBLE:
                break
            half, centre = 0.5 * abs(far - near), 0.5 * (far + near)
            for i in range(len(NODES)):
                total += half * WEIGHTS[i] * math.exp(-excess(of, centre + half * NODES[i], start))
            near = far
            span *= 1.5
    return math.log(total / width)


@jit
def with_prior(of: Likelihood, a: float, b: float) -> Likelihood:
    """Return the likelihood times a Beta(a, b) density of t, a and b at least 1, but for a factor.

    A density is two more cells: (a − 1) reports of probability t, (b − 1) of 1 − t.
    """
    size, width = len(of.n), of.high - of.low
    rows = np.empty((3, size + 2))
    rows[0, :size], rows[1, :size], rows[2, :size] = of.n, of.u, of.v
    used = ZERO + size
    for n, u, v in ((a - 1, -of.low / width, 1 / width), (b - 1, of.high / width, -1 / width)):
        if n > 0:
            rows[0, used], rows[1, used], rows[2, used] = n, u, v
            used += 1
    return Likelihood(rows[0, :used], rows[1, :used], rows[2, :used], of.low, of.high)


@jit
def penalty_of_cells(of: Likelihood, at: float, a: float, b: float) -> float:
    """Return C = −ln of the mean of e^−(L(q) − L(at)) under Beta(a, b), a and b at least 1."""
    if len(of.n) == 0:
        return 0.0
    both = with_prior(of, a, b)
    mode = least_point(both, at)
    t = (mode - of.low) / (of.high - of.low)
    log_density = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    if a > 1:
        log_density += (a - 1) * math.log(t)
    if b > 1:
        log_density += (b - 1) * math.log1p(-t)
    return excess(of, mode, at) - log_density - log_area(both, mode)


@jit
def cell_interval(arms: Cells, state: CellState, k: int, alpha: float) -> tuple[float, float]:
    """Return the mean rewards of D that the reports on arm k do not reject at level alpha.

    {q : L(q) − min L ≤ ln(1/α) − ln of the mean of e^−(L − min L) over D}: the uniform mixture over
    D is a martingale under the truth, so by Ville's inequality the truth is *ever* outside with
    probability at most alpha.
    """
    if state.pulls[k] == 0:
        return arms.low[k], arms.high[k]
    of, at = likelihood(arms, state, k), estimate_of(arms, state, k)
    budget = -math.log(alpha) - log_area(of, at)
    return last_within(of, at, budget, of.low), last_within(of, at, budget, of.high)


@jit
def fill_cell_penalties(of: Likelihood, at: float, a: Array, b: Array, penalties: Array) -> None:
    """Fill in C of an arm under each component of the prior."""
    for j in range(len(penalties)):
        penalties[j] = penalty_of_cells(of, at, a[j], b[j])


@jit
def least_over_cells(
    two: tuple[Likelihood, Likelihood],
    at: tuple[float, float],
    tolerance: float,
    weights: Weights,
) -> float:
    """Return the least of ln(e^both·e^(ℓ_a + ℓ_b) + e^only_a·e^ℓ_a + e^only_b·e^ℓ_b), from below.

    ℓ_a is the excess of arm a at x, ℓ_b that of arm b at x + tolerance. It is convex in x, so that
    value − |slope|·width is a lower bound. −∞ where arm a does not read better.
    """
    of_a, of_b = two
    low, high = at[1] - tolerance, at[0]
    if not low < high:
        return -math.inf
    low, high = within_unit(low, high, tolerance)
    low, high = max(low, of_a.low), min(high, of_b.high - tolerance)
    value, first, x = -math.inf, 0.0, low
    for _ in range(HALVINGS if low < high else 1):
        x = 0.5 * (low + high)
        cost_a, cost_b = excess(of_a, x, at[0]), excess(of_b, x + tolerance, at[1])
        value = combined(cost_a, cost_b, weights)
        share_a = math.exp(weights.only_a + cost_a - value)
        share_b = math.exp(weights.only_b + cost_b - value)
        first = (1 - share_b) * slopes(of_a, x)[0] + (1 - share_a) * slopes(of_b, x + tolerance)[0]
        if first < 0:
            low = x
        else:
            high = x
    return value - abs(first) * (high - low)


@jit
def evidence_of_cells(arms: Cells, state: CellState, test: Test, leader: int) -> Array:
    """Return, by arm (row), Z of the leader against it and the transport cost W; NaN elsewhere."""
    size, log_weight = len(test.active), test.priors.log_weight
    rows = np.full((size, 2), math.nan)
    of_leader, at_leader = likelihood(arms, state, leader), estimate_of(arms, state, leader)
    for_leader, for_rival = np.empty(len(log_weight)), np.empty(len(log_weight))
    fill_cell_penalties(
        of_leader, at_leader, test.priors.a[leader], test.priors.b[leader], for_leader
    )
    for b in range(size):
        if b != leader and test.active[b]:
            of, at = likelihood(arms, state, b), estimate_of(arms, state, b)
            fill_cell_penalties(of, at, test.priors.a[b], test.priors.b[b], for_rival)
            weights = Weights(
                LOG_BOTH + log_mean(log_weight, for_leader + for_rival),
                LOG_ONLY + log_mean(log_weight, for_leader),
                LOG_ONLY + log_mean(log_weight, for_rival),
            )
            two, places = (of_leader, of), (at_leader, at)
            rows[b, 0] = least_over_cells(two, places, test.tolerance, weights)
            rows[b, 1] = least_over_cells(two, places, test.tolerance, TRANSPORT)
    return rows
