"""One replicate of DP-UCB-INT (Tossou and Dimitrakakis, 2016, Algorithm 3): for comparison.

After `period` sweeps over all arms, an arm whose number of pulls n is a multiple of the period
releases x = mean reward + Laplace(n^-(1 − v/2)) + sqrt(2·ln t / n); the others keep their last x.
The arm with the largest x is pulled. Noise is drawn once per release, or anew in every round.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.game import NOISE, bit, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word, uniform, word


class ReleaseGame(NamedTuple):
    """DP-UCB-INT on a problem; it sees the rewards themselves."""

    period: int
    v: float
    every_round: bool
    thresholds: Array


@jit
def laplace(word: Word) -> float:
    """Return a draw from the standard Laplace distribution, from one word."""
    u = uniform(word) - 0.5
    return -math.copysign(math.log1p(-2 * abs(u)), u)


@jit
def run_dp_ucb_int(game: ReleaseGame, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    arm_keys = streams_of(seed, replicate, size).arm_keys
    noise_keys = np.empty(size, dtype=np.uint64)
    for k in range(size):
        noise_keys[k] = word(word(word(seed, replicate), NOISE), k)
    pulls, rewards = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    mean, scale, due = np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.bool_)
    noisy_mean, released = np.zeros(size), np.zeros(size)
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            best = t % size
            if t >= game.period * size:
                best, bonus = 0, 2 * math.log(t)
                for k in range(size):
                    if due[k]:
                        if game.every_round:
                            noisy_mean[k] = mean[k] + laplace(word(noise_keys[k], t)) * scale[k]
                        released[k] = noisy_mean[k] + math.sqrt(bonus / pulls[k])
                    if released[k] > released[best]:
                        best = k
            rewards[best] += bit(arm_keys[best], pulls[best], game.thresholds[best])
            pulls[best] += 1
            n = pulls[best]
            due[best] = n % game.period == 0
            if due[best]:
                mean[best], scale[best] = rewards[best] / n, n ** (game.v / 2 - 1)
                noisy_mean[best] = mean[best] + laplace(word(noise_keys[best], n)) * scale[best]
            t += 1
        history[c] = pulls
    return history
