"""One replicate, step by step through the live choice: for any rule, and to test fast kernels."""

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.game import Game, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import columns
from whitelie.kernel.state import new_state
from whitelie.kernel.words import ZERO, Word


@jit
def run_plain(game: Game, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    words = np.empty(size, dtype=np.uint64)
    state = new_state(size, columns(game.rule))
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            fill_words(streams.decision_key, t, words)
            pull(game, streams, state, choose(game.rule, game.arms, state, words))
            t += 1
        history[c] = state.pulls
    return history
