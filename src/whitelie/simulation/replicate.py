"""One replicate of a problem: the feedback that its arms give, whoever pulls them."""

from typing import Any

import numpy as np

from whitelie.channel import Menu
from whitelie.kernel.cell_game import cell, cumulative_thresholds
from whitelie.kernel.cells import cell_probabilities, has_cells
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
        self._channels = problem.channels if has_cells(problem.channels) else None
        if self._channels is None:
            self._thresholds = list(thresholds(np.array(problem.feedback_means)))
        else:
            probabilities = np.array(cell_probabilities(self._channels, problem.means))
            self._thresholds = list(cumulative_thresholds(probabilities))

    def pull(self, arm: int) -> Any:
        """Return the arm's next feedback: 0 or 1, an output, or (choice, output) of a menu."""
        number = self.pulls[arm]
        self.pulls[arm] = number + 1
        if self._channels is None:
            return bit(self._keys[arm], number, self._thresholds[arm])
        place, channel = (
            int(cell(self._keys[arm], number, self._thresholds[arm])),
            self._channels[arm],
        )
        if not isinstance(channel, Menu):
            return place
        choice = max(c for c, start in enumerate(channel.starts) if start <= place)
        return choice, place - channel.starts[choice]
