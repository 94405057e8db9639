"""The live chooser, of a `Bandit` and of the service alike: counts in, arms out."""

from collections.abc import Sequence

import numpy as np

from whitelie.channel import AnyChannel
from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.cells import Cells, CellState
from whitelie.kernel.choice import decide
from whitelie.kernel.rule import update
from whitelie.kernel.state import State
from whitelie.policy import Policy


class Chooser:
    """A policy with the channels of its arms, a key of random words, and its decisions so far.

    The counts are another's: they are given with every call. The same key, number of decisions and
    counts give the same choices.
    """

    _policy: Policy
    _arms: Arms | Cells

    def __init__(self, key: int) -> None:
        self.key = np.uint64(key)
        self.decisions = 0

    def define(
        self, policy: Policy, channels: Sequence[AnyChannel], active: Array | None = None
    ) -> None:
        """Take the policy and the channels of all arms; `active` arms are not retired."""
        self._arms = policy.read(channels, active)
        self._policy, self._rule = policy, policy.rule

    def choose(self, state: State | CellState, count: int) -> Array:
        """Return the positions of the arms to show in the next `count` decisions.

        Decisions of one call are pending for those after them; `state.pending` may be overwritten.
        Thompson sampling takes many decisions of one call faster, by other draws from the same
        distribution. The first decision, and all of few, are what single calls would give.
        """
        chosen = np.empty(count, dtype=np.int64)
        take = decide if isinstance(self._arms, Cells) else self._policy.live_kernel(count)
        take(self._rule, self._arms, state, self.key, self.decisions, chosen)
        self.decisions += count
        return chosen

    def remember(self, state: State | CellState, arm: int, feedback: int) -> None:
        """Let the rule update its memory with a feedback that the counts already contain."""
        update(self._rule, self._arms, state, arm, feedback)
