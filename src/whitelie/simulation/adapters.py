"""Policies written for other libraries, run by `simulate`: they take feedback for reward.

Each replicate gets an object of its own, and all its randomness is a function of the seed and the
replicate. No library is imported here, since whoever has a policy of one has imported it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from inspect import signature
from typing import Any

import numpy as np

from whitelie.errors import InvalidInput
from whitelie.simulation.own_policy import KnownProblem


def from_river(policy: Any) -> "RiverPolicy":
    """Return a policy for `simulate` from one of `river.bandit`, such as `bandit.UCB(delta=1)`.

    Every replicate plays a clone that has learned nothing; a `seed` is replaced.
    """
    methods = ("pull", "update", "clone")
    if isinstance(policy, type) or not all(hasattr(policy, name) for name in methods):
        reason = "give an object of a class of river.bandit, such as UCB(delta=1)"
        raise InvalidInput("policy", policy, reason)
    if "context" in signature(policy.pull).parameters:
        raise InvalidInput("policy", type(policy).__name__, NO_CONTEXT)
    return RiverPolicy(policy)


def from_pymab(policy_class: Any, **tuning: Any) -> "PymabPolicy":
    """Return a policy for `simulate` from a class of `pymab.policies` and its arguments.

    `n_arms` is left out: every replicate makes an object with the number of arms of its problem.
    """
    if not isinstance(policy_class, type) or not hasattr(policy_class, "select_action"):
        reason = "give a class of pymab.policies, such as UCBPolicy, and its arguments after it"
        raise InvalidInput("policy_class", policy_class, reason)
    if policy_class.capabilities.contextual:  # type: ignore[attr-defined]  # pymab is not typed
        raise InvalidInput("policy_class", policy_class.__name__, NO_CONTEXT)
    if "n_arms" in tuning:
        raise InvalidInput("n_arms", tuning["n_arms"], "leave it out: the problem says how many")
    return PymabPolicy(policy_class, tuning)


NO_CONTEXT = "our problems have no contexts; give a policy that needs none"


@dataclass(frozen=True)
class RiverPolicy:
    """What `from_river` returns."""

    policy: Any

    @property
    def label(self) -> str:
        """The name in results."""
        return f"river {type(self.policy).__name__}"

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> "_RiverPlayer":
        """Return a player with a fresh clone."""
        seeded = "seed" in signature(type(self.policy)).parameters
        clone = self.policy.clone({"seed": int(rng.integers(2**63))} if seeded else None)
        return _RiverPlayer(clone, list(range(problem.n_arms)))

    def to_dict(self) -> dict[str, Any]:
        """Return what tells this policy from others: its class, parameters and river's version."""
        return {"river": version("river"), **_constructed(self.policy)}


@dataclass(frozen=True)
class _RiverPlayer:
    policy: Any
    arms: list[int]

    def choose(self, t: int) -> int:
        return int(self.policy.pull(self.arms))

    def update(self, arm: int, feedback: int) -> None:
        self.policy.update(arm, feedback)


@dataclass(frozen=True)
class PymabPolicy:
    """What `from_pymab` returns."""

    policy_class: Any
    tuning: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The name in results."""
        return f"pymab {self.policy_class.__name__}"

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> "_PymabPlayer":
        """Return a player with a new object of the class."""
        return _PymabPlayer(self.policy_class(n_arms=problem.n_arms, **self.tuning), rng)

    def to_dict(self) -> dict[str, Any]:
        """Return what tells this policy from others: its class, tuning and pymab's version."""
        name = _full_name(self.policy_class)
        tuning = {name: _plain(value) for name, value in self.tuning.items()}
        return {"pymab": version("pymab"), "name": name, **tuning}


@dataclass(frozen=True)
class _PymabPlayer:
    policy: Any
    rng: np.random.Generator

    def choose(self, t: int) -> int:
        return int(self.policy.select_action(rng=self.rng))

    def update(self, arm: int, feedback: int) -> None:
        self.policy.update(action=arm, reward=float(feedback))


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _constructed(thing: Any) -> dict[str, Any]:
    """Return the class and arguments of an object of river: the attributes that `clone` reads.

    Its own `repr` leaves some out: two means that forget at different rates look the same.
    """
    names = [name for name in signature(type(thing)).parameters if name != "seed"]
    arguments = {name: _plain(getattr(thing, name, None)) for name in names}
    return {"name": _full_name(type(thing)), **arguments}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return _constructed(value) if hasattr(value, "clone") else repr(value)
