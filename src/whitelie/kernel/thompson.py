"""One replicate of Thompson sampling, fast: most draws need not be drawn.

Fix levels v_1 > … > v_14 on the scale of rewards, with v_0 = ∞ and v_15 = −∞. For every arm k keep
its tails q_k(m) = P(g_k^-1(θ_k) > v_m). One uniform number then says in which cell (v_{m+1}, v_m]
the largest value lies, since P(max ≤ v_m) = Π_k (1 − q_k(m)), and which arm is alone in that cell,
as nearly always one is: it wins undrawn. Several arms in one cell are drawn from their posteriors
truncated to it. The distribution of choices is that of drawing all arms, exactly.

A pull changes the tails of one arm by the recurrences of the incomplete beta function: with
h = x^a·(1 − x)^b / B(a, b), one more success raises the tail by h/a and multiplies h by
x·(a + b)/a; one more failure lowers it by h/b and multiplies h by (1 − x)·(a + b)/b. The levels are
laid anew when the counts have grown by half, which also keeps rounding from accumulating.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.game import Game, bit, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.truncated import Interval, draw_between, tail_and_step
from whitelie.kernel.words import ZERO, Word, uniform, word

COLUMNS = 16
# P(max ≤ v_m) that the levels aim at. Any are right; with these, equal arms rarely share a cell.
TARGETS = np.linspace(1, 0, COLUMNS) ** 2
GRID = 48
SMALLEST = 1e-17  # no uniform number is below: a cell down to such a probability has no bottom


class Posterior(NamedTuple):
    """Per arm: the parameters of Beta(a, b), the posterior of its mean feedback."""

    a: Array
    b: Array


class Tails(NamedTuple):
    """Per arm (row) and level (column): g(level) in [0, 1], the tail above it, and h there."""

    point: Array
    tail: Array
    step: Array


class Cell(NamedTuple):
    """Where the largest value lies: between the levels `bottom` and `top`.

    With the word from which the decision is drawn.
    """

    top: int
    bottom: int
    seed: Word


@jit
def lay_levels(game: Game, posterior: Posterior, levels: Array) -> None:
    """Set the levels near the quantiles of the largest value, by a normal approximation."""
    size = len(posterior.a)
    mean, spread = np.empty(size), np.empty(size)
    low, high = -math.inf, -math.inf
    for k in range(size):
        a, b = posterior.a[k], posterior.b[k]
        n, slope = a + b, game.arms.slope[k]
        mean[k] = (a / n - game.arms.intercept[k]) / slope
        spread[k] = math.sqrt(a * b / (n + 1)) / (n * slope)
        low = max(low, mean[k] - 3.5 * spread[k])
        high = max(high, mean[k] + 4 * spread[k])
    m = COLUMNS - 2
    last_level, last = low, 0.0
    for i in range(GRID):
        level = low + (high - low) * i / (GRID - 1)
        below = 1.0
        for k in range(size):
            below *= 0.5 * math.erfc((mean[k] - level) / (spread[k] * 1.4142135623730951))
        while m > 0 and below >= TARGETS[m]:
            share = (TARGETS[m] - last) / (below - last) if below > last else 1.0
            levels[m] = last_level + share * (level - last_level)
            m -= 1
        last_level, last = level, below
    while m > 0:
        levels[m] = high
        m -= 1


@jit
def lay_tails(game: Game, posterior: Posterior, levels: Array, tails: Tails) -> None:
    """Compute every arm's tails at the levels from scratch."""
    for k in range(len(posterior.a)):
        a, b = posterior.a[k], posterior.b[k]
        for m in range(1, COLUMNS - 1):
            x = game.arms.intercept[k] + game.arms.slope[k] * levels[m]
            x = min(max(x, 0.0), 1.0)
            tails.point[k, m] = x
            tails.tail[k, m], tails.step[k, m] = tail_and_step(a, b, x)
        tails.point[k, 0], tails.tail[k, 0], tails.step[k, 0] = 1.0, 0.0, 0.0
        last = COLUMNS - 1
        tails.point[k, last], tails.tail[k, last], tails.step[k, last] = 0.0, 1.0, 0.0


@jit
def multiply_all(tails: Tails, below: Array) -> None:
    """Set below[m] = P(all arms ≤ level m)."""
    for m in range(COLUMNS):
        below[m] = 1.0
        for k in range(tails.tail.shape[0]):
            below[m] *= 1 - tails.tail[k, m]


@jit
def set_aside(tails: Tails, below: Array, arm: int, others: Array) -> None:
    """Set others[m] = P(all arms but one ≤ level m), from below[m] = P(all arms ≤ level m)."""
    for m in range(COLUMNS):
        own = 1 - tails.tail[arm, m]
        if own > 1e-200:
            others[m] = below[m] / own
        else:
            others[m] = 1.0
            for k in range(tails.tail.shape[0]):
                if k != arm:
                    others[m] *= 1 - tails.tail[k, m]


@jit
def draw_value(game: Game, tails: Tails, posterior: Posterior, k: int, cell: Cell) -> float:
    """Return a draw of arm k's reward, given that it lies in the cell."""
    top, bottom = cell.top, cell.bottom
    mass = tails.tail[k, bottom] - tails.tail[k, top]
    interval = Interval(tails.point[k, bottom], tails.point[k, top], mass)
    seed = word(cell.seed, 2 * k + 2)
    theta = draw_between(posterior.a[k], posterior.b[k], interval, seed)
    return (theta - game.arms.intercept[k]) / game.arms.slope[k]


@jit
def odds(tail: Array, k: int, m: int) -> float:
    """Return the odds that arm k is in cell m rather than below it."""
    below = tail[k, m + 1]
    return (below - tail[k, m]) / (1 - below)


@jit
def lone_winner(tail: Array, m: int, hand: int, target: float) -> int:
    """Return the arm, other than the one in hand, that is alone in cell m; −1 if there are several.

    With P = P(all arms below the cell), arm k is alone in it with probability P·odds. The target is
    the decision's uniform number beyond P and beyond P·odds of the arm in hand, as a multiple of P.
    """
    for k in range(tail.shape[0]):
        if k != hand:
            target -= odds(tail, k, m)
            if target < 0:
                return k
    return -1


@jit
def weight(least: int, product: float, total: float) -> float:
    """Return the weight of all sets of at least 0, 1 or 2 arms; a set weighs Π of its odds.

    From the product of 1 + odds and the sum of the odds.
    """
    if least == 0:
        return product
    return max(product - 1 if least == 1 else product - 1 - total, 0.0)


@jit
def best_of_several(game: Game, tails: Tails, posterior: Posterior, cell: Cell) -> int:
    """Return the winner, given that two or more arms lie in the cell: those that do are drawn.

    Each arm's presence is drawn given how many are still needed, by the weights of the sets of arms
    behind it. In a cell without a bottom all arms are present.
    """
    size = len(posterior.a)
    bottomless = cell.bottom == COLUMNS - 1
    least, best, best_value = ZERO + 2, 0, -math.inf
    product, total = 1.0, 0.0
    for k in range(0 if bottomless else size):
        chance = odds(tails.tail, k, cell.top)
        product *= 1 + chance
        total += chance
    for k in range(size):
        if not bottomless:
            chance = odds(tails.tail, k, cell.top)
            product /= 1 + chance
            total -= chance
            present = chance * weight(max(least - 1, ZERO), product, total)
            absent = weight(least, product, total)
            if uniform(word(cell.seed, 2 * k + 1)) * (present + absent) >= present:
                continue
            least = max(least - 1, ZERO)
        value = draw_value(game, tails, posterior, k, cell)
        if value > best_value:
            best, best_value = k, value
    return best


@jit
def update_tails(tail: Array, step: Array, point: Array, a: float, b: float, success: bool) -> None:
    """Bring the tails in hand up to date with one more success or failure."""
    rise = 1 / a if success else -1 / b
    factor = (a + b) * abs(rise)
    start, slope = (0.0, factor) if success else (factor, -factor)
    for m in range(len(tail)):
        tail[m] = max(tail[m] + step[m] * rise, 0.0)
        step[m] *= start + slope * point[m]


@jit
def cell_of(u: float, others: Array, tail: Array) -> int:
    """Return the cell of the largest value: the last level that it is below with more than u."""
    m = -1
    for i in range(len(tail)):
        m += others[i] * (1 - tail[i]) > u
    return min(m, COLUMNS - 2)


@jit
def take(tails: Tails, hand: Tails, k: int) -> None:
    """Take arm k's tails in hand."""
    for m in range(len(hand.tail)):
        hand.point[m] = tails.point[k, m]
        hand.tail[m] = tails.tail[k, m]
        hand.step[m] = tails.step[k, m]


@jit
def put(tails: Tails, hand: Tails, k: int) -> None:
    """Put what is in hand back as arm k's tails."""
    for m in range(len(hand.tail)):
        tails.tail[k, m] = hand.tail[m]
        tails.step[k, m] = hand.step[m]


@jit
def run_thompson(game: Game, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    pulls = np.zeros(size, dtype=np.int64)
    posterior = Posterior(np.ones(size), np.ones(size))
    tails = Tails(np.zeros((size, COLUMNS)), np.zeros((size, COLUMNS)), np.zeros((size, COLUMNS)))
    # The arm pulled last is in hand: its own small arrays. Loops over their len() are vectorised;
    # over a constant number of columns they would be unrolled instead.
    point, tail, step = np.zeros(COLUMNS), np.zeros(COLUMNS), np.zeros(COLUMNS)
    hand = Tails(point, tail, step)
    levels, others, below = np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS)
    arm, t, renewal = ZERO, ZERO, ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            if t >= renewal:
                lay_levels(game, posterior, levels)
                lay_tails(game, posterior, levels, tails)
                multiply_all(tails, below)
                set_aside(tails, below, arm, others)
                take(tails, hand, arm)
                renewal = t + max(16, t // 2)
            decision = word(streams.decision_key, t)
            u = uniform(decision)
            m = cell_of(u, others, tail)
            none = others[m + 1] * (1 - tail[m + 1])
            excess = u - none - others[m + 1] * (tail[m + 1] - tail[m])
            if excess >= 0:
                put(tails, hand, arm)
                winner = -1
                if none > SMALLEST:
                    winner = lone_winner(tails.tail, m, arm, excess / none)
                if winner < 0:
                    bottom = m + 1 if none > SMALLEST else COLUMNS - 1
                    cell = Cell(m, bottom, decision)
                    winner = best_of_several(game, tails, posterior, cell)
                if winner != arm:
                    for i in range(COLUMNS):
                        below[i] = others[i] * (1 - tail[i])
                    set_aside(tails, below, winner, others)
                    take(tails, hand, winner)
                    arm = winner
            a, b = posterior.a[arm], posterior.b[arm]
            one = bit(streams.arm_keys[arm], pulls[arm], game.thresholds[arm])
            success = one != game.arms.mirrored[arm]
            update_tails(tail, step, point, a, b, success)
            posterior.a[arm] += success
            posterior.b[arm] += not success
            pulls[arm] += 1
            t += 1
        history[c] = pulls
    return history
