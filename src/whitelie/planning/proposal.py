"""A plan: what privacy costs on a design, before it is spent."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.planning.budget import budget_of
from whitelie.planning.design import Design
from whitelie.planning.option import Option, option_of
from whitelie.planning.recommendation import Recommendation, recommend
from whitelie.planning.runs import laboratory
from whitelie.policy import TS, Policy
from whitelie.progress import progress as show_progress

EPSILONS = (0.5, 1.0, 2.0)
REPLICATES = 300


@dataclass(frozen=True)
class Plan:
    """One option for each mechanism, and the recommendation if there is a budget."""

    design: Design
    options: tuple[Option, ...]
    recommendation: Recommendation | None
    replicates: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; None is infinite, or beyond the year."""
        found = self.recommendation
        return {
            "design": self.design.to_dict(),
            "options": [option.to_dict() for option in self.options],
            "recommendation": None if found is None else found.to_dict(),
            "replicates": self.replicates,
            "seed": self.seed,
        }


def plan(  # noqa: PLR0913 (what users expect to tune, all by name)
    *,
    arms: int | None = None,
    rate: float | None = None,
    difference: float | None = None,
    rates: Any = None,
    traffic: float,
    arrive: float = 1.0,
    delay: float = 0.0,
    epsilon: Any = None,
    channel: Any = None,
    policy: Policy | None = None,
    reports_per_person: int = 1,
    within_days: float | None = None,
    lose_at_most: float | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = False,
) -> Plan:
    """Return what each epsilon would cost over a year: lost rewards, and days until one knows.

    Either `arms` arms of which one has `rate` + `difference` and the others `rate`, or the expected
    `rates`. `traffic` answers are asked for on a day; the share `arrive` of them is ever
    reported on, and a report arrives `delay` days after its decision, each exactly so late.
    `epsilon` is one or several numbers (0.5, 1 and 2 unless given), or `channel` one or several
    mechanisms. With a budget, `within_days` until one knows or `lose_at_most` rewards in a year,
    the smallest epsilon that keeps it is searched for. Thompson sampling unless another policy is
    given. The numbers depend on the seed, and not on `jobs`, the number of threads.

    >>> found = plan(rates=[0.4, 0.6], traffic=500, epsilon=2, replicates=100, seed=1)
    >>> found.options[0].know.days < 30
    True
    """
    design = _design(
        (arms, rate, difference),
        rates,
        traffic=traffic,
        arrive=arrive,
        delay=delay,
        reports_per_person=reports_per_person,
        policy=TS() if policy is None else policy,
    )
    if within_days is not None and lose_at_most is not None:
        reason = "give one budget: within_days, or lose_at_most"
        raise InvalidInput("lose_at_most", lose_at_most, reason)
    budget = budget_of(within_days, lose_at_most)
    mechanisms = _mechanisms(epsilon, channel)
    total = len(mechanisms) + (budget is not None)
    with (
        laboratory(replicates, seed, jobs) as lab,
        show_progress("steps of the plan", total, shown=progress) as advance,
    ):
        options = []
        for name, mechanism in mechanisms:
            options.append(option_of(design, mechanism, name, lab.run(design, mechanism)))
            advance(1)
        recommendation = None
        if budget is not None:
            recommendation = recommend(lab, design, budget, options)
            advance(1)
        return Plan(design, tuple(options), recommendation, lab.replicates, lab.seed)


def _design(one_better: tuple[Any, Any, Any], rates: Any, **rest: Any) -> Design:
    given = dict(zip(("arms", "rate", "difference"), one_better, strict=True))
    if rates is not None:
        for field, value in given.items():
            if value is not None:
                reason = "give either rates, or arms with a rate and a difference"
                raise InvalidInput(field, value, reason)
        return Design(rates=rates, **rest)
    for field, value in given.items():
        if value is None:
            reason = "give arms, rate and difference, or the expected rates of all arms"
            raise InvalidInput(field, value, reason)
    return Design.of_difference(**given, **rest)


def _mechanisms(epsilon: Any, channel: Any) -> list[tuple[float, RandomizedResponse]]:
    if channel is not None:
        if epsilon is not None:
            raise InvalidInput("epsilon", epsilon, "give either epsilon or channel, not both")
        channels = (
            [channel] if isinstance(channel, RandomizedResponse) else _listed("channel", channel)
        )
        for one in channels:
            if not isinstance(one, RandomizedResponse):
                reason = "plans are made for randomised response: give RandomizedResponse(...)"
                raise InvalidInput("channel", one, reason)
        return [(one.epsilon, one) for one in channels]
    asked = EPSILONS if epsilon is None else _listed("epsilon", epsilon)
    channels = [RandomizedResponse.from_epsilon(one) for one in asked]
    return list(dict(zip(map(float, asked), channels, strict=True)).items())


def _listed(field: str, given: Any) -> list[Any]:
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    values = list(given) if several else [given]
    if not values:
        raise InvalidInput(field, given, "give at least one")
    return values
