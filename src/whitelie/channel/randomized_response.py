"""Randomised response: the device keeps its bit or turns it, with known probabilities."""

import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from whitelie.channel import coin
from whitelie.errors import InvalidInput, real_number


def probability(field: str, value: Any) -> float:
    """Return the value as a float if it is a probability, else refuse it by name."""
    return real_number(field, value, "a probability lies in [0, 1]", least=0, most=1)


def _budget(field: str, value: Any) -> float:
    reason = (
        "it must be a number above 0: at 0 the feedback is independent of the reward "
        "and nothing can be learned"
    )
    return real_number(field, value, reason, least=5e-324, most=math.inf)


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    """A binary channel: P(feedback 0 | reward 0) = p00 and P(feedback 1 | reward 1) = p11.

    Its mean-corruption function is g(x) = 1 − p00 + (p00 + p11 − 1)·x (the paper, eq. 3), used on
    the whole line. Each probability is rounded toward ½ to a whole number of 2^-64ths, which
    changes only numbers below 2^-12: the coin flips with exactly the stated probabilities.

    >>> survey = RandomizedResponse(p00=0.75, p11=0.75)
    >>> survey.mean_feedback(0.5), round(survey.mean_reward(0.7), 3), round(survey.epsilon, 4)
    (0.5, 0.9, 1.0986)
    """

    p00: float
    p11: float

    kind: ClassVar[str] = "randomized_response"

    def __post_init__(self) -> None:
        for field in ("p00", "p11"):
            given = probability(field, getattr(self, field))
            object.__setattr__(self, field, coin.threshold(given) / coin.ONE)
        if self.p00 + self.p11 == 1:
            raise InvalidInput(
                "p00 + p11",
                self.p00 + self.p11,
                "a sum of 1 makes the slope 0: feedback says nothing about the reward, "
                "and nothing can be learned from it",
            )

    @classmethod
    def from_epsilon(cls, epsilon: float) -> Self:
        """Return the symmetric channel that is epsilon-locally private: p = e^ε / (1 + e^ε).

        For binary rewards it is the most informative of all epsilon-private channels, at every
        epsilon. The exact epsilon of its coin is at most the one asked for; inf is the identity.

        >>> RandomizedResponse.from_epsilon(1).epsilon <= 1
        True
        """
        asked = _budget("epsilon", epsilon)
        p = 1.0 if asked == math.inf else coin.truth_probability(asked)
        if p == 0.5:
            reason = "it is too small: its coin cannot be told from a fair one"
            raise InvalidInput("epsilon", epsilon, reason)
        return cls(p00=p, p11=p)

    @classmethod
    def from_epsilons(cls, *, epsilon0: float, epsilon1: float) -> Self:
        """Return the most informative channel for two budgets: of a reward of 0 and of 1.

        One report multiplies anyone's odds that the reward is 1 by at most e^ε₁, and the odds that
        it is 0 by at most e^ε₀: P(1|0) = (e^ε₀ − 1)/(e^(ε₀+ε₁) − 1) and P(1|1) = e^ε₁·P(1|0). A
        report of 1 spends all of ε₁, a report of 0 all of ε₀. Equal budgets give `from_epsilon`.

        Where only "yes" is sensitive, `epsilon0=math.inf` tells far more at the same ε₁: everybody
        with reward 1 reports 1, and so does a share e^−ε₁ of the others, which hides them. Then a
        report of 0 *proves* a reward of 0, so `epsilon`, the larger of the two, is infinite.

        >>> only_yes = RandomizedResponse.from_epsilons(epsilon0=math.inf, epsilon1=math.log(4))
        >>> round(only_yes.p00, 9), only_yes.p11, round(only_yes.epsilon1, 9), only_yes.epsilon0
        (0.75, 1.0, 1.386294361, inf)
        """
        zero, one = _budget("epsilon0", epsilon0), _budget("epsilon1", epsilon1)
        if zero == one:
            return cls.from_epsilon(zero)
        p00, p11 = coin.truth_probabilities(zero, one)
        if p00 + p11 <= 1:
            field, smaller = min((("epsilon0", zero), ("epsilon1", one)), key=lambda pair: pair[1])
            reason = "it is too small: the coin cannot tell a reward of 0 from a reward of 1"
            raise InvalidInput(field, smaller, reason)
        return cls(p00=p00, p11=p11)

    @classmethod
    def warner(cls, p: float) -> Self:
        """Warner's design (1965): the statement with probability p, its opposite otherwise."""
        p = probability("p", p)
        return cls(p00=p, p11=p)

    @classmethod
    def forced(cls, truth: float, yes: float) -> Self:
        """Forced response: the truth with probability `truth`, "yes" with `yes`, "no" otherwise."""
        truth, yes = probability("truth", truth), probability("yes", yes)
        if truth + yes > 1:
            raise InvalidInput(
                "truth + yes", truth + yes, "the two probabilities must not exceed 1 together"
            )
        return cls(p00=1 - yes, p11=truth + yes)

    @classmethod
    def unrelated(cls, truth: float, alpha: float) -> Self:
        """Unrelated question: the sensitive one with probability `truth`, else one of rate alpha.

        >>> channel = RandomizedResponse.unrelated(truth=1 / 2, alpha=1 / 10)
        >>> channel.p00, channel.p11
        (0.95, 0.55)
        """
        truth, alpha = probability("truth", truth), probability("alpha", alpha)
        innocuous_yes = (1 - truth) * alpha
        return cls(p00=1 - innocuous_yes, p11=truth + innocuous_yes)

    @classmethod
    def positive_unlabelled(cls, seen: float) -> Self:
        """Positive and unlabelled feedback: a 1 arrives with probability `seen`, a 0 always as 0.

        A feedback of 1 proves the reward, so epsilon is infinite: this describes lost feedback,
        it does not protect anybody.
        """
        return cls(p00=1.0, p11=probability("seen", seen))

    @cached_property
    def thresholds(self) -> tuple[int, int]:
        """The coin's integers: P(1 | reward 0)·2^64 and P(1 | reward 1)·2^64."""
        return coin.ONE - coin.threshold(self.p00), coin.threshold(self.p11)

    @cached_property
    def slope(self) -> float:
        """The slope of g: p00 + p11 − 1."""
        zero, one = self.thresholds
        return (one - zero) / coin.ONE

    @property
    def increasing(self) -> bool:
        """Whether more reward means more feedback."""
        return self.slope > 0

    @cached_property
    def epsilon(self) -> float:
        """The local differential privacy of one report; k reports of one person cost k times it."""
        return coin.exact_epsilon(*self.thresholds)

    @cached_property
    def epsilon0(self) -> float:
        """The budget of a reward of 0: one report raises its odds by at most e^epsilon0."""
        return coin.exact_epsilons(*self.thresholds)[0]

    @cached_property
    def epsilon1(self) -> float:
        """The budget of a reward of 1: one report raises its odds by at most e^epsilon1."""
        return coin.exact_epsilons(*self.thresholds)[1]

    def mean_feedback(self, mu: float) -> float:
        """Return g(mu), the mean feedback of an arm with mean reward mu."""
        return (1 - mu) * (1 - self.p00) + mu * self.p11

    def mean_reward(self, lam: float) -> float:
        """Return the inverse of g at lam; outside g([0, 1]) it leaves [0, 1]."""
        return (lam - (1 - self.p00)) / self.slope

    def flip(self, reward: float, *, randbits: coin.RandomBits = secrets.randbits) -> int:
        """Return the feedback of one reward in [0, 1]: 1 with probability g(reward).

        A reward strictly between 0 and 1 is rounded at random and randomised in one draw.
        `randbits(n)` must return n secret uniform bits; replace it in tests only. The bits are
        drawn before the reward is read, and an error does not repeat the reward that it refuses.
        """
        word = randbits(128)
        try:
            known = probability("reward", int(reward) if isinstance(reward, bool) else reward)
        except InvalidInput:
            raise InvalidInput("reward", "(not shown)", "a reward lies in [0, 1]") from None
        return coin.flip(*self.thresholds, known, word)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `channel_from_dict` makes an equal channel."""
        return {"kind": self.kind, "p00": self.p00, "p11": self.p11}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the channel that `to_dict` described."""
        return cls(p00=data["p00"], p11=data["p11"])


IDENTITY = RandomizedResponse(p00=1.0, p11=1.0)
"""The channel that changes nothing: feedback is the reward, epsilon is infinite."""
