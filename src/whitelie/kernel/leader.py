"""One replicate of kl-UCB or kl-UCB-CF, fast: a certified leader is pulled unchallenged.

Most indices need not be solved. An arm that is not pulled keeps its counts, so its index stays
below a level b exactly as long as f(t) stays below its *cost* at b, N·d(λ̂, g(b)). Such a pair
(level, expiry) is the arm's certificate. An election solves the indices of the two best arms and
checks the certificates of the others; then the bar is set between the two, and the leader is
pulled while its own cost at the bar is below f(t), which takes two look-ups per pull.
A certificate that expires on the way is renewed at the bar; an election is held when it cannot be,
or when the leader falls below the bar.

Certificates hold with a relative margin. Arms that come nearer to each other than that are left to
the live choice rule, so every decision is the one that the plain kernel takes.
"""

import math
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.choice import Rule, State, choose_among, exploration, mean_of
from whitelie.kernel.divergence import divergence, upper_end
from whitelie.kernel.game import MARGIN, Game, Streams, bit, new_state, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word

# Solved levels are rounded, and near 1 a rounding moves the cost without bound: stay this far away.
SLACK = 1e-13
BAR = 0.3
LONGEST_SUM = 1 << 16  # so many roundings of 10^-15 stay far within the margin


class Standing(NamedTuple):
    """Per arm: the mean its index is built on, and its certificate."""

    mean: Array
    level: Array
    expiry: Array


class Election(NamedTuple):
    """The two best arms and their indices."""

    leader: int
    runner: int
    value: float
    runner_value: float


@jit
def growth(table: Array, n: int) -> float:
    """Return (n + 1)·ln(n + 1) − n·ln n."""
    if n < len(table):
        return table[n]
    return math.log(n) + (n + 1) * math.log1p(1 / n)


@jit
def cost(pulls: int, mean: float, level: float) -> float:
    """Return the f at which the index of such counts reaches a level on the feedback's scale."""
    if mean >= level:
        return 0.0
    if level > 1:
        return math.inf
    return pulls * divergence(mean, level)


@jit
def solve(game: Game, state: State, standing: Standing, k: int, f: float) -> float:
    """Return arm k's index."""
    level = upper_end(standing.mean[k], f / state.pulls[k])
    reward = (level - game.arms.intercept[k]) / game.arms.slope[k]
    return min(max(reward, 0.0), 1.0) if game.rule.unit else reward


@jit
def certify(game: Game, state: State, standing: Standing, k: int, reward: float) -> None:
    """Certify that arm k's index is below a reward until f(t) reaches the expiry.

    On the unit domain indices below 0 are 0, so nothing is below a reward of 0.
    """
    level = game.arms.intercept[k] + game.arms.slope[k] * reward - SLACK
    needed = cost(state.pulls[k], standing.mean[k], level)
    standing.level[k] = reward
    standing.expiry[k] = 0.0 if game.rule.unit and reward <= 0 else (1 - MARGIN) * needed


@jit
def elect(
    game: Game, state: State, standing: Standing, f: float, leader: int, runner: int
) -> Election:
    """Return the two best arms; every other is certified below the second or marked expired.

    The former leader and runner-up are solved first, since they make a high hurdle.
    """
    value = solve(game, state, standing, leader, f)
    runner_value = solve(game, state, standing, runner, f)
    known, also_known = leader, runner
    if runner_value > value:
        leader, runner, value, runner_value = runner, leader, runner_value, value
    for k in range(len(state.pulls)):
        if k in (known, also_known):
            continue
        if standing.level[k] <= runner_value and f < standing.expiry[k]:
            continue
        certify(game, state, standing, k, runner_value)
        if f < standing.expiry[k]:
            continue
        beaten, other = k, solve(game, state, standing, k, f)
        if other > value:
            leader, runner, beaten = k, leader, runner
            value, runner_value = other, value
        elif other > runner_value:
            runner, beaten = k, runner
            runner_value = other
        certify(game, state, standing, beaten, runner_value)
    return Election(leader, runner, value, runner_value)


@jit
def settle(arms: Arms, state: State, standing: Standing, k: int) -> None:
    """Bring arm k's mean up to date with its counts, and void its certificate."""
    standing.mean[k] = mean_of(arms, state, k)
    standing.expiry[k] = 0.0


@jit
def challenge(
    game: Game, state: State, standing: Standing, f: float, leader: int, bar: float
) -> float:
    """Renew at the bar what has expired; return the f at which the next certificate expires."""
    soonest = math.inf
    for k in range(len(state.pulls)):
        if k != leader:
            if f >= standing.expiry[k]:
                certify(game, state, standing, k, bar)
            soonest = min(soonest, standing.expiry[k])
    return soonest


@jit
def time_below(rule: Rule, t: int, f: float, ceiling: float) -> int:
    """Return a time up to which f stays below a ceiling: f is concave from 4 on, so its tangent."""
    if f >= ceiling:
        return t - 1
    if t < 4:
        return t
    tangent = (rule.weight + rule.c / math.log(t)) / t
    return t + int(min((ceiling - f) / tangent, 1e15))


@jit
def follow(
    game: Game, streams: Streams, state: State, standing: Standing, election: Election, stop: int
) -> None:
    """Pull the leader once, and then on until it may have lost or `stop` pulls have been made."""
    rule, arms, leader = game.rule, game.arms, election.leader
    bar = election.runner_value + BAR * (election.value - election.runner_value)
    level = arms.intercept[leader] + arms.slope[leader] * bar + SLACK
    mirrored, offset, scale = arms.mirrored[leader], arms.offset[leader], arms.scale[leader]
    by_table = offset == 0 and scale == 1 and 0 < level < 1
    log_one = math.log(level) if by_table else 0.0
    log_zero = math.log1p(-level) if by_table else 0.0
    key, threshold, table = streams.arm_keys[leader], game.thresholds[leader], game.growth
    pulls = state.pulls[leader]
    ones = pulls - state.successes[leader] if mirrored else state.successes[leader]
    t = state.pulls.sum()
    last = t  # the last decision that is certainly the leader's
    certify(game, state, standing, election.runner, bar)
    while t < stop:
        f = exploration(rule, t)
        last = max(last, time_below(rule, t, f, challenge(game, state, standing, f, leader, bar)))
        pause = min(last + 1, stop, t + LONGEST_SUM)
        if t >= pause:
            break
        budget = (1 - MARGIN) * f
        spent = pulls * divergence(ones / pulls, level) if by_table else 0.0
        while t < pause:
            one = bit(key, pulls, threshold) != mirrored
            if by_table:
                if one:
                    spent += growth(table, ones) - growth(table, pulls) - log_one
                else:
                    spent += growth(table, pulls - ones) - growth(table, pulls) - log_zero
            ones += one
            pulls += 1
            t += 1
            if not by_table:
                spent = cost(pulls, offset + scale * (ones / pulls), level)
            if spent > budget and (not by_table or ones < level * pulls):
                budget = (1 - MARGIN) * exploration(rule, t)
                if spent > budget:
                    stop = t
                    break
    state.pulls[leader] = pulls
    state.successes[leader] = pulls - ones if mirrored else ones
    settle(arms, state, standing, leader)


@jit
def run_kl_ucb(game: Game, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    state = new_state(size)
    standing = Standing(np.zeros(size), np.zeros(size), np.zeros(size))
    leader, runner, t = ZERO, size - 1, ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            if t < size:
                contenders = True
                state.available[:] = state.pulls == 0
            else:
                f = exploration(game.rule, t)
                election = elect(game, state, standing, f, leader, runner)
                leader, runner = election.leader, election.runner
                contenders = election.value - election.runner_value <= MARGIN * (
                    1 + abs(election.value)
                )
                if contenders:
                    state.available[:] = f >= standing.expiry
                    state.available[leader] = state.available[runner] = True
            if contenders:
                k = choose_among(game.rule, game.arms, state, streams.decision_key, t)
                pull(game, streams, state, k)
                settle(game.arms, state, standing, k)
                t += 1
            else:
                follow(game, streams, state, standing, election, checkpoints[c])
                t = state.pulls.sum()
        history[c] = state.pulls
    return history
