"""DP-UCB-INT, a policy of global privacy, for comparison."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from whitelie import composition
from whitelie.errors import real_number
from whitelie.kernel.dp_ucb_int import ReleaseGame, run_dp_ucb_int
from whitelie.kernel.game import thresholds
from whitelie.policy.policy import Kernel, Policy, check_choice
from whitelie.problem import Problem

Noise = Literal["once", "every round"]


@dataclass(frozen=True, kw_only=True)
class DPUCBInt(Policy):
    """DP-UCB-INT of Tossou and Dimitrakakis (2016, Algorithm 3): global privacy, for comparison.

    It sees true rewards and hides them from those who see its choices. Every `period` pulls of an
    arm it releases a noisy index; `epsilon` is the input of the published algorithm, where the
    period is ⌈1/epsilon⌉, and *not* the total: `guarantee` computes that. With `calibrated` the
    period is the smallest whose total over the horizon is at most epsilon. `noise="every round"`
    is the published loop read literally; it redraws the noise of arms that were not pulled, which
    its privacy accounting leaves out.

    >>> print(DPUCBInt().guarantee(100_000))
    ε = 15.9, δ = 4.6e-05 after 100,000 steps (Kairouz, Oh and Viswanath, Theorem 3.5)
    >>> DPUCBInt(calibrated=True).period(100_000)
    69
    """

    titles: ClassVar[Mapping[str, str]] = {"rewards": "DP-UCB-INT"}
    plain_name: ClassVar[str] = "DP-UCB-INT"

    feedback: Literal["rewards"] = "rewards"
    epsilon: float = 1.0
    v: float = 1.1
    delta: float = math.exp(-10)
    calibrated: bool = False
    noise: Noise = "once"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, least, most in (
            ("epsilon", 1e-6, 1),
            ("v", 1 + 1e-6, 1.5),
            ("delta", 1e-300, 0.5),
        ):
            reason = f"DP-UCB-INT is defined here from {least} to {most}"
            real_number(field, getattr(self, field), reason, least=least, most=most)
        check_choice("calibrated", self.calibrated, (True, False))
        check_choice("noise", self.noise, ("once", "every round"))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Return noise that is drawn once and every round, and a longer period."""
        return cls(), cls(noise="every round"), cls(epsilon=0.3), cls(calibrated=True)

    @property
    def runs_live(self) -> bool:
        """It keeps stale noisy indices of true rewards."""
        return False

    @property
    def counts_feedback(self) -> bool:
        """It sees rewards."""
        return False

    def game(self, problem: Problem, horizon: int) -> ReleaseGame:
        """Return what it plays up to the horizon."""
        limits = thresholds(np.array(problem.means))
        every_round = self.noise == "every round"
        return ReleaseGame(self.period(horizon), float(self.v), every_round, limits)

    def kernel(self, game: Any, *, plain: bool = False) -> Kernel:
        """Return the only loop: it has no rule on counts."""
        return run_dp_ucb_int

    def period(self, horizon: int) -> int:
        """Return after how many pulls of an arm its index is released anew."""
        if not self.calibrated:
            return math.ceil(1 / self.epsilon)
        return composition.calibrated_period(self.epsilon, self.v, self.delta, horizon)

    def guarantee(self, horizon: int) -> composition.Guarantee:
        """Return the total privacy of one person's reward after `horizon` steps."""
        if self.noise == "every round":
            reason = "noise redrawn every round: no theorem applied"
            return composition.Guarantee(math.inf, self.delta, horizon, reason)
        levels = composition.release_levels(self.period(horizon), self.v, horizon)
        total = composition.optimal(levels, self.delta)
        theorem = "Kairouz, Oh and Viswanath, Theorem 3.5"
        return composition.Guarantee(total, self.delta, horizon, theorem)
