"""Somebody who looks after every report: runs in which a certificate is asked for each time.

The loop is compiled as the kernel is, and asks the kernel itself. Whoever samples may be a policy,
chance, or an adversary that knows the counts and the truth; an operator may retire arms after
looking. Rates may move. What is counted is whether a wrong arm was *ever* named.
"""

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import stats

from whitelie import IDENTITY, TS, Channel
from whitelie.certificate import Beginning, Certificate, needed_evidence, packed, priors
from whitelie.kernel.arms import Arms, Array, feedback_at
from whitelie.kernel.batch import fill_shares
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.divergence import divergence
from whitelie.kernel.evidence import (
    Test,
    certified_arm,
    evidence,
    fill_penalties,
    is_out_of_reach,
    leader_among,
)
from whitelie.kernel.game import Game, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import Rule, columns
from whitelie.kernel.state import State, mean_of, new_state
from whitelie.kernel.top_two import untried_arm
from whitelie.kernel.transport import TRANSPORT, least, pair_of
from whitelie.kernel.words import ZERO, Word, uniform, word
from whitelie.policy import Policy

SAMPLERS = ("policy", "uniform", "hunting", "freezing")
POLICY, UNIFORM, HUNTING, FREEZING = range(4)

STATEMENTS = ("certificate", "no penalty", "belief")
CERTIFICATE, NO_PENALTY, BELIEF = range(3)

BELIEF_NEEDED, REPORTS_PER_BELIEF = 0.95, 50
"""A reader of beliefs names an arm that is best with this probability, and looks that often."""


@jit
def cost(arms: Arms, state: State, a: int, b: int, tolerance: float) -> float:
    """Return W that a is better than b, 0 where it does not read so."""
    return max(least(arms, pair_of(arms, state, a, b, tolerance), TRANSPORT).value, 0.0)


@jit
def luck_of(arms: Arms, state: State, levels: Array, k: int) -> float:
    """Return N·d(λ̂, g(μ)), how unlikely the reports are; its negative where they read low."""
    mean = mean_of(arms, state, k)
    luck = float(state.pulls[k]) * divergence(mean, levels[k])
    return luck if mean > levels[k] else -luck


@jit
def hunted(arms: Arms, state: State, levels: Array, two: tuple[int, int], tolerance: float) -> int:
    """Return the leader or its rival: the one whose next report is expected to raise W more."""
    leader, rival = two
    now, best, best_gain = cost(arms, state, leader, rival, tolerance), leader, -1.0
    for k in two:
        gain = 0.0
        for one in range(2):
            chance = levels[k] if (one == 1) != arms.mirrored[k] else 1 - levels[k]
            state.pulls[k] += 1
            state.successes[k] += one
            gain += chance * max(cost(arms, state, leader, rival, tolerance) - now, 0.0)
            state.pulls[k] -= 1
            state.successes[k] -= one
        if gain > best_gain:
            best, best_gain = k, gain
    return best


@jit
def least_lucky(arms: Arms, state: State, levels: Array, leader: int) -> int:
    """Return the arm whose reports say least, by chance, that the leader is better than others.

    The others are frozen: an estimate that is luckily extreme stays so.
    """
    best, least_luck = leader, math.inf
    for k in range(len(levels)):
        if state.available[k]:
            luck = luck_of(arms, state, levels, k) * (1 if k == leader else -1)
            if luck < least_luck:
                best, least_luck = k, luck
    return best


@jit
def drawn_uniformly(available: Array, seed: Word) -> int:
    """Return one of the available arms."""
    place = int(uniform(seed) * available.sum())
    for k in range(len(available)):
        if available[k]:
            if place == 0:
                return k
            place -= 1
    return -1


@jit
def sampled(
    sampler: int, arms: Arms, state: State, test: Test, known: tuple[Array, Array], blocking: int
) -> int:
    """Return whom chance or an adversary samples; `known` are the true levels, and words."""
    levels, words = known
    if sampler == UNIFORM:
        return drawn_uniformly(state.available, words[0])
    leader = leader_among(arms, state, test.active)
    if leader < 0:
        return untried_arm(state, words)
    if sampler == FREEZING:
        return least_lucky(arms, state, levels, leader)
    rival = blocking
    while rival == leader or not test.active[rival]:
        rival = (rival + 1) % len(words)
    return hunted(arms, state, levels, (leader, rival), test.tolerance)


@jit
def keep_a_pair(arms: Arms, state: State, test: Test, needed: Array, luck: Array) -> None:
    """Retire all arms but the two luckiest, up and down, if needed evidence says one is better."""
    a, b = -1, -1
    for k in range(len(luck)):
        if test.active[k] and state.pulls[k] > 0:
            if a < 0 or luck[k] > luck[a]:
                a = k
            if b < 0 or luck[k] < luck[b]:
                b = k
    asked = Test(test.priors, needed, test.active, test.tolerance)
    if a < 0 or a == b or is_out_of_reach(arms, state, asked, a, b):
        return
    of_a, of_b = np.empty(len(test.priors.log_weight)), np.empty(len(test.priors.log_weight))
    fill_penalties(test.priors, arms, state, a, of_a)
    fill_penalties(test.priors, arms, state, b, of_b)
    if evidence(arms, state, asked, (a, b), (of_a, of_b)) >= needed[max(a, b)]:
        for k in range(len(luck)):
            if k not in (a, b):
                test.active[k] = False
                state.available[k] = False
        test.needed[:] = needed


@jit
def named_without_penalty(arms: Arms, state: State, test: Test) -> int:
    """Return the arm whose W against all others is as large as Z should be, or −1."""
    leader = leader_among(arms, state, test.active)
    for b in range(len(test.active)):
        if leader < 0 or (
            b != leader and test.active[b] and is_out_of_reach(arms, state, test, leader, b)
        ):
            return -1
    return leader


@jit
def named_by_belief(game: Game, state: State) -> int:
    """Return the arm that is best with probability .95 by the posterior, or −1."""
    shares = np.empty(len(state.pulls))
    fill_shares(game, state, shares)
    likeliest = int(np.argmax(shares))
    return likeliest if shares[likeliest] >= BELIEF_NEEDED else -1


@jit
def named(statement: int, game: Game, state: State, test: Test, look: tuple[int, int]) -> int:
    """Return the arm that a statement names; below 0 for none. `look`: a hint, and the reports."""
    if statement == CERTIFICATE:
        return certified_arm(game.arms, state, test, look[0])
    if statement == NO_PENALTY:
        return named_without_penalty(game.arms, state, test)
    return named_by_belief(game, state) if look[1] % REPORTS_PER_BELIEF == 0 else -1


@jit
def is_wrong(means: Array, test: Test, winner: int) -> bool:
    """Whether another active arm is as good, or better by the tolerance or more."""
    for b in range(len(means)):
        if b != winner and test.active[b] and means[b] >= means[winner] + test.tolerance:
            return True
    return False


@jit
def fill_levels(arms: Arms, world: tuple[Array, Array, Array], t: int, levels: Array) -> None:
    """Fill in P(feedback = 1) at time t, or of 0 where a channel decreases."""
    means, motion, _ = world
    factor = 1 + motion[0] * math.sin(2 * math.pi * t / motion[1]) + motion[2] * t / motion[3]
    for k in range(len(levels)):
        levels[k] = feedback_at(arms, k, means[k] * factor)


@jit
def change_arms(times: Array, t: int, state: State, test: Test, needed: Array) -> None:
    """Add and retire the arms whose time has come."""
    for k in range(len(test.active)):
        if t in (times[0, k], times[1, k]):
            test.active[k] = t == times[0, k]
            state.available[k] = test.active[k]
            if t > 0:
                test.needed[:] = needed


@jit
def first_wrong(
    rule: Rule,
    arms: Arms,
    tests: tuple[Test, Test],
    world: tuple[Array, Array, Array],
    habits: tuple[int, int, int],
    start: tuple[Word, int, int],
) -> tuple[int, int]:
    """Return after how many reports a wrong arm was named first, and any; 0 for never.

    `tests` are for the time before and after the list of arms has changed. `world` has the mean
    rewards, how they move (see `fill_levels`), and when arms are added and retired. `habits` are
    who samples, whether the operator keeps a pair, and what is asked. `start`: seed, replicate and
    number of reports.
    """
    means, motion, times = world
    sampler, keeps, statement = habits
    size = len(means)
    streams = streams_of(start[0], start[1], size)
    words = np.empty(size, dtype=np.uint64)
    state = new_state(size, columns(rule))
    state.available[:] = False
    test = Test(tests[0].priors, tests[0].needed.copy(), state.available.copy(), tests[0].tolerance)
    game = Game(rule, arms, words)
    levels, luck = np.empty(size), np.zeros(size)
    fill_levels(arms, world, ZERO, levels)
    moves = motion[0] != 0 or motion[2] != 0
    blocking, any_named = ZERO, ZERO
    for t in range(start[2]):
        change_arms(times, t, state, test, tests[1].needed)
        if moves:
            fill_levels(arms, world, t, levels)
        fill_words(streams.decision_key, t, words)
        if sampler == POLICY:
            k = choose(rule, arms, state, words)
        else:
            k = sampled(sampler, arms, state, test, (levels, words), blocking)
        drawn = uniform(word(streams.arm_keys[k], state.pulls[k])) < levels[k]
        state.pulls[k] += 1
        state.successes[k] += drawn != arms.mirrored[k]
        if keeps:
            luck[k] = luck_of(arms, state, levels, k)
            keep_a_pair(arms, state, test, tests[1].needed, luck)
        winner = named(statement, game, state, test, (blocking, t + 1))
        if statement == CERTIFICATE and winner < 0:
            blocking = -1 - winner
        if winner >= 0:
            if any_named == 0:
                any_named = ZERO + t + 1
            if is_wrong(means, test, winner):
                return ZERO + t + 1, any_named
    return ZERO, any_named


@dataclass(frozen=True, kw_only=True)
class Looking:
    """An experiment that somebody looks at after every report."""

    means: Sequence[float]
    channels: Channel | Sequence[Channel] = IDENTITY
    policy: Policy = field(default_factory=TS)
    sampler: Literal["policy", "uniform", "hunting", "freezing"] = "policy"
    certificate: Certificate = field(default_factory=Certificate)
    statement: Literal["certificate", "no penalty", "belief"] = "certificate"
    added: Mapping[int, int] = field(default_factory=dict)
    """The last arms, and when they come."""
    retired: Mapping[int, int] = field(default_factory=dict)
    keeps_a_pair: bool = False
    """The operator retires all but two arms as soon as their evidence suffices."""
    splits_delta: bool = True
    """Whether pairs of a list that has changed have their own part of δ."""
    swing: float = 0.0
    """All mean rewards swing by this share, with a period of so many reports."""
    period: int = 1
    trend: float = 0.0
    """By this share all mean rewards have grown when the last report comes."""

    def first_wrong(self, reports: int, runs: int, seed: int) -> Array:
        """Return, by run (row), when a wrong arm was named first, and when any; 0 for never."""
        size = len(self.means)
        channels = (self.channels,) * size if isinstance(self.channels, Channel) else self.channels
        channels = tuple(channels)
        first, delta = size - len(self.added), self.certificate.delta
        unchanged = np.full(size, math.inf)
        unchanged[:first] = needed_evidence(delta, first, Beginning(first), changed=False)
        changed = needed_evidence(delta, size, Beginning(first), changed=True)
        if not self.splits_delta:
            changed = np.full(size, math.log((size - 1) / delta))
        everybody = np.ones(size, dtype=bool)
        mixture = priors(channels, self.certificate.expect)
        tolerance = float(self.certificate.tolerance)
        before = Test(mixture, unchanged, everybody, tolerance)
        tests = before, before._replace(needed=changed)
        times = np.zeros((2, size), dtype=np.int64)
        times[1] = -1
        for row, moments in enumerate((self.added, self.retired)):
            for k, moment in moments.items():
                times[row, k] = moment
        motion = np.array([self.swing, self.period, self.trend, reports])
        world = np.array(self.means), motion, times
        habits = (
            SAMPLERS.index(self.sampler),
            int(self.keeps_a_pair),
            STATEMENTS.index(self.statement),
        )

        def run(replicate: int) -> tuple[int, int]:
            start = np.uint64(seed), replicate, reports
            return first_wrong(self.policy.rule, packed(channels), tests, world, habits, start)

        with ThreadPoolExecutor(2) as pool:
            return np.array(list(pool.map(run, range(runs))))


def most_by_chance(runs: int, delta: float, alarms: float = 1e-4) -> int:
    """Return how many of the runs may be wrong if each is with probability delta at most.

    More are seen with probability `alarms` at most: the exact binomial quantile.
    """
    return int(stats.binom.isf(alarms, runs, delta))


def share(wrong: int, runs: int) -> dict[str, Any]:
    """Return a share of runs with its 95 % interval by Clopper and Pearson."""
    interval = stats.binomtest(wrong, runs).proportion_ci(0.95)
    return {"wrong": wrong, "runs": runs, "low": interval.low, "high": interval.high}


def printed(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of scenarios, then the same as one line of JSON."""
    lines = [
        f"{name:<44} {row['wrong']:>5} of {row['runs']:>6} runs"
        f"   {100 * row['wrong'] / row['runs']:6.2f} %"
        f"   ({100 * row['low']:.2f} to {100 * row['high']:.2f})"
        for name, row in rows.items()
    ]
    return "\n".join([*lines, json.dumps(rows)])
