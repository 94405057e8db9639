"""The algorithms by name: what they are called, how they are tuned, where they can run.

No algorithm is written here. A policy is a value that selects a choice rule of the kernel and how
that rule reads feedback:

- *corrected*: through the inverse of the arm's channel (the paper's -CF algorithms).
- *naive*: as if feedback were the reward.
- *wrapped*: the paper's WRAPPER. The inverse channel's values of the two bits, rescaled to [0, 1]
  by one affine map common to all arms, are taken for rewards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from whitelie import composition
from whitelie.channel import Channel, RandomizedResponse
from whitelie.errors import InvalidInput, real_number

Feedback = Literal["corrected", "naive", "wrapped"]
Domain = Literal["extended", "unit"]
Noise = Literal["once", "every round"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What all policies share: a title for each way of reading feedback, and plain data."""

    titles: ClassVar[Mapping[str, str]]

    feedback: str

    def __post_init__(self) -> None:
        _check_choice("feedback", self.feedback, tuple(self.titles))

    @property
    def label(self) -> str:
        """The name for legends, followed by whatever tuning is not the default."""
        tuned = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name != "feedback" and getattr(self, field.name) != field.default
        ]
        title = self.titles[self.feedback]
        return f"{title} ({', '.join(tuned)})" if tuned else title

    @property
    def counts_feedback(self) -> bool:
        """Whether the choice depends on the counts of feedback alone, so that it can run live."""
        return True

    def check_channels(self, channels: Sequence[Channel]) -> None:
        """Refuse channels with which this policy has no meaning."""
        if self.feedback == "wrapped":
            for channel in channels:
                if not isinstance(channel, RandomizedResponse):
                    raise InvalidInput(
                        "channels",
                        channel,
                        f"{self.label} needs affine channels: the mean of inverted feedback is not "
                        "the inverse of mean feedback on a tabulated one",
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `policy_from_dict` makes an equal policy."""
        return {"name": type(self).__name__, **asdict(self)}


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

    feedback: Feedback = "corrected"
    c: float = 3
    domain: Domain = "extended"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_exploration(self.c)
        _check_choice("domain", self.domain, ("extended", "unit"))


@dataclass(frozen=True, kw_only=True)
class UCB(Policy):
    """UCB-CF: the index is g^-1(λ̂ ± sqrt(f(t)/(2N))), f as in `KLUCB` (the paper, section 4.1)."""

    titles: ClassVar[Mapping[str, str]] = {
        "corrected": "UCB-CF",
        "naive": "UCB",
        "wrapped": "WR(UCB)",
    }

    feedback: Feedback = "corrected"
    c: float = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_exploration(self.c)


@dataclass(frozen=True, kw_only=True)
class UCB1(Policy):
    """UCB1 of Auer, Cesa-Bianchi and Fischer (2002): the index is mean + sqrt(2·ln t / N)."""

    titles: ClassVar[Mapping[str, str]] = {"naive": "UCB1", "wrapped": "WR(UCB1)"}

    feedback: Literal["naive", "wrapped"] = "naive"


@dataclass(frozen=True, kw_only=True)
class TS(Policy):
    """Thompson sampling, and TS-CF when feedback is corrected (the paper, Algorithm 2).

    Draw θ from Beta(S + 1, N − S + 1) for every arm and take the largest g^-1(θ).
    """

    titles: ClassVar[Mapping[str, str]] = {"corrected": "TS-CF", "naive": "TS", "wrapped": "WR(TS)"}

    feedback: Feedback = "corrected"

    @property
    def counts_feedback(self) -> bool:
        """WR(TS) keeps the rounded rewards that it drew, so counts of feedback do not suffice."""
        return self.feedback != "wrapped"


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
        _check_choice("calibrated", self.calibrated, (True, False))
        _check_choice("noise", self.noise, ("once", "every round"))

    @property
    def counts_feedback(self) -> bool:
        """It keeps stale noisy indices of true rewards."""
        return False

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


def policy_from_dict(data: Any) -> Policy:
    """Return the policy that a policy's `to_dict` described.

    >>> policy_from_dict(KLUCB(c=0).to_dict()) == KLUCB(c=0)
    True
    """
    kinds: dict[str, type[Policy]] = {
        kind.__name__: kind for kind in (KLUCB, UCB, UCB1, TS, DPUCBInt)
    }
    if not isinstance(data, dict) or str(data.get("name")) not in kinds:
        raise InvalidInput("policy", data, 'its "name" must be one of ' + ", ".join(kinds))
    tuning = {key: value for key, value in data.items() if key != "name"}
    try:
        return kinds[data["name"]](**tuning)
    except TypeError as error:
        raise InvalidInput("policy", data, f"{data['name']} has no such tuning") from error


def _check_choice(field: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise InvalidInput(field, value, "choose one of " + ", ".join(map(repr, choices)))


def _check_exploration(c: Any) -> None:
    real_number("c", c, "the weight of ln ln t is a number from 0 to 10^6", least=0, most=1e6)
