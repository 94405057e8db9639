"""A plan: what privacy costs on a design, before any of it is spent."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from whitelie.certificate import DELTA, Certificate, Expect
from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.planning.budget import budget_of
from whitelie.planning.comparison import Comparison, Frontier, compare, frontier
from whitelie.planning.design import Design
from whitelie.planning.goal import AS_PLANNED, Goal, expectation
from whitelie.planning.option import Option, option_of
from whitelie.planning.recommendation import Recommendation, recommend
from whitelie.planning.runs import design_simulator
from whitelie.policy import TS, Policy, TopTwo
from whitelie.simulation.progress import progress as show_progress

DEFAULT_EPSILONS = (0.5, 1.0, 2.0)
DEFAULT_REPLICATES = 300


@dataclass(frozen=True)
class Plan:
    """One option for each mechanism, and the recommendation if there is a budget.

    If the goal is to know: other policies beside the design's, and what `know` of top-two sampling
    trades.
    """

    design: Design
    options: tuple[Option, ...]
    comparisons: tuple[Comparison, ...]
    frontier: Frontier | None
    recommendation: Recommendation | None
    replicates: int
    seed: int

    @property
    def shown(self) -> list[Option]:
        """The options by epsilon, and the recommended one."""
        return shown_options(self.options, self.recommendation)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; None is infinite, or beyond the year."""
        recommendation = self.recommendation
        return {
            "design": self.design.to_dict(),
            "options": [option.to_dict() for option in self.options],
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
            "frontier": None if self.frontier is None else self.frontier.to_dict(),
            "recommendation": None if recommendation is None else recommendation.to_dict(),
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
    goal: Literal["earn", "know"] = "earn",
    know: float | None = None,
    delta: float = DELTA,
    tolerance: float = 0.0,
    expect: Expect | dict[str, float] | Literal["plan"] | None = AS_PLANNED,
    reports_per_person: int = 1,
    within_days: float | None = None,
    lose_at_most: float | None = None,
    replicates: int = DEFAULT_REPLICATES,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = False,
) -> Plan:
    """Return what each epsilon would cost over a year: lost rewards, days to the goal.

    Either `arms` arms of which one has `rate` + `difference` and the others `rate`, or the expected
    `rates`. `traffic` answers are asked for on a day; the share `arrive` of them is ever
    reported on, and every report arrives exactly `delay` days after its decision.
    `epsilon` is one or several numbers (0.5, 1 and 2 unless given), or `channel` one or several
    mechanisms. The numbers depend on the seed, and not on `jobs`, the number of threads.

    With the goal "earn" the policy is Thompson sampling unless another is given, and it decides all
    year. With "know" it is top-two sampling, of which the share `know` of decisions serves to know
    (1 unless given); once one arm is certified as the best, that arm alone is shown. The
    certificate is wrong with probability at most `delta`; with a `tolerance`, it says that no other
    arm is better by more than that. It expects the plan's own rate and difference, unless `expect`
    says something else, or None.

    With a budget (95 % of runs reach the goal `within_days`, or `lose_at_most` rewards in a year)
    the plan recommends the smallest epsilon that keeps it. The goal is reached with the
    certificate; with "earn", when nearly all traffic goes to the best arm.

    >>> small = plan(rates=[0.4, 0.6], traffic=500, epsilon=2, replicates=100, seed=1)
    >>> small.options[0].settled.days < 30
    True
    """
    design = _design(
        (arms, rate, difference),
        rates,
        traffic=traffic,
        arrive=arrive,
        delay=delay,
        reports_per_person=reports_per_person,
        policy=_policy(policy, goal, know),
    )
    wanted = Certificate(delta, tolerance, expectation(expect, design.base, design.lead))
    design = replace(design, goal=Goal(goal, wanted))
    if within_days is not None and lose_at_most is not None:
        reason = "give one budget: within_days, or lose_at_most"
        raise InvalidInput("lose_at_most", lose_at_most, reason)
    budget = budget_of(within_days, lose_at_most)
    mechanisms = _mechanisms(epsilon, channel)
    total = len(mechanisms) + (budget is not None) + 2 * design.goal.ships
    with (
        design_simulator(replicates, seed, jobs) as simulator,
        show_progress("steps of the plan", total, shown=progress) as advance,
    ):
        options = []
        for name, mechanism in mechanisms:
            options.append(option_of(design, mechanism, name, simulator.run(design, mechanism)))
            advance(1)
        recommendation = None
        if budget is not None:
            recommendation = recommend(simulator, design, budget, options)
            advance(1)
        comparisons: tuple[Comparison, ...] = ()
        curve = None
        if design.goal.ships:
            comparisons = compare(simulator, design, shown_options(options, recommendation))
            advance(1)
            traded = _typical(options) if recommendation is None else recommendation.option
            curve = frontier(simulator, design, traded)
            advance(1)
        return Plan(
            design,
            tuple(options),
            comparisons,
            curve,
            recommendation,
            simulator.replicates,
            simulator.seed,
        )


def shown_options(options: Iterable[Option], recommendation: Recommendation | None) -> list[Option]:
    """Return options by epsilon; the recommended one takes the place of one with its channel."""
    shown = list(options)
    if recommendation is not None:
        channel = recommendation.option.mechanism.channel
        shown = [option for option in shown if option.mechanism.channel != channel]
        shown.append(recommendation.option)
    return sorted(shown, key=lambda option: option.epsilon)


def _typical(options: Iterable[Option]) -> Option:
    """Return the middle one of the options whose every run is certified, or the least private."""
    by_epsilon = sorted(options, key=lambda option: option.epsilon)
    certified = [option for option in by_epsilon if option.certified.in_all_runs]
    return certified[(len(certified) - 1) // 2] if certified else by_epsilon[-1]


def _policy(policy: Policy | None, goal: str, know: float | None) -> Policy:
    if know is not None:
        if policy is not None:
            raise InvalidInput("know", know, "give either a policy, or know for top-two sampling")
        if goal == "earn":
            raise InvalidInput("know", know, 'give the goal "know" with it')
        return TopTwo(know=know)
    if policy is not None:
        return policy
    return TopTwo() if goal == "know" else TS()


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
    asked = DEFAULT_EPSILONS if epsilon is None else _listed("epsilon", epsilon)
    channels = [RandomizedResponse.from_epsilon(one) for one in asked]
    return list(dict(zip(map(float, asked), channels, strict=True)).items())


def _listed(field: str, given: Any) -> list[Any]:
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    values = list(given) if several else [given]
    if not values:
        raise InvalidInput(field, given, "give at least one")
    return values
