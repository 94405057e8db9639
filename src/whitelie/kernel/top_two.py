"""Top-two sampling: decisions that tell the best arm from the others soon.

A leader is drawn by Thompson sampling. Its challenger is the arm b of the least W + ln N_b, where W
is the transport cost from the leader to b: the rival that is hardest to tell from the leader. The
cost splits into the parts of the leader and of the challenger; each is shown with the probability
of its part, because that is how much of the evidence a report on it adds. (The leader of the
largest estimate instead of a drawn one, and costs without ln N, would stall for ever in a tenth of
runs and more.)
"""

import math

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.batch import (
    MOST_DRAWN_SINGLY,
    MOST_DRAWN_SINGLY_OF_SMALL_COUNTS,
    PULLS_PER_TURN_PULL,
    fill_shares,
    has_small_counts,
    play_one_by_one,
    pull_often,
)
from whitelie.kernel.binomial import binomial, multinomial
from whitelie.kernel.block import LEAST_FOR_BLOCK, thompson_block
from whitelie.kernel.cells import Cells, CellState, least_common
from whitelie.kernel.choice import decide_one_by_one
from whitelie.kernel.game import Game, Streams
from whitelie.kernel.jit import jit
from whitelie.kernel.reading import draw
from whitelie.kernel.rule import ByArms, Rule
from whitelie.kernel.state import State, is_untried
from whitelie.kernel.transport import TRANSPORT, costs_at, least, pair_of
from whitelie.kernel.words import ZERO, Word, uniform, word

COIN = ZERO + 2**40
"""The number of a leader's coins in the stream of its word, beyond all that its draw may take."""


challenge = ByArms("challenge")
"""(arms, state, leader, b): W + ln N_b, where W is the transport cost from the leader."""

challenger_share = ByArms("challenger_share")
"""(arms, state, leader, b): the challenger's part of the transport cost; ½ where that is 0."""


@challenge.register(Arms)
@jit
def challenge_of_bits(arms: Arms, state: State, leader: int, b: int) -> float:
    """Return W + ln N_b, where W is the transport cost from the leader; 0 if b reads as good."""
    cost = least(arms, pair_of(arms, state, leader, b, 0.0), TRANSPORT).value
    return max(cost, 0.0) + math.log(state.pulls[b] + state.pending[b])


@challenger_share.register(Arms)
@jit
def share_of_bits(arms: Arms, state: State, leader: int, b: int) -> float:
    """Return the challenger's part of the transport cost; ½ where that is 0."""
    pair = pair_of(arms, state, leader, b, 0.0)
    cost, x = least(arms, pair, TRANSPORT)
    if cost <= 0:
        return 0.5
    of_leader, of_challenger = costs_at(arms, pair, x)
    return of_challenger / (of_leader + of_challenger)


@challenge.register(Cells)
@jit
def challenge_of_cells(arms: Cells, state: CellState, leader: int, b: int) -> float:
    """Return W + ln N_b of reports in cells."""
    _, of_leader, of_b = least_common(arms, state, leader, b)
    return of_leader + of_b + math.log(state.pulls[b] + state.pending[b])


@challenger_share.register(Cells)
@jit
def share_of_cells(arms: Cells, state: CellState, leader: int, b: int) -> float:
    """Return the challenger's part of the transport cost of reports in cells."""
    _, of_leader, of_b = least_common(arms, state, leader, b)
    both = of_leader + of_b
    return of_b / both if both > 0 else 0.5


@jit
def challenger_of(arms: Arms | Cells, state: State | CellState, leader: int, words: Array) -> int:
    """Return the available arm of the least W + ln N; of equal ones, that of the largest word."""
    best, least_cost = -1, math.inf
    for b in range(len(words)):
        if b != leader and state.available[b]:
            cost = challenge(arms, state, leader, b)
            if best < 0 or cost < least_cost or (cost == least_cost and words[b] > words[best]):
                best, least_cost = b, cost
    return best


@jit
def show(
    rule: Rule, arms: Arms | Cells, state: State | CellState, two: tuple[int, int], own: Word
) -> int:
    """Return the leader or its challenger, by coins from the leader's own word."""
    leader, challenger = two
    if uniform(word(own, COIN)) >= rule.know:
        return leader
    share = challenger_share(arms, state, leader, challenger)
    return challenger if uniform(word(own, COIN + 1)) < share else leader


@jit
def untried_arm(state: State | CellState, words: Array) -> int:
    """Return the available arm of the largest word that has no report and none pending, or −1."""
    first = -1
    for k in range(len(words)):
        if state.available[k] and is_untried(state, k) and (first < 0 or words[k] > words[first]):
            first = k
    return first


@jit
def choose_top_two(rule: Rule, arms: Arms | Cells, state: State | CellState, words: Array) -> int:
    """Return the arm to show next: an untried one, or the leader or its challenger."""
    untried = untried_arm(state, words)
    if untried >= 0:
        return untried
    leader, largest, count = -1, -math.inf, ZERO
    for k in range(len(words)):
        if state.available[k]:
            count += 1
            drawn = draw(arms, state, k, words[k])
            if leader < 0 or drawn > largest or (drawn == largest and words[k] > words[leader]):
                leader, largest = k, drawn
    if count == 1:
        return leader
    challenger = challenger_of(arms, state, leader, words)
    return show(rule, arms, state, (leader, challenger), words[leader])


@jit
def top_two_block(
    rule: Rule, arms: Arms, state: State, key: Word, number: int, chosen: Array
) -> None:
    """Fill `chosen` with decisions number, number + 1, …; each is pending for those after it.

    Leaders do not depend on what is pending: they are drawn as a block of Thompson sampling. Costs
    only grow with what is pending, so those computed before are lower bounds: the least of them is
    computed again until it is still the least. Distributed as one by one; few are the same.
    """
    done = ZERO
    words = np.empty(len(state.pulls), dtype=np.uint64)
    while done < len(chosen) and untried_arm(state, words) >= 0:
        decide_one_by_one(rule, arms, state, key, number + done, chosen[done : done + 1])
        done += 1
    if min(len(chosen) - done, state.available.sum()) < LEAST_FOR_BLOCK:
        decide_one_by_one(rule, arms, state, key, number + done, chosen[done:])
        return
    leaders = np.empty(len(chosen) - done, dtype=np.int64)
    thompson_block(rule, arms, state, key, number + done, leaders)
    row_of = np.full(len(words), -1)
    rows = ZERO
    for leader in leaders:
        if row_of[leader] < 0:
            row_of[leader] = rows
            rows += 1
    bounds = np.full((rows, len(words)), -math.inf)
    computed = np.full((rows, len(words)), -1)
    for i in range(len(leaders)):
        leader, decision_key = leaders[i], word(key, number + done + i)
        row = row_of[leader]
        b = least_bound(state, leader, (bounds[row], computed[row]), i, decision_key)
        while computed[row, b] != i:
            bounds[row, b] = challenge(arms, state, leader, b)
            computed[row, b] = i
            b = least_bound(state, leader, (bounds[row], computed[row]), i, decision_key)
        arm = show(rule, arms, state, (leader, b), word(decision_key, leader))
        state.pending[arm] += 1
        chosen[done + i] = arm


@jit
def least_bound(
    state: State, leader: int, row: tuple[Array, Array], i: int, decision_key: Word
) -> int:
    """Return the available rival of the least bound.

    Of equal ones it is one that is not computed for decision i; else that of the largest word.
    """
    bounds, computed = row
    best = -1
    for b in range(len(bounds)):
        if b == leader or not state.available[b]:
            continue
        if best < 0 or bounds[b] < bounds[best]:
            best = b
        elif bounds[b] > bounds[best] or computed[best] != i:
            continue
        elif computed[b] != i or word(decision_key, b) > word(decision_key, best):
            best = b
    return best


@jit
def play_top_two(
    rule: Rule, game: Game, streams: Streams, made: State, seen: State, n: int
) -> None:
    """Pull n times by top-two sampling, all from one posterior.

    The leaders are multinomial over the chances of being best. The decisions of a leader are taken
    in turns: a challenger keeps its place until it has 1 % more pulls.
    """
    small = has_small_counts(seen)
    if n <= (MOST_DRAWN_SINGLY_OF_SMALL_COUNTS if small else MOST_DRAWN_SINGLY):
        play_one_by_one(rule, game, streams, made, seen, n)
        return
    size = len(made.pulls)
    key = word(streams.decision_key, made.pulls.sum())
    shares, leaders = np.empty(size), np.zeros(size, dtype=np.int64)
    fill_shares(game, seen, shares)
    multinomial(n, shares, key, leaders)
    before = seen.pending.copy()
    planned = State(seen.pulls, seen.successes, before.copy(), seen.available, seen.memory)
    words, turn = np.zeros(size, dtype=np.uint64), ZERO
    for leader in range(size):
        left = leaders[leader]
        while left > 0:
            b = challenger_of(game.arms, planned, leader, words)
            chance = rule.know * challenger_share(game.arms, planned, leader, b)
            pulls = 1 + (planned.pulls[b] + planned.pending[b]) // PULLS_PER_TURN_PULL
            # As many decisions as give the challenger so many pulls, or all that are left.
            decisions = min(left, int(min(math.ceil(pulls / max(chance, 1e-9)), 2.0**53)))
            challenged = binomial(decisions, chance, word(key, size + turn))
            planned.pending[b] += challenged
            planned.pending[leader] += decisions - challenged
            left -= decisions
            turn += 1
    for k in range(size):
        pull_often(game, streams, made, k, planned.pending[k] - before[k])
