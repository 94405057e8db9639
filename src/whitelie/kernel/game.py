"""What a replicate plays: the rule, the arms as it reads them, and where its bits come from.

Every random word is a pure function of (seed, replicate, place). Feedback number s of an arm is the
same for every policy, so policies are compared on common random numbers, and runs can be cut,
resumed and spread over threads anywhere.
"""

from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import Rule, update
from whitelie.kernel.state import State
from whitelie.kernel.words import Word, word

DECISIONS, FEEDBACK, NOISE = np.arange(3)
MARGIN = 1e-9
"""Indices nearer to each other than this, relatively, are left to the live choice rule."""


class Game(NamedTuple):
    """A policy on a problem, and P(bit = 1) in 2^-63ths."""

    rule: Rule
    arms: Arms
    thresholds: Array


class Streams(NamedTuple):
    """The keys of one replicate: of its decisions, and of each arm's bits."""

    decision_key: Word
    arm_keys: Array


def thresholds(probabilities: Array) -> Array:
    """Return each probability in 2^-63ths, so that 0 is never and 1 always drawn."""
    return np.array([round(p * 2.0**63) for p in probabilities], dtype=np.uint64)


@jit
def streams_of(seed: Word, replicate: int, size: int) -> Streams:
    """Return the keys of a replicate."""
    replicate_key = word(seed, replicate)
    feedback_key = word(replicate_key, FEEDBACK)
    arm_keys = np.empty(size, dtype=np.uint64)
    for k in range(size):
        arm_keys[k] = word(feedback_key, k)
    return Streams(word(replicate_key, DECISIONS), arm_keys)


@jit
def bit(key: Word, number: int, threshold: Word) -> int:
    """Return bit number `number` under a key: 1 with probability threshold / 2^63."""
    return int(int(word(key, number)) >> 1 < int(threshold))


@jit
def pull(game: Game, streams: Streams, state: State, k: int) -> None:
    """Pull arm k once, count its bit, and let the rule remember it."""
    one = bit(streams.arm_keys[k], state.pulls[k], game.thresholds[k])
    state.successes[k] += one
    state.pulls[k] += 1
    update(game.rule, game.arms, state, k, one)
