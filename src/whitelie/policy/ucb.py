"""UCB and UCB-CF."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from whitelie.kernel.arms import Arms, reward_at
from whitelie.kernel.cells import Cells, CellState, weighed_mean
from whitelie.kernel.exploration import exploration_now
from whitelie.kernel.rule import declare, shared, value
from whitelie.kernel.state import State, is_untried, mean_of
from whitelie.kernel.ucb import run_ucb
from whitelie.kernel.words import Word
from whitelie.policy.policy import Feedback, Kernel, Policy, check_exploration


@declare(local=True)
class UCBRule(NamedTuple):
    """The weights of ln t and of ln ln t in f(t)."""

    weight: float
    c: float


shared.register(UCBRule)(exploration_now)


@value.register(UCBRule)
def index(rule: UCBRule, arms: Arms, state: State, k: int, f: float, word: Word) -> float:
    """Return the upper confidence index of arm k on the scale of rewards: g^-1(λ̂ + sqrt(f/(2N))).

    Pending decisions count in N, not in λ̂; without any feedback λ̂ is ½.
    """
    # One way out: with an early return numba counts references to all arrays, five times as slow.
    number = state.pulls[k] + state.pending[k]
    reward = reward_at(arms, k, mean_of(arms, state, k) + math.sqrt(f / number / 2))
    return reward if number > 0 else math.inf


@value.register(UCBRule, Cells)
def index_of_cells(
    rule: UCBRule, arms: Cells, state: CellState, k: int, f: float, word: Word
) -> float:
    """Return the mean of corrected reports, weighed by squared slopes, + sqrt(f/(2·Σ n·slope²))."""
    if is_untried(state, k):
        return math.inf
    mean, weight = weighed_mean(arms, state, k)
    return mean + math.sqrt(f / weight / 2)


@dataclass(frozen=True, kw_only=True)
class UCB(Policy):
    """UCB-CF: the index is g^-1(λ̂ ± sqrt(f(t)/(2N))), f as in `KLUCB` (the paper, section 4.1)."""

    titles: ClassVar[Mapping[str, str]] = {
        "corrected": "UCB-CF",
        "naive": "UCB",
        "wrapped": "WR(UCB)",
    }
    plain_name: ClassVar[str] = "UCB"

    feedback: Feedback = "corrected"
    c: float = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exploration(self.c)

    @property
    def rule(self) -> UCBRule:
        """The rule with its tuning."""
        return UCBRule(1.0, float(self.c))

    @property
    def fast_kernel(self) -> Kernel:
        """An index is a + w·sqrt(f), and a pull changes a and w of one arm."""
        return run_ucb
