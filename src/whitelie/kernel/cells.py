"""Arms whose reports fall into cells: what counts of several mechanisms say of one mean reward.

A report falls into a cell (a mechanism's output, for whoever chose that mechanism), whose
probability is linear in the arm's mean reward: m_c(q) = u_c + v_c·q. With n_c reports in cell c,

    L(q) = −Σ n_c·ln m_c(q)

is convex on D = {q : every m_c(q) ≥ 0}, which contains [0, 1]. Everything follows from it: the
estimate q̂ is its least point, *excess* is L(q) − L(q̂), the index is the largest q of excess at most
f(t), and the posterior has the density e^−L on D. Randomised response is the case of two cells, in
which excess is N·d(λ̂, g(q)), and e^−L a Beta density of the mean feedback.

How many people choose a mechanism does not matter: their share is a factor of m_c, and cancels.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whitelie.channel import AnyChannel, Mechanism, Menu, Monotone, mechanism_of
from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.jit import jit, jit_inline
from whitelie.kernel.words import ZERO, Word, uniform, word

MOST_STEPS = 100
"""Steps of Newton's method; where one leaves the bracket, the bracket is halved."""

MARGIN = 1e-3
"""Relative to the width of D: so far from its ends the search for an estimate starts."""

PRECISION = 1e-13
"""Relative to the width of D: where a step is smaller, it ends."""


class Cells(NamedTuple):
    """Arms (rows) by cell (columns): u and v of m(q) = u + v·q; unused columns have u = 1, v = 0.

    `low` and `high` are the ends of D. `score` and `weight` are those of UCB: by the sign of v
    every mechanism contains a binary channel of slope s and intercept o; a report that speaks for a
    reward scores s·(1 − o), another −s·o, and both weigh s². `mechanisms` is how many there are.
    """

    u: Array
    v: Array
    low: Array
    high: Array
    score: Array
    weight: Array
    mechanisms: Array


class CellState(NamedTuple):
    """What a decision rests on, per arm: as `State`, with reports by cell instead of successes."""

    pulls: Array
    counts: Array
    pending: Array
    available: Array
    memory: Array


def listed(channel: AnyChannel) -> tuple[Mechanism, ...]:
    """Return the mechanisms among which an arm's reports are divided; tables have none."""
    if isinstance(channel, Menu):
        return channel.mechanisms
    if isinstance(channel, Monotone):
        reason = "a tabulated channel has no cells: it cannot stand beside menus and mechanisms"
        raise InvalidInput("channels", channel, reason)
    return (mechanism_of(channel),)


def has_cells(channels: Sequence[AnyChannel]) -> bool:
    """Whether a channel reports more than a bit, so that all are read in cells."""
    return any(isinstance(channel, Mechanism | Menu) for channel in channels)


def cell_probabilities(channels: Sequence[AnyChannel], means: Sequence[float]) -> list[list[float]]:
    """Return the probability of each cell (column) of each arm, with people's shares of a menu."""
    rows = [
        [share * ((1 - mean) * zero + mean * one) for share, zero, one in _weighed(channel)]
        for channel, mean in zip(channels, means, strict=True)
    ]
    most = max(map(len, rows))
    return [row + [0.0] * (most - len(row)) for row in rows]


def _weighed(channel: AnyChannel) -> list[tuple[float, float, float]]:
    """Return the share of people, P(cell | reward 0) and P(cell | reward 1) of every cell."""
    shares = channel.shares if isinstance(channel, Menu) else (1.0,)
    return [
        (share, zero, one)
        for share, mechanism in zip(shares, listed(channel), strict=True)
        for zero, one in mechanism.cells
    ]


def cell_divergence(channel: AnyChannel, mean: float, other: float) -> float:
    """Return the divergence of a report's distribution at a mean reward from that at another."""
    terms = []
    for share, zero, one in _weighed(channel):
        p, q = (1 - mean) * zero + mean * one, (1 - other) * zero + other * one
        if p > 0:
            terms.append(share * p * math.log(p / q) if q > 0 else math.inf)
    return max(math.fsum(terms), 0.0)


def cell_steepness(channel: AnyChannel, mean: float, other: float) -> float:
    """Return the derivative of `cell_divergence` in the other mean reward."""
    terms = []
    for share, zero, one in _weighed(channel):
        p, q = (1 - mean) * zero + mean * one, (1 - other) * zero + other * one
        if p > 0 and one != zero:
            terms.append(-share * p * (one - zero) / q)
    return math.fsum(terms)


def pack_cells(channels: Sequence[AnyChannel]) -> Cells:
    """Return the arms as cells."""
    columns = max(sum(one.outputs for one in listed(channel)) for channel in channels)
    u, v = np.ones((len(channels), columns)), np.zeros((len(channels), columns))
    score, weight = np.zeros_like(u), np.zeros_like(u)
    for k, channel in enumerate(channels):
        place = 0
        for mechanism in listed(channel):
            at = slice(place, place + mechanism.outputs)
            zero, one = np.array(mechanism.cells).T
            u[k, at], v[k, at] = zero, one - zero
            speaks, slope = one > zero, mechanism.slope
            score[k, at] = slope * (speaks - zero[speaks].sum())
            weight[k, at] = slope * slope
            place += mechanism.outputs
    with np.errstate(divide="ignore"):
        ends = np.where(v == 0, np.inf, -u / np.where(v == 0, 1, v))
    return Cells(
        u=u,
        v=v,
        low=np.where(v > 0, ends, -np.inf).max(axis=1),
        high=np.where(v < 0, ends, np.inf).min(axis=1),
        score=score,
        weight=weight,
        mechanisms=np.array([len(listed(channel)) for channel in channels]),
    )


@jit
def new_cell_state(size: int, cells: int) -> CellState:
    """Return the state before any feedback."""
    zeros = np.zeros(size, dtype=np.int64)
    counts = np.zeros((size, cells), dtype=np.int64)
    available = np.ones(size, dtype=np.bool_)
    return CellState(zeros, counts, zeros.copy(), available, np.empty((0, 0)))


@jit_inline
def middle(arms: Cells, k: int) -> float:
    """Return the middle of D: where an arm without reports is."""
    return 0.5 * (arms.low[k] + arms.high[k])


class Likelihood(NamedTuple):
    """The reports on one arm by cell, the cells that have any: numbers, u and v; and D."""

    n: Array
    u: Array
    v: Array
    low: float
    high: float


@jit
def likelihood(arms: Cells, state: CellState, k: int) -> Likelihood:
    """Return what the reports on arm k say, with those that are pending."""
    return likelihood_with(arms, state, k, state.pending[k])


@jit
def likelihood_with(arms: Cells, state: CellState, k: int, pending: int) -> Likelihood:
    """Return what the reports on arm k say, with so many pending ones.

    Pending decisions count as reports of the same distribution; without any report, of that in the
    middle of D, with every mechanism equally often.
    """
    size = arms.u.shape[1]
    rows = np.empty((3, size))
    pulls, used = state.pulls[k], ZERO
    scale = 1 + pending / pulls if pulls > 0 else pending / arms.mechanisms[k]
    for c in range(size):
        u, v = arms.u[k, c], arms.v[k, c]
        n = float(state.counts[k, c]) if pulls > 0 else u + v * middle(arms, k)
        if v != 0 and n * scale > 0:
            rows[0, used], rows[1, used], rows[2, used] = n * scale, u, v
            used += 1
    return Likelihood(rows[0, :used], rows[1, :used], rows[2, :used], arms.low[k], arms.high[k])


@jit_inline
def slopes(of: Likelihood, q: float) -> tuple[float, float]:
    """Return L'(q) and L''(q) inside of D."""
    first = second = 0.0
    for c in range(len(of.n)):
        ratio = of.v[c] / (of.u[c] + of.v[c] * q)
        first -= of.n[c] * ratio
        second += of.n[c] * ratio * ratio
    return first, second


@jit_inline
def excess(of: Likelihood, q: float, at: float) -> float:
    """Return L(q) − L(at), without cancellation where the two are near; ∞ at an end of D."""
    total = 0.0
    for c in range(len(of.n)):
        share = of.v[c] * (q - at) / (of.u[c] + of.v[c] * at)
        total += of.n[c] * math.log1p(share) if share > -1 else -math.inf
    return -total


@jit
def weighed_mean(arms: Cells, state: CellState, k: int) -> tuple[float, float]:
    """Return the mean of corrected reports, weighed by squared slopes, and the sum of weights.

    Pending decisions count in the weights, not in the mean; without any report it is the middle.
    """
    pulls, pending = state.pulls[k], state.pending[k]
    score = weight = 0.0
    for c in range(arms.u.shape[1]):
        n = float(state.counts[k, c])
        if pulls == 0 and arms.weight[k, c] > 0:
            n = (arms.u[k, c] + arms.v[k, c] * middle(arms, k)) / arms.mechanisms[k]
        score += n * arms.score[k, c]
        weight += n * arms.weight[k, c]
    return score / weight, weight * (1 + pending / pulls if pulls > 0 else pending)


@jit
def rises_from(of: Likelihood, end: float) -> bool:
    """Whether L is least at an end of D: no report excludes it, and L rises from there inward."""
    first = 0.0
    for c in range(len(of.n)):
        probability = of.u[c] + of.v[c] * end
        if probability <= 1e-12:
            return False
        first -= of.n[c] * of.v[c] / probability
    return first >= 0 if end == of.low else first <= 0


@jit
def least_point(of: Likelihood, start: float) -> float:
    """Return q̂, where L is least: an end of D, or by safeguarded Newton's method from a start."""
    low, high = of.low, of.high
    width = high - low
    if rises_from(of, low):
        return low
    if rises_from(of, high):
        return high
    # Near an end of D a step of Newton's method is as small as the distance to it.
    q = min(max(start, low + MARGIN * width), high - MARGIN * width)
    for _ in range(MOST_STEPS):
        first, second = slopes(of, q)
        if first > 0:
            high = q
        else:
            low = q
        following = q - first / second
        if not low < following < high:
            following = 0.5 * (low + high)
        moved = abs(following - q)
        q = following
        if moved <= PRECISION * width:
            break
    return q


@jit
def estimate_of(arms: Cells, state: CellState, k: int) -> float:
    """Return q̂, where L is least; the middle of D without any report."""
    if state.pulls[k] == 0:
        return middle(arms, k)
    return least_point(likelihood(arms, state, k), weighed_mean(arms, state, k)[0])


@jit
def last_within(of: Likelihood, start: float, budget: float, end: float) -> float:
    """Return the last q from q̂ = start towards an end of D whose excess is at most the budget.

    Newton's method: L is convex, so beyond the root every step stays there.
    """
    inner, outer, width = start, end, of.high - of.low
    if budget <= 0:
        return start
    if excess(of, end, start) <= budget:
        return end
    reach = math.sqrt(2 * budget / slopes(of, start)[1])
    q = start + reach if end > start else start - reach
    for _ in range(MOST_STEPS):
        if (q - inner) * (q - outer) >= 0:
            q = 0.5 * (inner + outer)
        above = excess(of, q, start) - budget
        if above > 0:
            outer = q
        else:
            inner = q
        step = above / slopes(of, q)[0]
        q -= step
        if abs(step) <= PRECISION * width or abs(outer - inner) <= PRECISION * width:
            break
    return q


@jit
def end_of(arms: Cells, state: CellState, k: int, budget: float, upward: bool) -> float:
    """Return the last q, upward or downward from q̂, whose excess is at most the budget."""
    of = likelihood(arms, state, k)
    start = least_point(of, weighed_mean(arms, state, k)[0])
    return last_within(of, start, budget, of.high if upward else of.low)


@jit
def draw_of(arms: Cells, state: CellState, k: int, seed: Word) -> float:
    """Return a mean reward drawn from the density e^−L on D, exactly, by rejection.

    L is convex. So e^−excess lies below a roof: 1 near q̂, and beyond the tangents of L at
    q̂ ± sqrt(2/L'') what these allow. Points are drawn under the roof until one lies below
    e^−excess.
    """
    low, high = arms.low[k], arms.high[k]
    if state.pulls[k] == 0:
        return low + (high - low) * uniform(word(seed, 0))
    of = likelihood_with(arms, state, k, ZERO)
    start = least_point(of, weighed_mean(arms, state, k)[0])
    first, second = slopes(of, start)
    reach = min(math.sqrt(2 / second), 1 / max(abs(first), 1e-300))
    right, right_rate = roof(of, start, start + reach, high)
    left, left_rate = roof(of, start, start - reach, low)
    flat = right - left
    right_area = -math.expm1(-right_rate * (high - right)) / right_rate if right_rate > 0 else 0.0
    left_area = -math.expm1(-left_rate * (left - low)) / left_rate if left_rate > 0 else 0.0
    number = ZERO
    while True:
        place = uniform(word(seed, number)) * (flat + right_area + left_area)
        accepted = math.log(uniform(word(seed, number + 1)))
        number += 2
        if place < flat:
            q, above = left + place, 0.0
        elif place < flat + right_area:
            above = -math.log1p(-right_rate * (place - flat))
            q = right + above / right_rate
        else:
            above = -math.log1p(-left_rate * (place - flat - right_area))
            q = left - above / left_rate
        if low < q < high and accepted <= above - excess(of, q, start):
            return q


@jit_inline
def roof(of: Likelihood, start: float, touch: float, end: float) -> tuple[float, float]:
    """Return where the roof begins to fall towards an end of D, and its rate; (end, 0) if nowhere.

    It falls by the tangent of L at `touch`, from where that crosses L(q̂).
    """
    begin, rate = end, 0.0
    if (touch - start) * (end - touch) > 0:
        slope = abs(slopes(of, touch)[0])
        height = excess(of, touch, start)
        away = abs(touch - start) - height / slope
        if height > 0 and away >= 0:
            begin, rate = start + math.copysign(away, end - start), slope
    return begin, rate


@jit
def least_common(arms: Cells, state: CellState, a: int, b: int) -> tuple[float, float, float]:
    """Return x and the excesses of a and of b at x, whose sum is least; 0 if a reads no better.

    It lies between the two estimates, and is convex.
    """
    of_a, of_b = likelihood(arms, state, a), likelihood(arms, state, b)
    at_a = least_point(of_a, weighed_mean(arms, state, a)[0])
    at_b = least_point(of_b, weighed_mean(arms, state, b)[0])
    width = at_a - at_b
    low, high = max(at_b, of_a.low), min(at_a, of_b.high)
    x = 0.5 * (low + high)
    for _ in range(MOST_STEPS if width > 0 else 0):
        first_a, second_a = slopes(of_a, x)
        first_b, second_b = slopes(of_b, x)
        if first_a + first_b > 0:
            high = x
        else:
            low = x
        following = x - (first_a + first_b) / (second_a + second_b)
        if not low < following < high:
            following = 0.5 * (low + high)
        moved = abs(following - x)
        x = following
        if moved <= PRECISION * width:
            break
    if width <= 0:
        return x, 0.0, 0.0
    return x, excess(of_a, x, at_a), excess(of_b, x, at_b)
