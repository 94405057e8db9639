"""The policies, one file each, and the list of them that everything else reads.

To add a policy, write a file with

1. its rule: a NamedTuple of its numbers under `@declare(…)`, which says whether values are local to
   an arm and how many numbers per arm it remembers; a function under `@value.register(…)`, and,
   where the rule has them, under `@shared.register(…)` and `@update.register(…)`;
2. its `Policy`: a frozen, keyword-only dataclass with `titles` (a name for each way of reading
   feedback), `plain_name`, its tuning, a docstring with the formula and its source, and `rule`.

and one line here. Then it runs live, in simulation, in plans, in the service, in TOML and in the
tests' laws. `kernel/rule.py` says what compiled functions are given; `kl_ucb.py` is a model.
"""

from dataclasses import fields
from typing import Any

from whitelie.errors import InvalidInput
from whitelie.policy.dp_ucb_int import DPUCBInt
from whitelie.policy.imed import IMED
from whitelie.policy.kl_ucb import KLUCB
from whitelie.policy.policy import Policy
from whitelie.policy.thompson_sampling import TS
from whitelie.policy.top_two import TopTwo
from whitelie.policy.ucb import UCB
from whitelie.policy.ucb1 import UCB1

__all__ = [
    "COUNT_POLICIES",
    "IMED",
    "KLUCB",
    "POLICIES",
    "TS",
    "UCB",
    "UCB1",
    "DPUCBInt",
    "Policy",
    "TopTwo",
    "policy_from_dict",
]

POLICIES: tuple[type[Policy], ...] = (
    KLUCB,
    UCB,
    UCB1,
    TS,
    IMED,
    TopTwo,
    DPUCBInt,
)

COUNT_POLICIES: tuple[Policy, ...] = tuple(
    usual for kind in POLICIES if (usual := kind.examples()[0]).counts_feedback
)
"""As usually tuned, those that choose from counts of feedback alone: the service offers them."""


def policy_from_dict(data: Any) -> Policy:
    """Return the policy that a policy's `to_dict` described.

    >>> policy_from_dict(KLUCB(c=0).to_dict()) == KLUCB(c=0)
    True
    """
    kinds = {kind.__name__: kind for kind in POLICIES}
    if not isinstance(data, dict) or str(data.get("name")) not in kinds:
        raise InvalidInput("policy", data, 'its "name" must be one of ' + ", ".join(kinds))
    tuning = {key: value for key, value in data.items() if key != "name"}
    try:
        return kinds[data["name"]](**tuning)
    except TypeError as error:
        known = ", ".join(field.name for field in fields(kinds[data["name"]]))
        reason = f"{data['name']} has no such tuning; it has {known}"
        raise InvalidInput("policy", data, reason) from error
