"""What the counts say about each arm: corrected estimates, intervals, the chance of being best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whitelie.channel import Channel
from whitelie.kernel.arms import Array, levels_at, pack, rewards_at
from whitelie.kernel.interval import feedback_interval

ALPHA = 0.05
MISSPECIFICATION_ALPHA = 0.001
NODES = 8
NEGLIGIBLE = 1e-7
"""A probability that need not be divided among arms exactly."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is known of one arm's mean reward.

    `rate` is the share of feedbacks that were 1, `estimate` the mean reward it stands for, clipped
    to [0, 1]; both are None without feedback. [lower, upper] is anytime-valid: the probability that
    the truth lies outside it at any time is at most 5 %, however often one looks. `misspecified`
    says that the feedback can hardly come from this channel: the 99.9 % interval of its mean misses
    g([0, 1]).
    """

    pulls: int
    successes: int
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


def probabilities_best(channels: Sequence[Channel], pulls: Array, successes: Array) -> Array:
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
    below = betainc(a, b, levels_at(arms, cuts))
    below = np.pad(below, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    start, rise = below[:, :-1], np.diff(below)
    best = np.zeros(len(channels))
    for node, weight in zip(*np.polynomial.legendre.leggauss(NODES), strict=True):
        log_below = np.log(np.maximum(start + (node + 1) / 2 * rise, 1e-300))
        others = np.exp(log_below.sum(axis=0) - log_below)
        best += weight / 2 * (rise * others).sum(axis=1)
    return np.asarray(best / best.sum())


def _evenly(values: Array, most: int) -> Array:
    size = min(most, len(values))
    return np.asarray(values[np.linspace(0, len(values) - 1, size).astype(int)])


def estimate_arms(
    channels: Sequence[Channel], pulls: Array, successes: Array, retired: Array
) -> list[Estimate]:
    """Return one estimate per arm; retired arms are not candidates for the best."""
    best = np.zeros(len(channels))
    active = ~retired
    if active.any():
        chosen = [channel for channel, keep in zip(channels, active, strict=True) if keep]
        best[active] = probabilities_best(chosen, pulls[active], successes[active])
    return [
        _estimate(channel, int(n), int(s), float(p), bool(out))
        for channel, n, s, p, out in zip(channels, pulls, successes, best, retired, strict=True)
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
