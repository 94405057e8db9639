"""What is to be learned, and from how many people: the question that a plan answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput, real_number, whole_number
from whitelie.planning.goal import Goal
from whitelie.policy import COUNT_POLICIES, TS, Policy
from whitelie.problem import Problem

DAYS_PER_YEAR = 365
"""A plan looks so many days ahead."""

MOST_ARMS = 100
MOST_ANSWERS_PER_DAY = 1e9


@dataclass(frozen=True, kw_only=True)
class Design:
    """Expected rates, answers asked per day, what share of them arrives and when; policy and goal.

    >>> design = Design(rates=(0.05, 0.05, 0.06), traffic=20_000, arrive=0.8)
    >>> design.reports_per_day, design.horizon
    (16000.0, 5840000)
    """

    rates: tuple[float, ...]
    traffic: float
    arrive: float = 1.0
    delay: float = 0.0
    reports_per_person: int = 1
    policy: Policy = field(default_factory=TS)
    goal: Goal = field(default_factory=Goal)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", _rates(self.rates))
        object.__setattr__(self, "traffic", _traffic(self.traffic))
        object.__setattr__(self, "arrive", _arrive(self.arrive))
        object.__setattr__(self, "delay", _delay(self.delay))
        whole_number("reports_per_person", self.reports_per_person, least=1, most=10**6)
        _check_policy(self.policy)
        if self.goal.ships and len(self.best) > 1 and self.goal.certificate.tolerance == 0:
            reason = (
                f"{len(self.best)} arms share the largest rate, and nobody can know which is best: "
                "give the difference that does not matter"
            )
            raise InvalidInput("tolerance", self.goal.certificate.tolerance, reason)
        if self.horizon < 10 * len(self.rates):
            raise InvalidInput(
                "traffic",
                self.traffic,
                f"{self.horizon} reports arrive in a year, too few to try each of "
                f"{len(self.rates)} arms ten times",
            )

    @classmethod
    def of_difference(cls, arms: Any, rate: Any, difference: Any, **rest: Any) -> Self:
        """Return the design where one arm has rate + difference and all others the rate."""
        count = _arms(arms)
        base = real_number("rate", rate, "a rate lies in [0, 1]", least=0, most=1)
        step = real_number(
            "difference",
            difference,
            "give the difference that matters as a number from 0 to 1",
            least=0,
            most=1,
        )
        if step == 0:
            raise InvalidInput("difference", difference, NOTHING_TO_LEARN)
        if base + step > 1:
            reason = f"the best arm would have rate {base + step:g}, and a rate lies in [0, 1]"
            raise InvalidInput("rate + difference", base + step, reason)
        return cls(rates=(base,) * (count - 1) + (base + step,), **rest)

    @property
    def best(self) -> tuple[int, ...]:
        """The positions of the arms with the largest rate."""
        return tuple(k for k, rate in enumerate(self.rates) if rate == max(self.rates))

    @property
    def reports_per_day(self) -> float:
        """How many reports arrive on a day."""
        return self.traffic * self.arrive

    @property
    def horizon(self) -> int:
        """How many reports arrive in a year."""
        return math.floor(DAYS_PER_YEAR * self.reports_per_day)

    @property
    def lag(self) -> int:
        """How many more decisions are made before a report arrives, of those reported on."""
        return round(self.delay * self.reports_per_day)

    def problem(self, channel: RandomizedResponse) -> Problem:
        """Return the bandit problem when every answer goes through this channel."""
        return Problem(self.rates, channel)

    def with_base(self, factor: float) -> Self:
        """Return the design whose base rate is multiplied, with the same differences.

        The base is the best of the other arms. Above ½ it is the rate of the rarer outcome,
        1 − base, that is divided, and no rate is moved beyond 0 or 1.
        """
        base = self.base
        moved = base * factor if base <= 0.5 else 1 - (1 - base) / factor
        least, most = base - min(self.rates), 1 - (max(self.rates) - base)
        shift = min(max(moved, least), most) - base
        return replace(self, rates=tuple(min(max(r + shift, 0.0), 1.0) for r in self.rates))

    def with_difference(self, factor: float) -> Self:
        """Return the design whose differences from the base, the best of the others, shrink."""
        base = self.base
        return replace(self, rates=tuple(base + factor * (rate - base) for rate in self.rates))

    @property
    def base(self) -> float:
        """The base rate: the best of the other arms."""
        return max(rate for rate in self.rates if rate < max(self.rates))

    @property
    def lead(self) -> float:
        """The difference that matters: how far the best rate is above the base."""
        return max(self.rates) - self.base

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data."""
        return {
            "rates": list(self.rates),
            "traffic": self.traffic,
            "arrive": self.arrive,
            "delay": self.delay,
            "reports_per_day": self.reports_per_day,
            "reports_per_person": self.reports_per_person,
            "policy": self.policy.to_dict(),
            "goal": self.goal.to_dict(),
            "horizon": self.horizon,
        }


NOTHING_TO_LEARN = "there is nothing to learn: say which difference would matter"


def _rates(rates: Any) -> tuple[float, ...]:
    if isinstance(rates, str | bytes) or not isinstance(rates, Sequence):
        raise InvalidInput("rates", rates, "give the expected rate of each arm, as [0.05, 0.06]")
    _arms(len(rates))
    reason = "a rate lies in [0, 1]"
    numbers = tuple(
        real_number(f"rates[{k}]", rate, reason, least=0, most=1) for k, rate in enumerate(rates)
    )
    if min(numbers) == max(numbers):
        raise InvalidInput("rates", rates, NOTHING_TO_LEARN)
    return numbers


def _arms(arms: Any) -> int:
    try:
        return whole_number("arms", arms, least=2, most=MOST_ARMS)
    except InvalidInput:
        reason = f"a plan compares 2 to {MOST_ARMS} arms: give a whole number of them"
        raise InvalidInput("arms", arms, reason) from None


def _traffic(traffic: Any) -> float:
    reason = (
        "give how many answers are asked for on a day, a number above 0 and at most "
        f"{MOST_ANSWERS_PER_DAY:,.0f}"
    )
    return real_number("traffic", traffic, reason, least=5e-324, most=MOST_ANSWERS_PER_DAY)


def _arrive(arrive: Any) -> float:
    reason = "give the share of reports that arrive, above 0 and at most 1"
    return real_number("arrive", arrive, reason, least=5e-324, most=1)


def _delay(delay: Any) -> float:
    reason = (
        "give the days from a decision to its report, from 0 and below "
        f"{DAYS_PER_YEAR}: a plan looks one year ahead"
    )
    days = real_number("delay", delay, reason, least=0, most=DAYS_PER_YEAR)
    if days == DAYS_PER_YEAR:
        raise InvalidInput("delay", delay, reason)
    return days


def _check_policy(policy: Any) -> None:
    is_policy = isinstance(policy, Policy)
    reason = policy.no_plan_because if is_policy else "give a policy such as TS()"
    if reason is not None:
        *names, last = (policy.plain_name for policy in COUNT_POLICIES)
        can = f"plans are made for {', '.join(names)} and {last}"
        raise InvalidInput("policy", policy.label if is_policy else policy, f"{can}: {reason}")
