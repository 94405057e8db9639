"""What the counts say about each arm: corrected estimates, intervals, the chance of being best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whitelie.channel import AnyChannel, Channel, of_bits
from whitelie.kernel.arms import Array, levels_at, pack, rewards_at
from whitelie.kernel.cell_evidence import cell_interval
from whitelie.kernel.cells import (
    Cells,
    CellState,
    estimate_of,
    excess,
    last_within,
    likelihood,
    pack_cells,
)
from whitelie.kernel.interval import feedback_interval
from whitelie.kernel.state import NO_MEMORY

ALPHA = 0.05
MISSPECIFICATION_ALPHA = 0.001
NODES = 8
GRID_EXCESS, GRID_POINTS = 40.0, 2001
"""A posterior on cells is tabulated as far as L exceeds its least value by so much, at points."""

NEGLIGIBLE = 1e-7
"""A probability that need not be divided among arms exactly."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is known of one arm's mean reward.

    `rate` is the share of feedbacks that were 1, `estimate` the mean reward it stands for, clipped
    to [0, 1]; both are None without feedback. Where reports fall into cells, `successes` and `rate`
    are None, and the estimate is the likeliest. [lower, upper] is anytime-valid: the probability
    that the truth lies outside it at any time is at most 5 %, however often one looks.
    `misspecified` says that the feedback can hardly come from this channel: the 99.9 % interval of
    its mean misses g([0, 1]).
    """

    pulls: int
    successes: int | None
    rate: float | None
    estimate: float | None
    lower: float
    upper: float
    probability_best: float
    misspecified: bool
    retired: bool = False


def reward_interval(
    channel: Channel, pulls: int, successes: int, alpha: float = ALPHA
) -> tuple[float, float]:
    """Return the anytime-valid interval of mean rewards: it holds at all times together.

    It is the part of [0, 1] whose feedback the counts do not reject, or the nearest end; all of
    [0, 1] where the channel is misspecified, since then the counts say nothing about rewards.
    """
    if is_misspecified(channel, pulls, successes):
        return 0.0, 1.0
    interval = feedback_interval(pulls, successes, alpha)
    ends = [min(max(channel.mean_reward(end), 0.0), 1.0) for end in interval]
    return min(ends), max(ends)


def is_misspecified(channel: Channel, pulls: int, successes: int) -> bool:
    """Whether the 99.9 % interval of the mean feedback misses all that the channel can produce."""
    lower, upper = feedback_interval(pulls, successes, MISSPECIFICATION_ALPHA)
    low, high = sorted((channel.mean_feedback(0.0), channel.mean_feedback(1.0)))
    return upper < low or lower > high


def probabilities_best(channels: Sequence[AnyChannel], pulls: Array, successes: Array) -> Array:
    """Return each arm's posterior probability of having the largest mean reward.

    The posterior is TS-CF's, so these are its choice probabilities (the paper, section 4.2). With
    F_k the distribution function of arm k's mean reward, arm k is largest and in a cell (u, v]
    with probability ∫ ΔF_k·Π_j≠k (F_j(u) + x·ΔF_j) dx over x ∈ [0, 1], if every F rises evenly in
    the cell. The cells are cut at quantiles of all arms, so they nearly do; where draws end at 0 or
    1 and tie, this shares the tie evenly, as the words do.
    """
    from scipy.special import betainc, betaincinv, expit  # noqa: PLC0415 (heavy)

    arms = pack("corrected", channels)
    a = np.where(arms.mirrored, pulls - successes, successes)[:, None] + 1.0
    b = pulls[:, None] + 2.0 - a
    tail = expit(np.linspace(-16, 0, 200))
    quantiles = np.hstack([betaincinv(a, b, tail), 1 - betaincinv(b, a, tail)])
    cuts = np.unique(rewards_at(arms, quantiles))
    if len(cuts) > 4000:
        # Where the largest reward hardly ever lies, no cuts are needed: one cell is enough.
        coarse = _evenly(cuts, 100)
        all_below = np.prod(betainc(a, b, levels_at(arms, coarse)), axis=0)
        first = max(int(np.searchsorted(all_below, NEGLIGIBLE)) - 1, 0)
        cuts = _evenly(cuts[cuts >= coarse[first]], 1000)
    return shares_of_largest(betainc(a, b, levels_at(arms, cuts)))


def shares_of_largest(below: Array) -> Array:
    """Return each arm's probability of the largest draw, from P(draw ≤ cut) by arm and cut.

    Every distribution rises evenly between two cuts.
    """
    below = np.pad(below, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    start, rise = below[:, :-1], np.diff(below)
    best = np.zeros(len(below))
    for node, weight in zip(*np.polynomial.legendre.leggauss(NODES), strict=True):
        log_below = np.log(np.maximum(start + (node + 1) / 2 * rise, 1e-300))
        others = np.exp(log_below.sum(axis=0) - log_below)
        best += weight / 2 * (rise * others).sum(axis=1)
    return np.asarray(best / best.sum())


def _evenly(values: Array, most: int) -> Array:
    size = min(most, len(values))
    return np.asarray(values[np.linspace(0, len(values) - 1, size).astype(int)])


def estimate_arms(
    channels: Sequence[AnyChannel], pulls: Array, successes: Array, retired: Array
) -> list[Estimate]:
    """Return one estimate per arm; retired arms are not candidates for the best."""
    best = np.zeros(len(channels))
    active = ~retired
    if active.any():
        chosen = [channel for channel, keep in zip(channels, active, strict=True) if keep]
        best[active] = probabilities_best(chosen, pulls[active], successes[active])
    return [
        _estimate(channel, int(n), int(s), float(p), bool(out))
        for channel, n, s, p, out in zip(
            of_bits(channels), pulls, successes, best, retired, strict=True
        )
    ]


def _estimate(channel: Channel, pulls: int, successes: int, best: float, retired: bool) -> Estimate:
    rate = successes / pulls if pulls else None
    lower, upper = reward_interval(channel, pulls, successes)
    return Estimate(
        pulls=pulls,
        successes=successes,
        rate=rate,
        estimate=None if rate is None else min(max(channel.mean_reward(rate), 0.0), 1.0),
        lower=lower,
        upper=upper,
        probability_best=best,
        misspecified=is_misspecified(channel, pulls, successes),
        retired=retired,
    )


def estimate_cells(channels: Sequence[AnyChannel], cells: Array, retired: Array) -> list[Estimate]:
    """Return one estimate per arm from reports by cell; see `kernel/cells.py`."""
    arms, active = pack_cells(channels), ~retired
    none = np.zeros(len(channels), dtype=np.int64)
    state = CellState(cells.sum(axis=1), cells, none, active, NO_MEMORY)
    best = np.zeros(len(channels))
    if active.any():
        best[active] = probabilities_best_of_cells(arms, state)[active]
    rows = []
    for k in range(len(channels)):
        low, high = cell_interval(arms, state, k, MISSPECIFICATION_ALPHA)
        misspecified = bool(low > 1 or high < 0)
        ends = (0.0, 1.0) if misspecified else cell_interval(arms, state, k, ALPHA)
        pulls = int(state.pulls[k])
        rows.append(
            Estimate(
                pulls=pulls,
                successes=None,
                rate=None,
                estimate=_clipped(estimate_of(arms, state, k)) if pulls else None,
                lower=_clipped(ends[0]),
                upper=_clipped(ends[1]),
                probability_best=float(best[k]),
                misspecified=misspecified,
                retired=bool(retired[k]),
            )
        )
    return rows


def probabilities_best_of_cells(arms: Cells, state: CellState) -> Array:
    """Return each available arm's posterior probability of being best, 0 for the others."""
    grids = [_posterior(arms, state, k) for k in np.flatnonzero(state.available).tolist()]
    tail = np.concatenate([np.geomspace(1e-7, 0.5, 200), 1 - np.geomspace(1e-7, 0.5, 200)])
    cuts = np.unique(np.concatenate([np.interp(tail, below, q) for q, below in grids]))
    below = np.array([np.interp(cuts, q, below) for q, below in grids])
    best = np.zeros(len(state.pulls))
    best[state.available] = shares_of_largest(below)
    return best


def _posterior(arms: Cells, state: CellState, k: int) -> tuple[Array, Array]:
    """Return a grid of mean rewards in D, and the posterior's distribution function on it."""
    low, high = arms.low[k], arms.high[k]
    if state.pulls[k] == 0:
        return np.array([low, high]), np.array([0.0, 1.0])
    of, at = likelihood(arms, state, k), estimate_of(arms, state, k)
    ends = [last_within(of, at, GRID_EXCESS, end) for end in (low, high)]
    q = np.linspace(ends[0], ends[1], GRID_POINTS)
    density = np.exp([-excess(of, place, at) for place in q])
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return q, below / below[-1]


def _clipped(reward: float) -> float:
    return min(max(float(reward), 0.0), 1.0)
