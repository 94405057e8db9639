"""kl-UCB and kl-UCB-CF."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

from whitelie.kernel.arms import Arms, reward_at
from whitelie.kernel.cell_leader import run_kl_ucb_of_cells
from whitelie.kernel.cells import Cells, CellState, end_of
from whitelie.kernel.divergence import upper_end
from whitelie.kernel.exploration import exploration_now
from whitelie.kernel.leader import run_kl_ucb
from whitelie.kernel.rule import declare, shared, value
from whitelie.kernel.state import State, is_untried, mean_of
from whitelie.kernel.words import Word
from whitelie.policy.policy import Feedback, Kernel, Policy, check_choice, check_exploration

Domain = Literal["extended", "unit"]


@declare(local=True)
class KLUCBRule(NamedTuple):
    """The weights of ln t and ln ln t in f(t), and whether indices stay in [0, 1]."""

    c: float
    unit: bool
    weight: float = 1.0


shared.register(KLUCBRule)(exploration_now)


@value.register(KLUCBRule)
def index(rule: KLUCBRule, arms: Arms, state: State, k: int, f: float, word: Word) -> float:
    """Return the upper confidence index of arm k, on the scale of rewards.

    max{q : N·d(λ̂, g(q)) ≤ f} = g^-1(max{p : N·d(λ̂, p) ≤ f}) for increasing g. Pending decisions
    count in N, not in λ̂; without any feedback λ̂ is ½. Where no q ∈ [0, 1] qualifies, "unit" gives
    the nearest end point.
    """
    if is_untried(state, k):
        return math.inf
    budget = f / (state.pulls[k] + state.pending[k])
    reward = reward_at(arms, k, upper_end(mean_of(arms, state, k), budget))
    return min(max(reward, 0.0), 1.0) if rule.unit else reward


@value.register(KLUCBRule, Cells)
def index_of_cells(
    rule: KLUCBRule, arms: Cells, state: CellState, k: int, f: float, word: Word
) -> float:
    """Return max{q : L(q) − min L ≤ f}, L as in `kernel/cells.py`: the same on reports in cells."""
    if is_untried(state, k):
        return math.inf
    reward = end_of(arms, state, k, f, True)
    return min(max(reward, 0.0), 1.0) if rule.unit else reward


@dataclass(frozen=True, kw_only=True)
class KLUCB(Policy):
    """kl-UCB, and kl-UCB-CF when feedback is corrected (the paper, Algorithm 1).

    The index is max{q : N·d(λ̂, g(q)) ≤ f(t)} with f(t) = max(0, ln t + c·ln max(1, ln t)).
    `domain="extended"` lets q leave [0, 1] where an affine g allows it; "unit" does not.

    >>> KLUCB().label, KLUCB(feedback="naive").label, KLUCB(c=0).label
    ('kl-UCB-CF', 'kl-UCB', 'kl-UCB-CF (c=0)')
    """

    titles: ClassVar[Mapping[str, str]] = {
        "corrected": "kl-UCB-CF",
        "naive": "kl-UCB",
        "wrapped": "WR(kl-UCB)",
    }
    plain_name: ClassVar[str] = "kl-UCB"

    feedback: Feedback = "corrected"
    c: float = 3
    domain: Domain = "extended"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exploration(self.c)
        check_choice("domain", self.domain, ("extended", "unit"))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Return every way of reading feedback, and indices on the unit domain."""
        return (*super().examples(), cls(c=0, domain="unit"))

    @property
    def rule(self) -> KLUCBRule:
        """The rule with its tuning."""
        return KLUCBRule(float(self.c), self.domain == "unit")

    @property
    def no_plan_because(self) -> str | None:
        """Plans leave indices their extended domain."""
        if self.domain == "unit":
            return "the domain must be extended"
        return super().no_plan_because

    @property
    def fast_kernel(self) -> Kernel:
        """A certified leader is pulled unchallenged."""
        return run_kl_ucb

    @property
    def cell_kernel(self) -> Kernel:
        """An index is solved only where its ceiling is the largest."""
        return run_kl_ucb_of_cells
