"""One replicate on reports in cells, step by step through the live choice."""

from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.cells import Cells, CellState, new_cell_state
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.game import Streams, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import Rule
from whitelie.kernel.words import ZERO, Word, word


class CellGame(NamedTuple):
    """A policy on a problem; `thresholds` are P(cell ≤ c) of every arm (row), in 2^-63ths."""

    rule: Rule
    arms: Cells
    thresholds: Array


def cumulative_thresholds(probabilities: Array) -> Array:
    """Return the sums of cells' probabilities (columns) in 2^-63ths; the last is always drawn."""
    sums = np.cumsum(probabilities, axis=1)
    units = [[round(min(p, 1.0) * 2.0**63) for p in row] for row in sums]
    units = [[*row[:-1], 2**63] for row in units]
    return np.array(units, dtype=np.uint64)


@jit
def cell(key: Word, number: int, thresholds: Array) -> int:
    """Return the cell of report number `number` under a key."""
    drawn, c = int(word(key, number)) >> 1, ZERO
    while drawn >= int(thresholds[c]):
        c += 1
    return c


@jit
def pull_cell(game: CellGame, streams: Streams, state: CellState, k: int) -> None:
    """Pull arm k once, and count its report in its cell."""
    c = cell(streams.arm_keys[k], state.pulls[k], game.thresholds[k])
    state.counts[k, c] += 1
    state.pulls[k] += 1


@jit
def run_cells(game: CellGame, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row), in one replicate."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    words = np.empty(size, dtype=np.uint64)
    state = new_cell_state(size, game.arms.u.shape[1])
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            fill_words(streams.decision_key, t, words)
            pull_cell(game, streams, state, choose(game.rule, game.arms, state, words))
            t += 1
        history[c] = state.pulls
    return history
