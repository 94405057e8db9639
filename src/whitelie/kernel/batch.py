"""One replicate in batches, for horizons of millions: what planning simulates.

Thompson sampling takes the decisions of a batch together, on the counts at its beginning, as a live
system with that much delay does: the number of decisions for each arm then is multinomial over the
probabilities of being best. Local rules, as kl-UCB and UCB, react to every feedback of an arm that
they try, so a batch is played in turns: the arm of the largest value is pulled as often as makes
1 % of its own pulls, and sees its feedback. What all arms share, as f(t), is that of the batch's
beginning. Feedback is binomial. All other rules decide one by one, and keep no memory here.

Where reports take their time, decisions are made on the counts of some pulls before; pulls since
then are pending, as they are for the live rule.

While turns are single pulls, local rules decide as in `plain.py`, word for word. Affine channels
only.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.beta import beta
from whitelie.kernel.binomial import binomial, multinomial
from whitelie.kernel.choice import choose_among, largest
from whitelie.kernel.game import Game, Streams, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import ByRule, Rule, shared, value
from whitelie.kernel.state import State, new_state
from whitelie.kernel.truncated import tail_and_step
from whitelie.kernel.words import ZERO, ZERO_WORD, Word, word

MOST_DRAWN_SINGLY, MOST_DRAWN_SINGLY_OF_SMALL_COUNTS = 6, 32
"""So many Thompson decisions are drawn one by one: it is quicker."""

PULLS_PER_TURN_PULL = 100
"""A turn of a local rule is one pull for so many pulls of the arm before."""

LEAST_FOR_PAULSON = 20.0
"""Where both Beta parameters exceed this, Paulson's approximation serves for the tails."""

LOWEST, HIGHEST, PANEL = -4.0, 5.5, 2.5
"""Where integration begins and ends, and the width of its panels, in deviations of an arm."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)

PER_UNIT, REACH = 16, 8
TABLE_Z = np.arange(-REACH * PER_UNIT, REACH * PER_UNIT + 2) / PER_UNIT
NORMAL_DENSITY = np.exp(-TABLE_Z * TABLE_Z / 2) / math.sqrt(2 * math.pi)
NORMAL_BELOW = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in TABLE_Z])


class Posterior(NamedTuple):
    """An arm's value g^-1(θ), θ ~ Beta(a, b), g(x) = intercept + slope·x: mean and deviation.

    And 1/(9a), 1/(9b).
    """

    a: float
    b: float
    intercept: float
    slope: float
    mean: float
    spread: float
    in_a: float
    in_b: float


@jit
def posterior_of(game: Game, state: State, k: int) -> Posterior:
    """Return what Thompson sampling draws arm k's value from."""
    ones = state.pulls[k] - state.successes[k] if game.arms.mirrored[k] else state.successes[k]
    a, b = ones + 1.0, state.pulls[k] - ones + 1.0
    intercept, slope = game.arms.intercept[k], game.arms.slope[k]
    mean = (a / (a + b) - intercept) / slope
    spread = math.sqrt(a * b / (a + b + 1)) / ((a + b) * slope)
    return Posterior(a, b, intercept, slope, mean, spread, 1 / (9 * a), 1 / (9 * b))


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
    """Return P(g^-1(θ) ≤ value) and its density.

    Exact where a parameter is small. Else Paulson's approximation (1942): with the cube root c of
    b·θ/(a·(1 − θ)), z = ((1 − 1/(9b))·c − (1 − 1/(9a)))/sqrt(c²/(9b) + 1/(9a)) is nearly normal.
    From a, b = 20 on it is wrong by less than 3·10^-4, and by a sixth of a tail of 10^-6.
    """
    a, b = posterior.a, posterior.b
    if abs(value - posterior.mean) > 9 * posterior.spread and min(a, b) >= LEAST_FOR_PAULSON:
        return (1.0 if value > posterior.mean else 0.0), 0.0
    x = posterior.intercept + posterior.slope * value
    if min(a, b) < LEAST_FOR_PAULSON:
        tail, step = tail_and_step(a, b, x)
        return 1 - tail, step / (x * (1 - x)) * posterior.slope if 0 < x < 1 else 0.0
    if x <= 0 or x >= 1:
        return (1.0 if x >= 1 else 0.0), 0.0
    root = np.cbrt(b * x / (a * (1 - x)))
    in_b, in_a = posterior.in_b, posterior.in_a
    scale = 1 / math.sqrt(root * root * in_b + in_a)
    z = ((1 - in_b) * root - (1 - in_a)) * scale
    share, density = normal(z)
    steepness = (1 - in_b - z * root * in_b * scale) * scale * root / (3 * x * (1 - x))
    return share, density * steepness * posterior.slope


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
    value. Arms that are below the range with a probability of 1 − 10^-9 are left out. Densities
    of arms with few counts jump at the ends of their range: those are the ends of integration too,
    if all arms have one channel.
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
        if min(state.successes[k], state.pulls[k] - state.successes[k]) < LEAST_FOR_PAULSON:
            return True
    return False


@jit
def draw_decisions(game: Game, state: State, n: int, key: Word, decided: Array) -> None:
    """Count n Thompson decisions, one by one, with the words that `decide` would use."""
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
        decided[arm] += 1


@jit
def pull_often(game: Game, streams: Streams, state: State, k: int, n: int) -> None:
    """Pull arm k n times and count its ones; a single pull has the bit of `pull`."""
    if n == 1:
        pull(game, streams, state, k)
    elif n > 1:
        chance = float(game.thresholds[k]) * 2.0**-63
        seed = word(streams.arm_keys[k], state.pulls[k])
        state.successes[k] += binomial(n, chance, seed)
        state.pulls[k] += n


@jit
def play_turns(rule: Rule, game: Game, streams: Streams, made: State, seen: State, n: int) -> None:
    """Pull n times by a local rule, in turns; exact ties go to the largest word."""
    size = len(made.pulls)
    t = made.pulls.sum()
    common = shared(rule, game.arms, seen)
    values = np.empty(size)
    for k in range(size):
        values[k] = value(rule, game.arms, seen, k, common, ZERO_WORD)
    left = n
    while left > 0:
        best = largest(values, word(streams.decision_key, t + n - left))
        pulls = min(left, max(1, made.pulls[best] // PULLS_PER_TURN_PULL))
        pull_often(game, streams, made, best, pulls)
        seen.pending[best] = made.pulls[best] - seen.pulls[best]
        values[best] = value(rule, game.arms, seen, best, common, ZERO_WORD)
        left -= pulls


@jit
def play_one_by_one(
    rule: Rule, game: Game, streams: Streams, made: State, seen: State, n: int
) -> None:
    """Pull n times, each by a full pass of the choice."""
    t = made.pulls.sum()
    for i in range(n):
        best = choose_among(rule, game.arms, seen, streams.decision_key, t + i)
        pull(game, streams, made, best)
        seen.pending[best] = made.pulls[best] - seen.pulls[best]


play = ByRule("play", play_one_by_one, local=play_turns)
"""Pull as often as a batch is long: `made` are the counts, and `seen` those that are reported."""


@jit
def play_together(
    rule: Rule, game: Game, streams: Streams, made: State, seen: State, n: int
) -> None:
    """Pull n times by Thompson sampling, all from one posterior."""
    key = word(streams.decision_key, made.pulls.sum())
    decided = made.pending
    small = has_small_counts(seen)
    if n <= (MOST_DRAWN_SINGLY_OF_SMALL_COUNTS if small else MOST_DRAWN_SINGLY):
        draw_decisions(game, seen, n, key, decided)
    else:
        shares = np.empty(len(made.pulls))
        fill_shares(game, seen, shares)
        multinomial(n, shares, key, decided)
    for k in range(len(made.pulls)):
        pull_often(game, streams, made, k, decided[k])
        decided[k] = 0


@jit
def look_back(seen: State, made: State, pulls: Array, successes: Array, rows: int) -> None:
    """Let the counts after so many batches be those that are seen, and the rest pending."""
    if rows > 0:
        seen.pulls[:] = pulls[rows - 1]
        seen.successes[:] = successes[rows - 1]
    seen.pending[:] = made.pulls - seen.pulls


@jit
def run_batches(
    game: Game, seed: Word, replicate: int, ends: Array, lag: int
) -> tuple[Array, Array]:
    """Return pulls and successes of each arm (column) at every batch's end (row).

    Without a lag a batch sees all feedback before it. Else it sees the counts at the batch's end
    that is nearest to `lag` pulls before.
    """
    size = len(game.thresholds)
    pulls = np.empty((len(ends), size), dtype=np.int64)
    successes = np.empty((len(ends), size), dtype=np.int64)
    streams = streams_of(seed, replicate, size)
    made = new_state(size, ZERO)
    seen = new_state(size, ZERO) if lag > 0 else made
    t, rows, nearest = ZERO, ZERO, ZERO
    for batch in range(len(ends)):
        if lag > 0:
            while rows < batch and abs(ends[rows] - (t - lag)) <= abs(nearest - (t - lag)):
                nearest = ends[rows]
                rows += 1
            look_back(seen, made, pulls, successes, rows)
        play(game.rule, game, streams, made, seen, ends[batch] - t)
        pulls[batch] = made.pulls
        successes[batch] = made.successes
        t = ends[batch]
    return pulls, successes
