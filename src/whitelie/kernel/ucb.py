"""One replicate of UCB, UCB-CF or UCB1, fast: an index is a + w·sqrt(f), and a pull changes a, w.

g^-1(λ̂ + sqrt(f/(2N))) = (λ̂ − intercept)/slope + sqrt(f)/(sqrt(2N)·slope). Arms that come within a
relative margin of the best are left to the live choice rule, so every decision is the one that the
plain kernel takes.
"""

import math

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.choice import choose_among
from whitelie.kernel.exploration import exploration
from whitelie.kernel.game import MARGIN, Game, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.state import mean_of, new_state
from whitelie.kernel.words import ZERO, Word


@jit
def run_ucb(game: Game, seed: Word, replicate: int, checkpoints: Array) -> Array:
    """Return how often each arm (column) was pulled by each checkpoint (row)."""
    size = len(game.thresholds)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    streams = streams_of(seed, replicate, size)
    state = new_state(size, ZERO)
    mean, width = np.full(size, math.inf), np.zeros(size)
    index = np.empty(size)
    t = ZERO
    for c in range(len(checkpoints)):
        while t < checkpoints[c]:
            root = math.sqrt(exploration(game.rule, t))
            best = 0
            for k in range(size):
                index[k] = mean[k] + width[k] * root
                if index[k] > index[best]:
                    best = k
            near = index[best]
            if near < math.inf:
                near -= MARGIN * (1 + abs(near))
            rivals = 0
            for k in range(size):
                rivals += index[k] >= near
            if rivals > 1:
                state.available[:] = index >= near
                best = choose_among(game.rule, game.arms, state, streams.decision_key, t)
            pull(game, streams, state, best)
            slope = game.arms.slope[best]
            mean[best] = (mean_of(game.arms, state, best) - game.arms.intercept[best]) / slope
            width[best] = 1 / (math.sqrt(2.0 * state.pulls[best]) * slope)
            t += 1
        history[c] = state.pulls
    return history
