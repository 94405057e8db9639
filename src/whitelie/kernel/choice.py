"""The choice: (rule, arms, counts, random words) → arm. Every policy's choice is made here.

What an arm's value is, its policy says: kl-UCB-CF's index is in `policy/kl_ucb.py`. A rule that is
no largest value registers a `choose` of its own, as top-two sampling does.
"""

import math

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import ByRule, Rule, shared, value
from whitelie.kernel.state import State
from whitelie.kernel.words import ZERO, ZERO_WORD, Word, word


@jit
def choose_largest(rule: Rule, arms: Arms, state: State, words: Array) -> int:
    """Return the available arm to pull next, from one random word per arm.

    It is the arm of the largest value. Thompson draws are functions of the words. The index rules
    first pull every arm that has neither feedback nor a pending decision; ties, and the order of
    those first pulls, go to the largest word. So relabelling arms together with their words changes
    nothing but names.
    """
    common = shared(rule, arms, state)
    best, best_value = -1, -math.inf
    for k in range(len(words)):
        if not state.available[k]:
            continue
        own = value(rule, arms, state, k, common, words[k])
        if best < 0 or own > best_value or (own == best_value and words[k] > words[best]):
            best, best_value = k, own
    return best


choose = ByRule("choose", choose_largest)
"""(rule, arms, state, words): return the available arm to pull next."""


@jit
def fill_words(key: Word, number: int, words: Array) -> None:
    """Fill in the random words of one decision: of arm k, word(word(key, number), k)."""
    decision_key = word(key, number)
    for k in range(len(words)):
        words[k] = word(decision_key, k)


@jit
def choose_among(rule: Rule, arms: Arms, state: State, key: Word, number: int) -> int:
    """Return decision `number` among the available arms, drawing only their words."""
    words = np.zeros(len(state.pulls), dtype=np.uint64)
    decision_key = word(key, number)
    for k in range(len(words)):
        if state.available[k]:
            words[k] = word(decision_key, k)
    return choose(rule, arms, state, words)


@jit
def largest(values: Array, decision_key: Word) -> int:
    """Return the arm of the largest value; of equal ones, the arm of the largest word."""
    best = ZERO
    for k in range(1, len(values)):
        if values[k] > values[best] or (
            values[k] == values[best] and word(decision_key, k) > word(decision_key, best)
        ):
            best = k
    return best


@jit
def decide_locally(
    rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array
) -> None:
    """Take a local rule's decisions as `choose` does: each changes one arm's value only."""
    common = shared(rule, arms, state)
    values = np.full(len(state.pulls), -math.inf)
    for k in range(len(values)):
        if state.available[k]:
            values[k] = value(rule, arms, state, k, common, ZERO_WORD)
    for i in range(len(chosen)):
        arm = largest(values, word(key, number + i))
        state.pending[arm] += 1
        if i + 1 < len(chosen):
            values[arm] = value(rule, arms, state, arm, common, ZERO_WORD)
        chosen[i] = arm


@jit
def decide_one_by_one(
    rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array
) -> None:
    """Take every decision by a full pass of `choose`."""
    words = np.empty(len(state.pulls), dtype=np.uint64)
    for i in range(len(chosen)):
        fill_words(key, number + i, words)
        arm = choose(rule, arms, state, words)
        state.pending[arm] += 1
        chosen[i] = arm


decide = ByRule("decide", decide_one_by_one, local=decide_locally)
"""Fill `chosen` with decisions number, number + 1, …; each is pending for those after it."""
