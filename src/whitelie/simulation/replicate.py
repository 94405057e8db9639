"""One replicate of a problem: the feedback that its arms give, whoever pulls them."""

import numpy as np

from whitelie.kernel.game import bit, streams_of, thresholds
from whitelie.problem import Problem


class Replicate:
    """The arms of a problem, with the bits of one seed and replicate.

    Feedback number s of an arm is a pure function of (seed, replicate, arm, s): the compiled
    policies, a researcher's own and a Gymnasium agent are all given the same one.
    """

    def __init__(self, problem: Problem, seed: int, number: int) -> None:
        size = len(problem.names)
        streams = streams_of(np.uint64(seed), number, size)
        self.decision_key = np.uint64(streams.decision_key)
        self.pulls = [0] * size
        self._keys = list(streams.arm_keys)
        self._thresholds = list(thresholds(np.array(problem.feedback_means)))

    def pull(self, arm: int) -> int:
        """Return the arm's next feedback, 0 or 1."""
        number = self.pulls[arm]
        self.pulls[arm] = number + 1
        return bit(self._keys[arm], number, self._thresholds[arm])
