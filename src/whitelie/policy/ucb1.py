"""UCB1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from whitelie.kernel.ucb import run_ucb
from whitelie.policy.policy import Kernel, Policy
from whitelie.policy.ucb import UCBRule


@dataclass(frozen=True, kw_only=True)
class UCB1(Policy):
    """UCB1 of Auer, Cesa-Bianchi and Fischer (2002): the index is mean + sqrt(2·ln t / N)."""

    titles: ClassVar[Mapping[str, str]] = {"naive": "UCB1", "wrapped": "WR(UCB1)"}
    plain_name: ClassVar[str] = "UCB1"

    feedback: Literal["naive", "wrapped"] = "naive"

    @property
    def rule(self) -> UCBRule:
        """The rule of UCB with f(t) = 4·ln t: mean + sqrt(f/(2N)) = mean + sqrt(2·ln t/N)."""
        return UCBRule(4.0, 0.0)

    @property
    def fast_kernel(self) -> Kernel:
        """That of UCB."""
        return run_ucb
