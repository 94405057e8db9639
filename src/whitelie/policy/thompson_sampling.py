"""Thompson sampling, and TS-CF."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from whitelie.kernel.arms import Arms
from whitelie.kernel.batch import play, play_together
from whitelie.kernel.block import LEAST_FOR_BLOCK, thompson_block
from whitelie.kernel.cells import Cells, CellState, draw_of
from whitelie.kernel.game import thresholds
from whitelie.kernel.posterior import sample
from whitelie.kernel.rule import declare, value
from whitelie.kernel.state import State
from whitelie.kernel.thompson import run_thompson
from whitelie.kernel.words import Word
from whitelie.policy.policy import Decide, Feedback, Kernel, Policy
from whitelie.problem import Problem


@declare()
class TSRule(NamedTuple):
    """Thompson sampling has no tuning."""


@value.register(TSRule)
def draw(rule: TSRule, arms: Arms, state: State, k: int, nothing: float, word: Word) -> float:
    """Return TS-CF's value of arm k: g^-1(θ) with θ drawn from Beta(S + 1, N − S + 1)."""
    return sample(arms, state, k, word)


@value.register(TSRule, Cells)
def draw_from_cells(
    rule: TSRule, arms: Cells, state: CellState, k: int, nothing: float, word: Word
) -> float:
    """Return a draw from the density e^−L of arm k, L as in `kernel/cells.py`."""
    return draw_of(arms, state, k, word)


play.register(TSRule)(play_together)


@dataclass(frozen=True, kw_only=True)
class TS(Policy):
    """Thompson sampling, and TS-CF when feedback is corrected (the paper, Algorithm 2).

    Draw θ from Beta(S + 1, N − S + 1) for every arm and take the largest g^-1(θ).
    """

    titles: ClassVar[Mapping[str, str]] = {"corrected": "TS-CF", "naive": "TS", "wrapped": "WR(TS)"}
    plain_name: ClassVar[str] = "Thompson sampling"

    feedback: Feedback = "corrected"

    @property
    def rule(self) -> TSRule:
        """The rule."""
        return TSRule()

    @property
    def runs_live(self) -> bool:
        """WR(TS) keeps the rounded rewards that it drew, so counts of feedback do not suffice."""
        return self.feedback != "wrapped"

    def game(self, problem: Problem, horizon: int) -> Any:
        """Return the game; WR(TS) plays the rounded rewards, which are Bernoulli bits themselves.

        WRAPPER's rescaled inverse value of a bit, rounded at random, is 1 with the probability
        offset + scale·P(bit = 1). Thompson sampling on such bits is naive.
        """
        game = super().game(problem, horizon)
        if self.feedback != "wrapped":
            return game
        arms, size = game.arms, len(problem.names)
        means = arms.offset + arms.scale * np.array(problem.feedback_means)
        arms = arms._replace(offset=np.zeros(size), scale=np.ones(size))
        return game._replace(arms=arms, thresholds=thresholds(means))

    @property
    def fast_kernel(self) -> Kernel:
        """Most draws need not be drawn."""
        return run_thompson

    def live_kernel(self, count: int) -> Decide:
        """Return the block for many decisions: most arms are far from winning most of them."""
        return thompson_block if count >= LEAST_FOR_BLOCK else super().live_kernel(count)
