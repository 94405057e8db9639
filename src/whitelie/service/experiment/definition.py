"""An experiment: what was asked for, checked once, and what may still change.

The mechanism of an arm never changes: a new epsilon is a new experiment.
"""

import math
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.policy import Policy, policy_from_dict
from whitelie.service import MOST_EPSILON, wire
from whitelie.service.moment import DAY, minutes_in, time_of
from whitelie.service.refusal import Refusal
from whitelie.specification import policy_at

WEEK = 7 * wire.DAY_SECONDS
LEAST_MARGIN = 60
"""Seconds by which a report that leaves when it is due may at least be late."""

CEILING_TOLERANCE = 1 + 1e-9


class Arm(msgspec.Struct, frozen=True):
    """An option, the probabilities of its coin, and whether it is still shown."""

    key: str
    p00: float
    p11: float
    payload: Any = None
    retired: bool = False

    @property
    def channel(self) -> RandomizedResponse:
        """How devices flip their bits for this arm."""
        return RandomizedResponse(p00=self.p00, p11=self.p11)


class Experiment(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An experiment as it is stored. `p00` and `p11` are those of arms added without their own.

    `rolled_back` lists spans of minutes whose decisions no longer count, `creation` names the
    request that created it, so that it can be repeated. Definitions that were stored before clients
    could choose say nothing of `sending`.
    """

    name: str
    arms: tuple[Arm, ...]
    policy: dict[str, Any]
    window: int
    spread: int
    feedback_ttl: int
    floor: float
    retention: int
    created: int
    p00: float | None = None
    p11: float | None = None
    status: wire.Status = "running"
    rolled_back: tuple[tuple[int, int], ...] = ()
    step: int = wire.STEP
    creation: str | None = None
    sending: wire.Sending = "when-due"

    @cached_property
    def channels(self) -> tuple[RandomizedResponse, ...]:
        """The channel of every arm."""
        return tuple(arm.channel for arm in self.arms)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each arm stands, by its key."""
        return {arm.key: position for position, arm in enumerate(self.arms)}

    @cached_property
    def rule(self) -> Policy:
        """The policy that chooses."""
        return policy_from_dict(self.policy)

    @property
    def epsilon(self) -> float:
        """The largest epsilon per report of any arm."""
        return max(channel.epsilon for channel in self.channels)

    @property
    def lifetime(self) -> int:
        """For how many minutes after its minute of issue a decision can be answered."""
        return minutes_in(self.feedback_ttl)

    @property
    def horizon(self) -> int:
        """For how many minutes after its minute of issue a decision is pending.

        A report is due after window and spread. If it then leaves, a tenth of that time more will
        do; if it waits for the next visit, it has a day.
        """
        due = self.window + self.spread
        late = wire.DAY_SECONDS if self.sending == "next-visit" else max(due // 10, LEAST_MARGIN)
        return min(minutes_in(due + late), self.lifetime)

    def overdue_before(self, minute: int) -> int:
        """Return the first minute of issue that is still pending, or has just become overdue."""
        return minute - self.horizon - 1

    def expired_before(self, minute: int) -> int:
        """Return the first minute of issue that may still be answered, or has just expired."""
        return minute - self.lifetime - 1

    def joined_before(self, minute: int) -> int:
        """Return the day before which minutes are, or will be within hours, joined into days."""
        old = minute - self.retention // 60
        before = min(old, self.expired_before(minute))
        return before - before % DAY

    def rolled_back_too(self, start: int, stop: int) -> "Experiment":
        """Return the experiment with one more span of minutes that do not count."""
        spans: list[tuple[int, int]] = []
        for span in sorted((*self.rolled_back, (start, stop))):
            if spans and span[0] <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], span[1])
            else:
                spans.append(span)
        return msgspec.structs.replace(self, rolled_back=tuple(spans))

    def view(self, slug: str) -> wire.Experiment:
        """Return what the operator sees."""
        arms = [
            wire.Arm(arm.key, arm.payload, arm.p00, arm.p11, finite(channel.epsilon), arm.retired)
            for arm, channel in zip(self.arms, self.channels, strict=True)
        ]
        return wire.Experiment(
            id=slug,
            name=self.name,
            status=self.status,
            arms=arms,
            policy=self.rule.label,
            window=self.window,
            spread=self.spread,
            sending=self.sending,
            feedback_ttl=self.feedback_ttl,
            floor=self.floor,
            retention=self.retention,
            step=self.step,
            created=time_of(self.created),
        )


@dataclass(frozen=True)
class Rules:
    """What the operator allows: no report may tell more than `most_epsilon`."""

    most_epsilon: float = MOST_EPSILON

    def create(self, asked: wire.NewExperiment, minute: int, creation: str | None) -> Experiment:
        """Return the experiment that was asked for, or refuse it."""
        common = self._mechanism("", asked)
        policy = _policy(asked.policy)
        settled = asked.window + asked.spread
        lifetime = settled + WEEK if asked.feedback_ttl is None else asked.feedback_ttl
        if lifetime < settled:
            raise _invalid(
                "feedback_ttl",
                f"reports leave up to window + spread = {settled} s after a decision",
            )
        experiment = Experiment(
            name=asked.name,
            arms=self._arms("arms", asked.arms, common),
            policy=policy.to_dict(),
            window=asked.window,
            spread=asked.spread,
            feedback_ttl=lifetime,
            floor=asked.floor,
            retention=asked.retention,
            step=asked.step,
            created=minute,
            p00=None if common is None else common.p00,
            p11=None if common is None else common.p11,
            creation=creation,
            sending=asked.sending,
        )
        return _checked(experiment, "arms")

    def change(self, experiment: Experiment, asked: wire.Change) -> Experiment:
        """Return the experiment with the changes, or refuse them."""
        if experiment.status == "stopped" and asked != wire.Change(status="stopped"):
            message = "a stopped experiment does not change any more"
            raise Refusal("experiment_stopped", message, "id")
        common = None
        if experiment.p00 is not None and experiment.p11 is not None:
            common = RandomizedResponse(p00=experiment.p00, p11=experiment.p11)
        arms = [*experiment.arms, *self._arms("add", asked.add, common)]
        positions = {arm.key: place for place, arm in enumerate(arms)}
        for index, key in enumerate(asked.retire):
            if key not in positions:
                raise Refusal("unknown_arm", f"there is no arm {key!r}", f"retire[{index}]")
            arms[positions[key]] = msgspec.structs.replace(arms[positions[key]], retired=True)
        changed = msgspec.structs.replace(
            experiment, arms=tuple(arms), status=asked.status or experiment.status
        )
        return _checked(changed, "add", len(experiment.arms))

    def _arms(
        self, field: str, asked: list[wire.NewArm], common: RandomizedResponse | None
    ) -> tuple[Arm, ...]:
        made = []
        for index, arm in enumerate(asked):
            path = f"{field}[{index}]"
            channel = self._mechanism(path, arm) or common
            if channel is None:
                raise _invalid(f"{path}.epsilon", "give epsilon, or p00 and p11")
            self._check_ceiling(f"{path}.epsilon", channel)  # it may have been lowered since
            _check_payload(f"{path}.payload", arm.payload)
            made.append(Arm(arm.key, channel.p00, channel.p11, arm.payload))
        return tuple(made)

    def _mechanism(
        self, path: str, asked: wire.NewExperiment | wire.NewArm
    ) -> RandomizedResponse | None:
        prefix = f"{path}." if path else ""
        channel = _mechanism(prefix, asked)
        if channel is not None:
            self._check_ceiling(prefix + ("p00" if asked.epsilon is None else "epsilon"), channel)
        return channel

    def _check_ceiling(self, field: str, channel: RandomizedResponse) -> None:
        if channel.epsilon > self.most_epsilon * CEILING_TOLERANCE:
            raise Refusal(
                "epsilon_above_ceiling",
                f"a report would reveal epsilon = {channel.epsilon:.4g}; "
                f"at most {self.most_epsilon:.4g} is allowed here",
                field,
            )


def slug_of(name: str) -> str:
    """Return the name as it can stand in an address.

    >>> slug_of("Große Überschrift: <b>A</b>?"), slug_of("日本")
    ('groe-uberschrift-b-a-b', 'experiment')
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].rstrip("-") or "experiment"


def finite(epsilon: float) -> float | None:
    """Return an epsilon for JSON, which has no infinity: there it is null."""
    return epsilon if math.isfinite(epsilon) else None


def _mechanism(prefix: str, asked: wire.NewExperiment | wire.NewArm) -> RandomizedResponse | None:
    if asked.epsilon is None and asked.p00 is None and asked.p11 is None:
        return None
    if asked.epsilon is not None and (asked.p00, asked.p11) != (None, None):
        raise _invalid(f"{prefix}epsilon", "give epsilon, or p00 and p11, not both")
    try:
        if asked.epsilon is not None:
            return RandomizedResponse.from_epsilon(asked.epsilon)
        if asked.p00 is None or asked.p11 is None:
            missing = "p00" if asked.p00 is None else "p11"
            raise _invalid(f"{prefix}{missing}", "p00 and p11 go together")
        return RandomizedResponse(p00=asked.p00, p11=asked.p11)
    except InvalidInput as refused:
        field = "epsilon" if asked.epsilon is not None else "p00"
        raise _invalid(f"{prefix}{field}", refused.reason) from None


def _check_payload(field: str, payload: Any) -> None:
    if _depth(payload) > wire.MOST_DEPTH:
        raise _invalid(field, f"it has more than {wire.MOST_DEPTH} levels")
    if len(msgspec.json.encode(payload)) > wire.LARGEST_PAYLOAD:
        raise _invalid(field, f"it exceeds {wire.LARGEST_PAYLOAD} bytes of JSON")


def _depth(payload: Any) -> int:
    """Return how many lists and objects of a payload lie in each other.

    >>> _depth(1), _depth([]), _depth({"a": [1], "b": 2})
    (0, 1, 2)
    """
    depth, level = 0, [payload]
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _policy(asked: str | wire.PolicyTable) -> Policy:
    table: Any = asked
    if isinstance(asked, wire.PolicyTable):
        given = msgspec.to_builtins(asked)
        table = {key: value for key, value in given.items() if value is not None}
    try:
        policy: Policy = policy_at("policy", table)[1]
    except InvalidInput as refused:
        raise _invalid(refused.field, refused.reason) from None
    if not policy.counts_feedback:
        raise _invalid("policy", f"{policy.label} keeps more than counts and cannot run live")
    return policy


def _checked(experiment: Experiment, field: str, known: int = 0) -> Experiment:
    """Return the experiment if its arms, of which those after `known` are new, go together."""
    if len(experiment.arms) > wire.MOST_ARMS:
        raise _invalid(field, f"an experiment has at most {wire.MOST_ARMS} arms")
    keys: set[str] = set()
    for place, arm in enumerate(experiment.arms):
        if arm.key in keys:
            raise _invalid(f"{field}[{place - known}].key", f"two arms have the key {arm.key!r}")
        keys.add(arm.key)
    shown = sum(not arm.retired for arm in experiment.arms)
    if not shown:
        raise _invalid("retire", "this is the last arm; add another before retiring it")
    if experiment.floor * shown > 1:
        message = f"the floor of {shown} arms is at most {1 / shown:.4g}"
        raise _invalid("add" if known else "floor", message)
    return experiment


def _invalid(field: str, message: str) -> Refusal:
    return Refusal("invalid_field", message, field)
