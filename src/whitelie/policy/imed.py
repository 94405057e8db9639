"""IMED and IMED-CF."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from whitelie.kernel.arms import Arms, feedback_at
from whitelie.kernel.cells import Cells, CellState, estimate_of, excess, likelihood
from whitelie.kernel.divergence import divergence
from whitelie.kernel.reading import estimate
from whitelie.kernel.rule import declare, shared, value
from whitelie.kernel.state import State, is_untried, mean_of
from whitelie.kernel.words import Word
from whitelie.policy.policy import Policy


@declare(local=True)
class IMEDRule(NamedTuple):
    """IMED has no tuning."""


@shared.register(IMEDRule)
def best_estimate(rule: IMEDRule, arms: Arms | Cells, state: State | CellState) -> float:
    """Return μ̂*: the largest estimate of an available arm, clipped to [0, 1].

    Arms without feedback have no estimate. Where none has any, all have the one of λ̂ = ½.
    """
    some_feedback = False
    for k in range(len(state.pulls)):
        some_feedback |= state.available[k] and state.pulls[k] > 0
    best = 0.0
    for k in range(len(state.pulls)):
        if state.available[k] and (state.pulls[k] > 0 or not some_feedback):
            best = max(best, estimate(arms, state, k))
    return min(best, 1.0)


@value.register(IMEDRule)
def index(rule: IMEDRule, arms: Arms, state: State, k: int, best: float, word: Word) -> float:
    """Return −(N·d⁺(λ̂, g(μ̂*)) + ln N), where d⁺(x, y) = d(x, y) if x < y, else 0.

    Pending decisions count in N, not in λ̂; without any feedback λ̂ is ½.
    """
    if is_untried(state, k):
        return math.inf
    number = state.pulls[k] + state.pending[k]
    mean, target = mean_of(arms, state, k), feedback_at(arms, k, best)
    cost = number * divergence(mean, target) if mean < target else 0.0
    return -(cost + math.log(number))


@value.register(IMEDRule, Cells)
def index_of_cells(
    rule: IMEDRule, arms: Cells, state: CellState, k: int, best: float, word: Word
) -> float:
    """Return −(L(μ̂*) − min L + ln N) of an arm whose q̂ is below μ̂*, else −ln N."""
    if is_untried(state, k):
        return math.inf
    own = estimate_of(arms, state, k)
    cost = excess(likelihood(arms, state, k), best, own) if own < best else 0.0
    return -(cost + math.log(state.pulls[k] + state.pending[k]))


@dataclass(frozen=True, kw_only=True)
class IMED(Policy):
    """IMED of Honda and Takemura (2015), and IMED-CF when feedback is corrected.

    The arm with the least N·d⁺(λ̂, g(μ̂*)) + ln N is pulled, where μ̂* is the largest estimate
    g^-1(λ̂), clipped to [0, 1], and d⁺(x, y) is d(x, y) if x < y, else 0: an arm is pulled about as
    often as it takes until exp(−N·d⁺) is the inverse of the best arm's pulls, which is Theorem 1's
    rate. There is no confidence level, and so no tuning.
    """

    titles: ClassVar[Mapping[str, str]] = {"corrected": "IMED-CF", "naive": "IMED"}
    plain_name: ClassVar[str] = "IMED"

    feedback: Literal["corrected", "naive"] = "corrected"

    @property
    def rule(self) -> IMEDRule:
        """The rule."""
        return IMEDRule()
