"""Top-two sampling: to know the best arm, not only to earn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

from whitelie.errors import InvalidInput, real_number
from whitelie.kernel.batch import play
from whitelie.kernel.block import LEAST_FOR_BLOCK
from whitelie.kernel.choice import choose
from whitelie.kernel.rule import declare
from whitelie.kernel.top_two import choose_top_two, play_top_two, top_two_block
from whitelie.policy.policy import Decide, Policy


@declare()
class TopTwoRule(NamedTuple):
    """With which probability a decision serves to know: a challenger is looked for."""

    know: float


choose.register(TopTwoRule)(choose_top_two)
play.register(TopTwoRule)(play_top_two)


@dataclass(frozen=True, kw_only=True)
class TopTwo(Policy):
    """Top-two sampling, which tells the best arm from the others sooner than any other policy here.

    Draw the leader L by Thompson sampling. Its challenger is the arm of the least W + ln N_b, where
    W = min over x of N_L·d(λ̂_L, g_L(x)) + N_b·d(λ̂_b, g_b(x)) is the transport cost; show the
    challenger with the probability of its part in W, else L (TS-TCI with information-directed
    selection: Jourdan and others 2022, You and others 2023, read through the channels). W counts
    pending decisions in N, the posterior does not. With probability 1 − `know` the leader is shown
    without a challenger: nearer 0 it earns more, as Thompson sampling does, and knows later.

    >>> TopTwo().label, TopTwo(know=0.5).label
    ('TopTwo-CF', 'TopTwo-CF (know=0.5)')
    """

    titles: ClassVar[Mapping[str, str]] = {"corrected": "TopTwo-CF", "naive": "TopTwo"}
    plain_name: ClassVar[str] = "top-two sampling"

    feedback: Literal["corrected", "naive"] = "corrected"
    know: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        reason = "the share of decisions that serve to know is above 0 and at most 1"
        if real_number("know", self.know, reason, least=0, most=1) == 0:
            raise InvalidInput("know", self.know, f"{reason}; for 0 choose Thompson sampling")

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Return every way of reading feedback, and a policy that also earns."""
        return (*super().examples(), cls(know=0.5))

    @property
    def rule(self) -> TopTwoRule:
        """The rule with its tuning."""
        return TopTwoRule(float(self.know))

    def live_kernel(self, count: int) -> Decide:
        """Return the block for many decisions: leaders are drawn together."""
        return top_two_block if count >= LEAST_FOR_BLOCK else super().live_kernel(count)
