"""Learn which option people like best from answers that were randomised on their own devices."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whitelie import bounds as bounds
    from whitelie.bandit import Bandit as Bandit
    from whitelie.certificate import Certificate as Certificate
    from whitelie.certificate import Conclusion as Conclusion
    from whitelie.certificate import Expect as Expect
    from whitelie.channel import IDENTITY as IDENTITY
    from whitelie.channel import Channel as Channel
    from whitelie.channel import Mechanism as Mechanism
    from whitelie.channel import Menu as Menu
    from whitelie.channel import Monotone as Monotone
    from whitelie.channel import RandomizedResponse as RandomizedResponse
    from whitelie.channel import channel_from_dict as channel_from_dict
    from whitelie.channel import menu as menu
    from whitelie.errors import InvalidInput as InvalidInput
    from whitelie.errors import WhitelieError as WhitelieError
    from whitelie.estimate import Estimate as Estimate
    from whitelie.planning import Plan as Plan
    from whitelie.planning import plan as plan
    from whitelie.policy import IMED as IMED
    from whitelie.policy import KLUCB as KLUCB
    from whitelie.policy import TS as TS
    from whitelie.policy import UCB as UCB
    from whitelie.policy import UCB1 as UCB1
    from whitelie.policy import DPUCBInt as DPUCBInt
    from whitelie.policy import TopTwo as TopTwo
    from whitelie.policy import policy_from_dict as policy_from_dict
    from whitelie.problem import Problem as Problem
    from whitelie.simulation.result import Result as Result
    from whitelie.simulation.work import simulate as simulate
    from whitelie.simulation.work import simulate_many as simulate_many

_HOME = {
    "IDENTITY": "channel",
    "Channel": "channel",
    "Mechanism": "channel",
    "Menu": "channel",
    "Monotone": "channel",
    "RandomizedResponse": "channel",
    "channel_from_dict": "channel",
    "menu": "channel",
    "Problem": "problem",
    "KLUCB": "policy",
    "UCB": "policy",
    "UCB1": "policy",
    "TS": "policy",
    "IMED": "policy",
    "TopTwo": "policy",
    "DPUCBInt": "policy",
    "policy_from_dict": "policy",
    "Bandit": "bandit",
    "Estimate": "estimate",
    "Certificate": "certificate",
    "Conclusion": "certificate",
    "Expect": "certificate",
    "plan": "planning",
    "Plan": "planning",
    "simulate": "simulation.work",
    "simulate_many": "simulation.work",
    "Result": "simulation.result",
    "InvalidInput": "errors",
    "WhitelieError": "errors",
}

__all__ = ["bounds", *_HOME]  # noqa: PLE0604 (the keys are strings)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing whitelie stays light."""
    if name == "bounds":
        return import_module("whitelie.bounds")
    if name in _HOME:
        return getattr(import_module(f"whitelie.{_HOME[name]}"), name)
    raise AttributeError(f"module 'whitelie' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
