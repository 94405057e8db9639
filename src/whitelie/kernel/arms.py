"""Arms as the choice rule sees them: packed into arrays, every channel increasing.

A decreasing channel is mirrored once, here: (N, S, g) becomes (N, N − S, 1 − g).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from whitelie.channel import (
    IDENTITY,
    AnyChannel,
    Channel,
    Monotone,
    RandomizedResponse,
    of_bits,
)
from whitelie.kernel.jit import jit

Array = np.ndarray[Any, np.dtype[Any]]


class Arms(NamedTuple):
    """How each arm's counts become a mean, and how a mean feedback becomes a mean reward.

    The mean that a rule works on is offset + scale·(successes, or failures if mirrored)/pulls.
    An affine arm has g(x) = intercept + slope·x and an empty table; a tabulated arm has its points
    at table_start[k] … table_start[k + 1].
    """

    mirrored: Array
    offset: Array
    scale: Array
    intercept: Array
    slope: Array
    table_start: Array
    table_x: Array
    table_y: Array


def pack(feedback: str, channels: Sequence[AnyChannel], active: Array | None = None) -> Arms:
    """Return the arms as a policy that reads feedback so takes them.

    "corrected" reads through the inverse channels, "wrapped" on WRAPPER's scale, which spans the
    active arms, and all else takes feedback for rewards.
    """
    known = of_bits(channels)
    if feedback == "corrected":
        return _pack(known)
    arms = _pack([IDENTITY] * len(known))
    if feedback != "wrapped":
        return arms
    at_zero = np.array([channel.mean_reward(0.0) for channel in known])
    at_one = np.array([channel.mean_reward(1.0) for channel in known])
    values = np.stack([at_zero, at_one])
    if active is not None:
        values = values[:, active]
    lowest, width = values.min(), values.max() - values.min()
    return arms._replace(offset=(at_zero - lowest) / width, scale=(at_one - at_zero) / width)


def _pack(channels: Sequence[Channel]) -> Arms:
    mirrored = np.array([not channel.increasing for channel in channels])
    intercept = np.zeros(len(channels))
    slope = np.ones(len(channels))
    xs, ys, start = [], [], [0]
    for k, channel in enumerate(channels):
        points: tuple[Array, Array] = np.empty(0), np.empty(0)
        if isinstance(channel, RandomizedResponse):
            intercept[k] = channel.p00 if mirrored[k] else 1 - channel.p00
            slope[k] = abs(channel.slope)
        else:
            points = _table(channel)
        xs.append(points[0])
        ys.append(points[1])
        start.append(start[-1] + len(points[0]))
    return Arms(
        mirrored=mirrored,
        offset=np.zeros(len(channels)),
        scale=np.ones(len(channels)),
        intercept=intercept,
        slope=slope,
        table_start=np.array(start),
        table_x=np.concatenate(xs),
        table_y=np.concatenate(ys),
    )


def _table(channel: Monotone) -> tuple[Array, Array]:
    ys = np.array(channel.ys)
    return np.array(channel.xs), ys if channel.increasing else 1 - ys


@jit
def reward_at(arms: Arms, k: int, level: float) -> float:
    """Return g_k^-1(level): on the whole line for an affine arm, in [0, 1] for a tabulated one."""
    start, end = arms.table_start[k], arms.table_start[k + 1]
    if start == end:
        return (level - arms.intercept[k]) / arms.slope[k]
    if level <= arms.table_y[start]:
        return 0.0
    if level >= arms.table_y[end - 1]:
        return 1.0
    right = start + np.searchsorted(arms.table_y[start:end], level)
    x0, x1 = arms.table_x[right - 1], arms.table_x[right]
    y0, y1 = arms.table_y[right - 1], arms.table_y[right]
    return x0 + (level - y0) / (y1 - y0) * (x1 - x0)


@jit
def level_at(arms: Arms, k: int, reward: float) -> float:
    """Return the largest mean feedback in [0, 1] that arm k reads as at most this reward, or 0."""
    start, end = arms.table_start[k], arms.table_start[k + 1]
    if start == end:
        return min(max(arms.intercept[k] + arms.slope[k] * reward, 0.0), 1.0)
    if reward < 0:
        return 0.0
    if reward >= 1:
        return 1.0
    right = start + np.searchsorted(arms.table_x[start:end], reward, side="right")
    x0, x1 = arms.table_x[right - 1], arms.table_x[right]
    y0, y1 = arms.table_y[right - 1], arms.table_y[right]
    return y0 + (reward - x0) / (x1 - x0) * (y1 - y0)


@jit
def feedback_at(arms: Arms, k: int, reward: float) -> float:
    """Return g_k(reward): beyond the ends of a table its last value, and never outside [0, 1]."""
    start, end = arms.table_start[k], arms.table_start[k + 1]
    if start < end and reward < 0:
        return float(arms.table_y[start])
    if start < end and reward >= 1:
        return float(arms.table_y[end - 1])
    return level_at(arms, k, reward)


@jit
def rewards_at(arms: Arms, levels: Array) -> Array:
    """Return `reward_at` of each arm (row) at its own levels (columns)."""
    rewards = np.empty_like(levels)
    for k in range(levels.shape[0]):
        for i in range(levels.shape[1]):
            rewards[k, i] = reward_at(arms, k, levels[k, i])
    return rewards


@jit
def levels_at(arms: Arms, rewards: Array) -> Array:
    """Return `level_at` of each arm (row) at common rewards (columns)."""
    levels = np.empty((len(arms.slope), len(rewards)))
    for k in range(levels.shape[0]):
        for i in range(levels.shape[1]):
            levels[k, i] = level_at(arms, k, rewards[i])
    return levels
