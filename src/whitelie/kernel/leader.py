"""One replicate of kl-UCB or kl-UCB-CF, fast: a certified leader is pulled unchallenged.

Most indices need not be solved. An arm that is not pulled keeps its counts, so its index grows with
f(t) alone, and as a concave function: it stays below its tangent, the arm's *ceiling*. An election
solves the arm of the highest ceiling until that one is freshly solved: it leads. Then a bar is set
between its index and the ceilings of the others. The leader is pulled until a ceiling may reach the
bar, or until its own index falls below: while its *cost* there, N·d(λ̂, g(bar)), is below f(t).

Ceilings hold with a margin. Arms that come nearer to each other than that are left to the live
choice rule, so every decision is the one that the plain kernel takes.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.choice import choose_among
from whitelie.kernel.divergence import divergence, upper_end
from whitelie.kernel.exploration import exploration
from whitelie.kernel.game import MARGIN, Game, Streams, bit, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import Rule
from whitelie.kernel.state import State, mean_of, new_state
from whitelie.kernel.words import ZERO, Word

# Solved levels are rounded, and near 1 a rounding moves the cost without bound: stay this far away.
SLACK = 1e-13
DEPTH = 0.6


class Ceilings(NamedTuple):
    """Per arm: a line above its index, value + rate·(f − since); just pulled, value is infinite."""

    value: Array
    rate: Array
    since: Array


class Election(NamedTuple):
    """At f: the arm of the largest index, a floor of its index, a ceiling of all the others'."""

    f: float
    leader: int
    floor: float
    ceiling: float


@jit
def cost(pulls: int, mean: float, level: float) -> float:
    """Return the f at which the index of such counts reaches a level on the feedback's scale."""
    if mean >= level:
        return 0.0
    if level > 1:
        return math.inf
    return pulls * divergence(mean, level)


@jit
def solve(game: Game, state: State, ceilings: Ceilings, k: int, f: float) -> None:
    """Lay arm k's ceiling at f: with U the end of d(λ̂, U) = f/N, dU/df = U·(1 − U)/(N·(U − λ̂))."""
    mean, pulls = mean_of(game.arms, state, k), state.pulls[k]
    level = upper_end(mean, f / pulls)
    rate = level * (1 - level) / (pulls * (level - mean)) if level > mean else 0.0
    ceilings.value[k] = (level + SLACK - game.arms.intercept[k]) / game.arms.slope[k]
    ceilings.rate[k] = rate / game.arms.slope[k]
    ceilings.since[k] = f


@jit
def ceiling_at(rule: Rule, ceilings: Ceilings, k: int, f: float) -> float:
    """Return arm k's ceiling at f, within the domain of the indices."""
    value = ceilings.value[k] + ceilings.rate[k] * (f - ceilings.since[k])
    return min(max(value, 0.0), 1.0) if rule.unit else value


@jit
def elect(game: Game, state: State, ceilings: Ceilings, f: float) -> Election:
    """Return the arm that leads at f."""
    while True:
        leader, value, ceiling = ZERO, ceiling_at(game.rule, ceilings, ZERO, f), -math.inf
        for k in range(1, len(state.pulls)):
            other = ceiling_at(game.rule, ceilings, k, f)
            if other > value:
                leader, value, ceiling = k, other, value
            else:
                ceiling = max(ceiling, other)
        if ceilings.since[leader] == f:
            return Election(f, leader, value - 2 * SLACK / game.arms.slope[leader], ceiling)
        solve(game, state, ceilings, leader, f)


@jit
def void(ceilings: Ceilings, k: int) -> None:
    """Void arm k's ceiling, since its counts have changed."""
    ceilings.value[k], ceilings.rate[k], ceilings.since[k] = math.inf, 0.0, -1.0


@jit
def expiry(ceilings: Ceilings, leader: int, bar: float) -> float:
    """Return the f at which the first ceiling but the leader's reaches the bar."""
    soonest = math.inf
    for k in range(len(ceilings.value)):
        if k != leader and ceilings.rate[k] > 0:
            way = (bar - ceilings.value[k]) / ceilings.rate[k]
            soonest = min(soonest, ceilings.since[k] + way)
    return soonest


@jit
def time_below(rule: Rule, t: int, f: float, ceiling: float) -> int:
    """Return a time up to which f stays below a ceiling: f is concave from 4 on, so its tangent."""
    if t < 4 or f >= ceiling:
        return t
    tangent = (rule.weight + rule.c / math.log(t)) / t
    return t + int(min((ceiling - f) / tangent, 1e15))


@jit
def follow(
    game: Game, streams: Streams, state: State, ceilings: Ceilings, election: Election, stop: int
) -> None:
    """Pull the leader once, and then on until it may have lost or `stop` pulls have been made.

    Since 1/(q·(1 − q)) is convex, d(m, l) = ∫ (q − m)/(q·(1 − q)) dq over (m, l) is at most
    (l − m)²·(1/(m·(1 − m)) + 2/(l·(1 − l)))/6: nearly always that says that the cost is low.
    """
    rule, arms, leader = game.rule, game.arms, election.leader
    bar = election.floor - DEPTH * (election.floor - election.ceiling)
    level = arms.intercept[leader] + arms.slope[leader] * bar + SLACK
    curvature = 2 / (level * (1 - level)) if 0 < level < 1 else math.inf
    mirrored, offset, scale = arms.mirrored[leader], arms.offset[leader], arms.scale[leader]
    key, threshold = streams.arm_keys[leader], game.thresholds[leader]
    pulls = state.pulls[leader]
    ones = pulls - state.successes[leader] if mirrored else state.successes[leader]
    t = state.pulls.sum()
    stop = min(stop, time_below(rule, t, election.f, expiry(ceilings, leader, bar)) + 1)
    budget = (1 - MARGIN) * election.f
    while t < stop:
        ones += bit(key, pulls, threshold) != mirrored
        pulls += 1
        t += 1
        total = offset * pulls + scale * ones
        deficit = level * pulls - total
        if deficit <= 0:
            continue
        spread = total * (pulls - total)
        bound = deficit * deficit * (pulls * float(pulls) + curvature * spread)
        if bound <= 6 * budget * pulls * spread:
            continue
        spent = cost(pulls, offset + scale * (ones / pulls), level)
        if spent > budget:
            budget = (1 - MARGIN) * exploration(rule, t)
            if spent > budget:
                break
    state.pulls[leader] = pulls
    state.successes[leader] = pulls - ones if mirrored else ones
    void(ceilings, leader)


@jit
def run_kl_ucb(game: Game, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    state = new_state(size, ZERO)
    ceilings = Ceilings(np.full(size, math.inf), np.zeros(size), np.full(size, -1.0))
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            if t < size:
                contenders = True
                state.available[:] = state.pulls == 0
            else:
                f = exploration(game.rule, t)
                election = elect(game, state, ceilings, f)
                near = election.floor - MARGIN * (1 + abs(election.floor))
                contenders = election.ceiling >= near
                if contenders:
                    for k in range(size):
                        state.available[k] = ceiling_at(game.rule, ceilings, k, f) >= near
            if contenders:
                k = choose_among(game.rule, game.arms, state, streams.decision_key, t)
                pull(game, streams, state, k)
                void(ceilings, k)
                t += 1
            else:
                follow(game, streams, state, ceilings, election, checkpoints[c])
                t = state.pulls.sum()
        history[c] = state.pulls
    return history
