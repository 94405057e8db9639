"""A researcher's own policy: any object with a choice rule, run in Python on the same draws."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from whitelie.channel import Channel
from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Array
from whitelie.kernel.choice import fill_words
from whitelie.kernel.game import bit, streams_of, thresholds
from whitelie.problem import Problem


@runtime_checkable
class OwnPolicy(Protocol):
    """A choice rule on counts of feedback. `words` are 64 random bits per arm, fresh each time."""

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        """Return the position of the arm to pull, after t feedbacks."""


def run_own(
    policy: OwnPolicy, problem: Problem, seed: int, checkpoints: Array, replicate: int
) -> Array:
    """Return pulls by checkpoint (row) and arm (column), as the kernels do."""
    size = len(problem.names)
    streams = streams_of(np.uint64(seed), replicate, size)
    limits = thresholds(np.array(problem.feedback_means))
    pulls, successes = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    words = np.empty(size, dtype=np.uint64)
    history = np.empty((len(checkpoints), size), dtype=np.int32)
    t = 0
    for row, checkpoint in enumerate(checkpoints):
        while t < checkpoint:
            fill_words(np.uint64(streams.decision_key), t, words)
            arm = policy.choose(pulls.copy(), successes.copy(), problem.channels, t, words.copy())
            _check_arm(arm, size, policy)
            successes[arm] += bit(streams.arm_keys[arm], pulls[arm], limits[arm])
            pulls[arm] += 1
            t += 1
        history[row] = pulls
    return history


def _check_arm(arm: Any, size: int, policy: OwnPolicy) -> None:
    if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < size:
        name = type(policy).__name__
        raise InvalidInput(f"{name}.choose", arm, f"return the position of an arm, 0 to {size - 1}")
