"""One replicate in batches, for horizons of millions: what planning simulates.

The decisions of a batch are taken together, on the counts at its beginning, and their feedback
arrives together at its end, as in a live system with that much delay. Only this delay is
approximate; what the policy does within it is simulated as `decide` would do it:

- Thompson sampling draws every decision of a batch from one posterior, so the number of decisions
  for each arm is multinomial over the probabilities of being best.
- kl-UCB and UCB count pending decisions in N. Choosing the largest index n times in a row then is
  filling arms to a common level, which is found without going through the n decisions.

Feedback is binomial. Affine channels only.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.beta import beta
from whitelie.kernel.binomial import binomial, multinomial
from whitelie.kernel.choice import (
    TS_RULE,
    UCB_RULE,
    Rule,
    State,
    choose,
    exploration,
    fill_words,
    index,
    mean_of,
)
from whitelie.kernel.divergence import divergence
from whitelie.kernel.game import Game, new_state, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.truncated import tail_and_step
from whitelie.kernel.words import ZERO, Word, word

FEW, SOME = 6, 32
"""So many Thompson decisions are drawn one by one, SOME where counts are small: it is quicker."""

MANY = 40.0
"""Where both Beta parameters exceed this, Cornish and Fisher's expansion serves for the tails."""

LOWEST, HIGHEST, PANEL = -4.5, 5.5, 2.0
"""Where integration begins and ends, and the width of its panels, in deviations of an arm."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)

PER_UNIT, REACH = 16, 8
TABLE_Z = np.arange(-REACH * PER_UNIT, REACH * PER_UNIT + 2) / PER_UNIT
NORMAL_DENSITY = np.exp(-TABLE_Z * TABLE_Z / 2) / math.sqrt(2 * math.pi)
NORMAL_BELOW = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in TABLE_Z])


class Posterior(NamedTuple):
    """An arm's value g^-1(θ), θ ~ Beta(a, b), g(x) = intercept + slope·x: mean and deviation.

    With u = (value − mean)/spread, Cornish and Fisher's z is ((cubic·u + square)·u + line)·u −
    square.
    """

    a: float
    b: float
    intercept: float
    slope: float
    mean: float
    spread: float
    cubic: float
    square: float
    line: float


@jit
def posterior_of(game: Game, state: State, k: int) -> Posterior:
    """Return what Thompson sampling draws arm k's value from.

    With skewness γ and excess κ of Beta(a, b), u = (θ − mean)/deviation is, to the order of 1/n,
    as likely as a normal z = u − γ·(u² − 1)/6 − κ·(u³ − 3u)/24 + γ²·(4u³ − 7u)/36 (Cornish and
    Fisher, 1938).
    """
    ones = state.pulls[k] - state.successes[k] if game.arms.mirrored[k] else state.successes[k]
    a, b = ones + 1.0, state.pulls[k] - ones + 1.0
    intercept, slope = game.arms.intercept[k], game.arms.slope[k]
    n, product = a + b, a * b
    skewness = 2 * (b - a) * math.sqrt((n + 1) / product) / (n + 2)
    excess = 6 * ((a - b) ** 2 * (n + 1) / product - (n + 2)) / ((n + 2) * (n + 3))
    return Posterior(
        a,
        b,
        intercept,
        slope,
        (a / n - intercept) / slope,
        math.sqrt(product / (n + 1)) / (n * slope),
        skewness * skewness / 9 - excess / 24,
        -skewness / 6,
        1 + excess / 8 - 7 * skewness * skewness / 36,
    )


@jit
def normal(z: float) -> tuple[float, float]:
    """Return Φ(z) and its density, by cubic interpolation with an error below 10^-7."""
    if z >= REACH:
        return 1.0, 0.0
    if z <= -REACH:
        return 0.0, 0.0
    place = (z + REACH) * PER_UNIT
    i = int(place)
    s = place - i
    start, end = NORMAL_DENSITY[i] / PER_UNIT, NORMAL_DENSITY[i + 1] / PER_UNIT
    rise = NORMAL_BELOW[i + 1] - NORMAL_BELOW[i]
    square, cube = 3 * rise - 2 * start - end, start + end - 2 * rise
    below = NORMAL_BELOW[i] + s * (start + s * (square + s * cube))
    return below, (start + s * (2 * square + 3 * s * cube)) * PER_UNIT


@jit
def below(posterior: Posterior, value: float) -> tuple[float, float]:
    """Return P(g^-1(θ) ≤ value) and its density; exact where a parameter is small."""
    if min(posterior.a, posterior.b) < MANY:
        x = posterior.intercept + posterior.slope * value
        tail, step = tail_and_step(posterior.a, posterior.b, x)
        return 1 - tail, step / (x * (1 - x)) * posterior.slope if 0 < x < 1 else 0.0
    u = (value - posterior.mean) / posterior.spread
    if abs(u) > 7:
        return (1.0 if u > 0 else 0.0), 0.0
    cubic, square, line = posterior.cubic, posterior.square, posterior.line
    share, density = normal(((cubic * u + square) * u + line) * u - square)
    steepness = max((3 * cubic * u + 2 * square) * u + line, 0.0) / posterior.spread
    return share, density * steepness


@jit
def lay_nodes(ends: Array, spreads: Array, low: float, high: float) -> Array:
    """Return nodes (row 0) and weights (row 1) of Gauss and Legendre's rule from low to high.

    The panels are as wide as two deviations of the sharpest arm whose end is not yet passed.
    """
    nodes = np.empty((2, 4 * (8 * len(ends) + 8)))
    count = 0
    while low < high and count < nodes.shape[1]:
        sharpest = high - low
        for k in range(len(ends)):
            if low < ends[k] and spreads[k] < sharpest:
                sharpest = spreads[k]
        width = min(PANEL * sharpest, high - low)
        for i in range(4):
            nodes[0, count + i] = low + width * (NODES[i] + 1) / 2
            nodes[1, count + i] = WEIGHTS[i] * width
        count += 4
        low += width
    return nodes[:, :count]


@jit
def add_products(values: Array, densities: Array, weights: Array, sums: Array) -> None:
    """Add Σ weight·f_i·Π_j≠i F_j over all nodes (columns) to each arm's sum."""
    size, count = values.shape
    for node in range(count):
        product = weights[node]
        for i in range(size):
            densities[i, node] *= product
            product *= values[i, node]
        product = 1.0
        for i in range(size - 1, -1, -1):
            sums[i] += densities[i, node] * product
            product *= values[i, node]


@jit
def fill_shares(game: Game, state: State, shares: Array) -> None:
    """Fill in TS-CF's choice probabilities: of each arm's value g^-1(θ) being the largest.

    ∫ f_k·Π_j≠k F_j for every arm k, with f and F the density and distribution function of its
    value. Arms that are below the range with a probability of 1 − 10^-9 are left out.
    """
    size = len(shares)
    ends, spreads = np.empty(size), np.empty(size)
    low, high, least, most = -math.inf, -math.inf, math.inf, -math.inf
    for k in range(size):
        posterior = posterior_of(game, state, k)
        spreads[k] = posterior.spread
        ends[k] = posterior.mean + (HIGHEST - 1) * posterior.spread
        low = max(low, posterior.mean + LOWEST * posterior.spread)
        high = max(high, posterior.mean + HIGHEST * posterior.spread)
        least = min(least, -posterior.intercept / posterior.slope)
        most = max(most, (1 - posterior.intercept) / posterior.slope)
    low, high = max(low, least), min(high, most)
    nodes = lay_nodes(ends, spreads, low, high)
    values, densities = np.empty((size, nodes.shape[1])), np.empty((size, nodes.shape[1]))
    members = np.empty(size, dtype=np.int64)
    count = 0
    for k in range(size):
        shares[k] = 0.0
        posterior = posterior_of(game, state, k)
        if below(posterior, low)[0] < 1 - 1e-9:
            for i in range(nodes.shape[1]):
                values[count, i], densities[count, i] = below(posterior, nodes[0, i])
            members[count] = k
            count += 1
    sums = np.zeros(count)
    add_products(values[:count], densities[:count], nodes[1], sums)
    total = sums.sum()
    for i in range(count):
        shares[members[i]] = sums[i] / total


@jit
def has_small_counts(state: State) -> bool:
    """Whether some arm has had few ones, or few zeros."""
    for k in range(len(state.pulls)):
        if min(state.successes[k], state.pulls[k] - state.successes[k]) < MANY:
            return True
    return False


@jit
def needed(rule: Rule, mean: float, level: float, f: float) -> tuple[float, float]:
    """Return f/d(mean, level), the N at which an arm's upper end is the level, and its slope.

    d is kl-UCB's divergence, or 2·(level − mean)² for UCB.
    """
    if rule.code == UCB_RULE:
        count = f / (2 * (level - mean) ** 2)
        return count, -2 * count / (level - mean)
    if level >= 1:
        return 0.0, 0.0
    count = f / divergence(mean, level)
    return count, -count * count / f * (level - mean) / (level * (1 - level))


@jit
def fill_levels(game: Game, state: State, n: int, key: Word) -> None:
    """Make n decisions pending by the index rule, each pending for those after it.

    An arm is chosen until its index falls to a common level, and all together n times: Newton's
    method on Σ max(f/d(λ̂_k, g_k(level)) − N_k, 0) = n, which is convex, from below. Decisions
    within rounding of the level go through the live choice rule.
    """
    rule, arms = game.rule, game.arms
    size = len(state.pulls)
    words = np.empty(size, dtype=np.uint64)
    if n == 1:
        fill_words(key, ZERO, words)
        state.pending[choose(rule, arms, state, words)] = 1
        return
    f = exploration(rule, state.pulls.sum())
    level = -math.inf
    means = np.empty(size)
    for k in range(size):
        means[k] = mean_of(arms, state, k)
        state.pending[k] = n
        level = max(level, index(rule, arms, state, k, f))
        state.pending[k] = 0
    for _ in range(100):
        excess, slope = -float(n), 0.0
        for k in range(size):
            at = arms.intercept[k] + arms.slope[k] * level
            count, steepness = needed(rule, means[k], at, f)
            if count > state.pulls[k]:
                excess += count - state.pulls[k]
                slope += steepness * arms.slope[k]
        if excess <= 0.5 or slope == 0:
            break
        level -= excess / slope
    left = n
    for k in range(size):
        count = needed(rule, means[k], arms.intercept[k] + arms.slope[k] * level, f)[0]
        state.pending[k] = int(min(max(count - state.pulls[k], 0.0), float(left)))
        left -= state.pending[k]
    for i in range(left):
        fill_words(key, i, words)
        state.pending[choose(rule, arms, state, words)] += 1


@jit
def draw_decisions(game: Game, state: State, n: int, key: Word) -> None:
    """Make n Thompson decisions pending, one by one, with the words that `decide` would use."""
    size = len(state.pulls)
    values, best = np.full(n, -math.inf), np.zeros(n, dtype=np.int64)
    for k in range(size):
        posterior = posterior_of(game, state, k)
        for i in range(n):
            theta = beta(posterior.a, posterior.b, word(word(key, i), k))
            value = (theta - posterior.intercept) / posterior.slope
            if value > values[i]:
                values[i], best[i] = value, k
    for arm in best:
        state.pending[arm] += 1


@jit
def run_batches(game: Game, seed: Word, replicate: int, ends: Array) -> tuple[Array, Array]:
    """Return pulls and successes of each arm (column) at every batch's end (row)."""
    size = len(game.thresholds)
    pulls = np.empty((len(ends), size), dtype=np.int64)
    successes = np.empty((len(ends), size), dtype=np.int64)
    streams = streams_of(seed, replicate, size)
    state = new_state(size)
    shares = np.empty(size)
    t = ZERO
    for batch in range(len(ends)):
        n = ends[batch] - t
        key = word(streams.decision_key, batch)
        if game.rule.code != TS_RULE:
            fill_levels(game, state, n, key)
        elif n <= (SOME if has_small_counts(state) else FEW):
            draw_decisions(game, state, n, key)
        else:
            fill_shares(game, state, shares)
            multinomial(n, shares, key, state.pending)
        for k in range(size):
            if state.pending[k] > 0:
                chance = float(game.thresholds[k]) * 2.0**-63
                ones = binomial(state.pending[k], chance, word(streams.arm_keys[k], batch))
                state.successes[k] += ones
                state.pulls[k] += state.pending[k]
                state.pending[k] = 0
        pulls[batch] = state.pulls
        successes[batch] = state.successes
        t = ends[batch]
    return pulls, successes
