"""The choice rule: (arms, counts, random words) → arm. Every policy's choice is made here.

To find the kl-UCB-CF index, read `index`.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array, reward_at
from whitelie.kernel.beta import beta
from whitelie.kernel.divergence import upper_end
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word, word
from whitelie.policy import KLUCB, TS, UCB, UCB1, Policy

KL_UCB_RULE, UCB_RULE, TS_RULE = range(3)


class Rule(NamedTuple):
    """A choice rule and its tuning: f(t) = max(0, weight·ln t + c·ln max(1, ln t))."""

    code: int
    weight: float = 1.0
    c: float = 0.0
    unit: bool = False


class State(NamedTuple):
    """What a decision rests on, per arm.

    Feedbacks received, how many were 1, decisions whose feedback is yet to come, and whether the
    arm may be chosen.
    """

    pulls: Array
    successes: Array
    pending: Array
    available: Array


def rule_of(policy: Policy) -> Rule:
    """Return the rule a policy selects; UCB1's mean + sqrt(2·ln t/N) is UCB with f = 4·ln t."""
    match policy:
        case KLUCB():
            return Rule(KL_UCB_RULE, c=float(policy.c), unit=policy.domain == "unit")
        case UCB():
            return Rule(UCB_RULE, c=float(policy.c))
        case UCB1():
            return Rule(UCB_RULE, weight=4.0)
        case TS():
            return Rule(TS_RULE)
        case _:
            raise TypeError(f"{policy.label} is not a rule on counts")


@jit
def exploration(rule: Rule, t: int) -> float:
    """Return f(t), and 0 before the first feedback."""
    log_t = math.log(max(t, 1))
    return max(0.0, rule.weight * log_t + rule.c * math.log(max(1.0, log_t)))


@jit
def optimistic(rule: Rule, mean: float, budget: float) -> float:
    """Return the upper confidence end of a mean, with budget = f/N: kl-UCB's or UCB's."""
    if rule.code == KL_UCB_RULE:
        return upper_end(mean, budget)
    return mean + math.sqrt(budget / 2)


@jit
def mean_of(arms: Arms, state: State, k: int) -> float:
    """Return the mean on which arm k's index is built; without any feedback its rate is ½."""
    pulls = state.pulls[k]
    ones = pulls - state.successes[k] if arms.mirrored[k] else state.successes[k]
    return arms.offset[k] + arms.scale[k] * (ones / pulls if pulls > 0 else 0.5)


@jit
def index(rule: Rule, arms: Arms, state: State, k: int, f: float) -> float:
    """Return the upper confidence index of arm k, on the scale of rewards.

    kl-UCB-CF: max{q : N·d(λ̂, g(q)) ≤ f} = g^-1(max{p : N·d(λ̂, p) ≤ f}) for increasing g.
    UCB-CF: g^-1(λ̂ + sqrt(f/(2N))). Pending decisions count in N, not in λ̂; without any feedback
    λ̂ is ½. Where no q ∈ [0, 1] qualifies, "unit" gives the nearest end point.
    """
    budget = f / (state.pulls[k] + state.pending[k])
    reward = reward_at(arms, k, optimistic(rule, mean_of(arms, state, k), budget))
    return min(max(reward, 0.0), 1.0) if rule.unit else reward


@jit
def posterior(arms: Arms, state: State, k: int) -> tuple[float, float]:
    """Return a and b of arm k's posterior Beta(a, b): S + 1 and N − S + 1, swapped if mirrored."""
    failures = state.pulls[k] - state.successes[k]
    successes = state.successes[k]
    if arms.mirrored[k]:
        successes, failures = failures, successes
    return successes + 1.0, failures + 1.0


@jit
def sample(arms: Arms, state: State, k: int, seed: Word) -> float:
    """Return TS-CF's value of arm k: g^-1(θ) with θ drawn from Beta(S + 1, N − S + 1)."""
    a, b = posterior(arms, state, k)
    return reward_at(arms, k, beta(a, b, seed))


@jit
def choose(rule: Rule, arms: Arms, state: State, words: Array) -> int:
    """Return the available arm to pull next, from one random word per arm.

    Thompson draws are functions of the words. The index rules first pull every arm that has
    neither feedback nor a pending decision; ties, and the order of those first pulls, go to the
    largest word. So relabelling arms together with their words changes nothing but names.
    """
    f = exploration(rule, state.pulls.sum())
    best, best_value = -1, -math.inf
    for k in range(len(words)):
        if not state.available[k]:
            continue
        if rule.code == TS_RULE:
            value = sample(arms, state, k, words[k])
        elif state.pulls[k] + state.pending[k] == 0:
            value = math.inf
        else:
            value = index(rule, arms, state, k, f)
        if best < 0 or value > best_value or (value == best_value and words[k] > words[best]):
            best, best_value = k, value
    return best


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
def decide_by_index(
    rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array
) -> None:
    """Take the index rules' decisions as `choose` does: each changes one arm's index only."""
    f = exploration(rule, state.pulls.sum())
    indices = np.full(len(state.pulls), -math.inf)
    for k in range(len(indices)):
        if state.available[k]:
            untried = state.pulls[k] + state.pending[k] == 0
            indices[k] = math.inf if untried else index(rule, arms, state, k, f)
    for i in range(len(chosen)):
        arm = largest(indices, word(key, number + i))
        state.pending[arm] += 1
        if i + 1 < len(chosen):
            indices[arm] = index(rule, arms, state, arm, f)
        chosen[i] = arm


@jit
def decide(rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array) -> None:
    """Fill `chosen` with decisions number, number + 1, …; each is pending for those after it."""
    if rule.code != TS_RULE:
        decide_by_index(rule, arms, state, key, number, chosen)
        return
    words = np.empty(len(state.pulls), dtype=np.uint64)
    for i in range(len(chosen)):
        fill_words(key, number + i, words)
        arm = choose(rule, arms, state, words)
        state.pending[arm] += 1
        chosen[i] = arm
