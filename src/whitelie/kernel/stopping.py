"""One replicate that stops at its certificate: looked at after every report, or after batches.

From then on the winner is shown, and nobody reports any more.
"""

import numpy as np

from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.evidence import Test, certified_arm
from whitelie.kernel.game import Game, pull, streams_of
from whitelie.kernel.jit import jit
from whitelie.kernel.rule import columns
from whitelie.kernel.state import State, new_state
from whitelie.kernel.words import ZERO, Word


@jit
def run_until_certified(
    game: Game, arms: Arms, test: Test, start: tuple[Word, int], checkpoints: Array
) -> Array:
    """Return how often each arm (column) was shown by each checkpoint (row), in one replicate.

    `start` is the seed and the replicate's number; `arms` are as evidence reads them. Two rows
    follow: the reports on each arm when the replicate stopped, and 1 for the winner. If it never
    stopped, they are the last checkpoint's and all 0.
    """
    size, horizon = len(game.thresholds), checkpoints[-1]
    history = np.zeros((len(checkpoints) + 2, size), dtype=np.int32)
    streams = streams_of(start[0], start[1], size)
    words = np.empty(size, dtype=np.uint64)
    state = new_state(size, columns(game.rule))
    t, c, winner = ZERO, ZERO, -1 - ZERO
    while t < horizon and winner < 0:
        fill_words(streams.decision_key, t, words)
        pull(game, streams, state, choose(game.rule, game.arms, state, words))
        t += 1
        if t == checkpoints[c]:
            history[c] = state.pulls
            c += 1
        winner = certified_arm(arms, state, test, -1 - winner)
    history[-2] = state.pulls
    if winner >= 0:
        history[-1, winner] = 1
    while c < len(checkpoints):
        history[c] = state.pulls
        history[c, winner] += checkpoints[c] - t
        c += 1
    return history


@jit
def first_certified(arms: Arms, test: Test, pulls: Array, successes: Array) -> tuple[int, int]:
    """Return the first time (row) at which counts certify an arm, and the arm; −1 for never."""
    none = np.zeros_like(pulls[0])
    winner = -1 - ZERO
    for row in range(len(pulls)):
        state = State(pulls[row], successes[row], none, test.active)
        winner = certified_arm(arms, state, test, -1 - winner)
        if winner >= 0:
            return row, winner
    return -1, -1
