"""kl-UCB on reports in cells, without solving every index at every step.

An arm that is not pulled keeps its reports, so its index is a concave function of f(t): it stays
below the tangent where it was last solved, a ceiling that needs no work. At a step, the arm of the
largest ceiling is solved until the largest is one that is solved: mostly the arm that was pulled
last, and no other. The choice is that of `choose_largest`, step by step.
"""

import math

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.cell_game import CellGame, pull_cell
from whitelie.kernel.cells import (
    CellState,
    last_within,
    least_point,
    likelihood,
    new_cell_state,
    slopes,
    weighed_mean,
)
from whitelie.kernel.choice import fill_words
from whitelie.kernel.exploration import exploration
from whitelie.kernel.game import MARGIN, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word


@jit
def solve(game: CellGame, state: CellState, k: int, f: float) -> tuple[float, float]:
    """Return the index of arm k at f, and how fast it rises with f."""
    of = likelihood(game.arms, state, k)
    start = least_point(of, weighed_mean(game.arms, state, k)[0])
    index = last_within(of, start, f, of.high)
    steepness = slopes(of, index)[0] if start < index < of.high else 0.0
    rate = 1 / steepness if steepness > 0 else 0.0
    if f <= 0:
        rate = math.inf
    if game.rule.unit:
        index = min(max(index, 0.0), 1.0)
    return index, rate


@jit
def run_kl_ucb_of_cells(game: CellGame, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row), in one replicate."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    words = np.empty(size, dtype=np.uint64)
    state = new_cell_state(size, game.arms.u.shape[1])
    index, rate = np.full(size, math.inf), np.zeros(size)
    solved_at = np.full(size, -1.0)
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            f = exploration(game.rule, t)
            fill_words(streams.decision_key, t, words)
            k = largest_index(game, state, f, words, (index, rate, solved_at))
            pull_cell(game, streams, state, k)
            index[k], solved_at[k] = math.inf, -1.0
            t += 1
        history[c] = state.pulls
    return history


@jit
def largest_index(
    game: CellGame, state: CellState, f: float, words: Array, known: tuple[Array, Array, Array]
) -> int:
    """Return the arm of the largest index at f, solving as few as possible."""
    index, rate, solved_at = known
    while True:
        best, best_ceiling = ZERO, -math.inf
        for k in range(len(words)):
            ceiling = index[k]
            if state.pulls[k] > 0 and solved_at[k] != f:
                ceiling += rate[k] * (f - solved_at[k]) if solved_at[k] >= 0 else math.inf
                ceiling += MARGIN * max(1.0, abs(ceiling))
            if ceiling > best_ceiling or (ceiling == best_ceiling and words[k] > words[best]):
                best, best_ceiling = ZERO + k, ceiling
        if state.pulls[best] == 0 or solved_at[best] == f:
            return best
        index[best], rate[best] = solve(game, state, best, f)
        solved_at[best] = f
