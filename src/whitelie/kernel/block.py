"""Many Thompson decisions from the same counts, fast: most arms are far from winning most of them.

The first decision draws all arms, as `choose` does. Its tenth largest value or so (of 1000 arms) is
a level v for the others. Arm k exceeds it where θ_k > x, which has a probability of at most
Q = ∫ of an envelope of its density above x. Where Q > ½ the arm is drawn in every decision. Else
the decisions in which it may exceed v are found by geometric skips of chance Q: in each of them a
draw from the envelope is accepted with chance density/envelope, and only then does the arm exceed
v. The largest value above v wins. A decision without any draws the other arms too, given θ ≤ x.

No tail is computed, and whatever v is, that is the distribution of drawing all arms: decisions are
independent of each other and of the first. Equal values, as where tables end at 0 or 1, go to the
arm of the largest word, as in `choose`. Where that many arms reach the end 1 of their tables, v is
1 and every decision draws all arms.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array, level_at, reward_at
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.jit import jit
from whitelie.kernel.posterior import posterior, sample
from whitelie.kernel.rule import Rule
from whitelie.kernel.state import State
from whitelie.kernel.truncated import (
    Envelope,
    Interval,
    draw_between,
    envelope_above,
    envelope_mass,
    propose,
)
from whitelie.kernel.words import ZERO, Word, uniform, word

LEAST_FOR_BLOCK = 8
"""Fewer decisions, or arms, than this are drawn plainly: it is quicker."""

LIKELY = 0.5
"""An arm whose bound on the chance to exceed the level is larger is drawn in every decision."""


class Block(NamedTuple):
    """Decisions number, number + 1, …: of each, the arm that leads so far, and its value.

    The word of arm k in decision i is that of `choose`. Beyond the words of all arms come K more:
    those of decision 0 are for skips, of others for draws below the level.
    """

    key: Word
    number: int
    chosen: Array
    value: Array


@jit
def word_of(block: Block, i: int, k: int) -> Word:
    """Return word k of decision i of the block."""
    return word(word(block.key, block.number + i), k)


@jit
def contend(block: Block, i: int, k: int, value: float) -> None:
    """Let arm k lead decision i if its value is larger, or equal and its word larger."""
    if value > block.value[i] or (
        value == block.value[i] and word_of(block, i, k) > word_of(block, i, block.chosen[i])
    ):
        block.chosen[i], block.value[i] = k, value


@jit
def level_among(values: Array, available: int) -> float:
    """Return a level for further decisions, from one draw of every available arm.

    It is the r-th largest value. If K arms are alike, 2^-r of decisions have none above it and draw
    all K, the others draw about r: r = 1 + log2 K is near the best.
    """
    place = len(values) - 1 - int(math.log2(available))
    return np.partition(values, place)[place]


@jit
def skip(chance: float, u: float) -> float:
    """Return how many trials fail before one succeeds, plus less than 1: ln u/ln(1 − chance)."""
    return math.log(u) / math.log1p(-chance) if chance > 0 else math.inf


@jit
def chance_above(a: float, b: float, envelope: Envelope) -> float:
    """Return a bound on the probability that θ is in the envelope's interval."""
    return envelope_mass(a, b, envelope) if envelope.low > 0 else 1.0


@jit
def contend_everywhere(arms: Arms, state: State, block: Block, k: int) -> None:
    """Let arm k contend in every decision but the first, drawn as in `choose`."""
    for i in range(1, len(block.chosen)):
        contend(block, i, k, sample(arms, state, k, word_of(block, i, k)))


@jit
def contend_above(arms: Arms, state: State, block: Block, level: float) -> Array:
    """Let each arm contend where it exceeds the level, or everywhere if it may well do so.

    Return per arm the x for which it exceeds the level iff θ > x, or −1 if it is drawn everywhere.
    """
    size, end = len(state.pulls), len(block.chosen)
    limits = np.full(size, -1.0)
    for k in range(size):
        if not state.available[k]:
            continue
        x = level_at(arms, k, level)
        if x >= 1:
            limits[k] = x
            continue
        a, b = posterior(arms, state, k)
        envelope = envelope_above(a, b, x, 1.0)
        chance = chance_above(a, b, envelope)
        if chance > LIKELY:
            contend_everywhere(arms, state, block, k)
            continue
        limits[k] = x
        seed, draw = word_of(block, ZERO, size + k), ZERO
        i = 1 + skip(chance, uniform(word(seed, draw)))
        while i < end:
            at = int(i)
            own = word_of(block, at, k)
            u, accept = uniform(word(own, ZERO)), uniform(word(own, ZERO + 1))
            theta, accepted = propose(a, b, envelope, u, accept)
            if accepted:
                contend(block, at, k, reward_at(arms, k, theta))
            draw += 1
            i = at + 1 + skip(chance, uniform(word(seed, draw)))
    return limits


@jit
def contend_below(arms: Arms, state: State, block: Block, i: int, limits: Array) -> None:
    """Let each arm that has a limit contend in decision i, drawn given that θ ≤ its limit."""
    for k in range(len(limits)):
        if limits[k] >= 0:
            a, b = posterior(arms, state, k)
            seed = word_of(block, i, len(limits) + k)
            theta = draw_between(a, b, Interval(0.0, limits[k], 1 - LIKELY), seed)
            contend(block, i, k, reward_at(arms, k, theta))


@jit
def thompson_block(
    rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array
) -> None:
    """Fill `chosen` with decisions number, number + 1, … of Thompson sampling at these counts.

    Distributed as those of `choose`; the first, and all of a few, are the same.
    """
    size = len(state.pulls)
    if min(len(chosen), state.available.sum()) < LEAST_FOR_BLOCK:
        words = np.empty(size, dtype=np.uint64)
        for i in range(len(chosen)):
            fill_words(key, number + i, words)
            chosen[i] = choose(rule, arms, state, words)
        return
    block = Block(key, number, chosen, np.full(len(chosen), -math.inf))
    values = np.full(size, -math.inf)
    for k in range(size):
        if state.available[k]:
            values[k] = sample(arms, state, k, word_of(block, ZERO, k))
            contend(block, ZERO, k, values[k])
    level = level_among(values, state.available.sum())
    limits = contend_above(arms, state, block, level)
    for i in range(1, len(chosen)):
        if block.value[i] <= level:
            contend_below(arms, state, block, i, limits)
