"""What else could decide what is shown until the certificate: other policies, and other `know`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whitelie.planning.certified import Certified, certified_of
from whitelie.planning.design import Design
from whitelie.planning.option import Option, finite
from whitelie.planning.runs import DesignSimulator
from whitelie.policy import KLUCB, TS, Policy, TopTwo

COMPARED: tuple[Policy, ...] = (TopTwo(), TopTwo(know=0.5), KLUCB(), TS())
"""To know, to know and earn; then those that earn, of which kl-UCB-CF tells arms apart sooner."""

EQUAL_SHARES = "equal shares"

FRONTIER_KNOW = (0.1, 0.2, 0.35, 0.6, 1.0)
"""Shares of decisions that serve to know, by about equal factors."""


@dataclass(frozen=True)
class Comparison:
    """A policy until the certificate, with one entry for each option that the plan shows."""

    name: str
    plain_name: str
    epsilons: tuple[float, ...]
    certified: tuple[Certified, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite."""
        entries = [
            {"epsilon": finite(epsilon), **certified.to_dict()}
            for epsilon, certified in zip(self.epsilons, self.certified, strict=True)
        ]
        return {"name": self.name, "plain_name": self.plain_name, "certificate": entries}


@dataclass(frozen=True)
class FrontierPoint:
    """What the certificate takes if the share `know` of decisions serves to know."""

    know: float
    certified: Certified

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"know": self.know, "certificate": self.certified.to_dict()}


@dataclass(frozen=True)
class Frontier:
    """To know sooner or to lose less: top-two sampling by its `know`, on one mechanism."""

    epsilon: float
    points: tuple[FrontierPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None is infinite."""
        points = [point.to_dict() for point in self.points]
        return {"epsilon": finite(self.epsilon), "points": points}


def compare(
    simulator: DesignSimulator, design: Design, options: Sequence[Option]
) -> tuple[Comparison, ...]:
    """Return policies side by side: the design's own, with its options' runs, then the others."""
    few, own = simulator.compared(), design.policy
    epsilons = tuple(option.epsilon for option in options)
    channels = [option.mechanism.channel for option in options]
    certified = tuple(option.certified for option in options)
    comparisons = [Comparison(own.label, own.plain_name, epsilons, certified)]
    for policy in COMPARED:
        if policy != own:
            other = replace(design, policy=policy)
            runs = [few.run(other, channel) for channel in channels]
            certified = tuple(certified_of(each, design) for each in runs)
            comparisons.append(Comparison(policy.label, policy.plain_name, epsilons, certified))
    equal = [few.run_equal_shares(design, channel) for channel in channels]
    certified = tuple(certified_of(runs, design) for runs in equal)
    return (*comparisons, Comparison(EQUAL_SHARES, "all in turn", epsilons, certified))


def frontier(simulator: DesignSimulator, design: Design, option: Option) -> Frontier:
    """Return what `know` trades on the mechanism of an option."""
    few, channel = simulator.compared(), option.mechanism.channel
    points = []
    for know in FRONTIER_KNOW:
        runs = few.run(replace(design, policy=TopTwo(know=know)), channel)
        points.append(FrontierPoint(know, certified_of(runs, design)))
    return Frontier(option.epsilon, tuple(points))
