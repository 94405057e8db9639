"""The definition of an experiment: checked once when it is created, and what may still change.

The mechanism of an arm never changes: a new epsilon is a new experiment.
"""

import math
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

from whitelie.certificate import DELTA, Beginning, Certificate, Expect
from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.policy import TS, Policy, TopTwo, policy_from_dict
from whitelie.service import MOST_EPSILON, wire
from whitelie.service.minutes import DAY, minutes_in, time_of
from whitelie.service.refusals import Refusal
from whitelie.simulation.specification import policy_at

WEEK_SECONDS = 7 * wire.DAY_SECONDS
LEAST_MARGIN_SECONDS = 60
"""The shortest time after which a report that is sent when due counts as overdue."""

UNDO_MINUTES = DAY
"""For how long the shipping of an arm can be undone."""

DEFAULT_POLICY = "TS-CF"

CEILING_TOLERANCE = 1 + 1e-9


class Arm(msgspec.Struct, frozen=True):
    """An arm: its payload, the probabilities of its coin, and whether it is retired."""

    key: str
    p00: float
    p11: float
    payload: Any = None
    retired: bool = False

    @property
    def channel(self) -> RandomizedResponse:
        """How devices flip their bits for this arm."""
        return RandomizedResponse(p00=self.p00, p11=self.p11)


class Certified(msgspec.Struct, frozen=True):
    """The arm that was certified as best, and the minute in which the service noticed."""

    arm: str
    minute: int


class Shipped(msgspec.Struct, frozen=True):
    """The arm that everybody sees, since which minute, and the status before that."""

    arm: str
    minute: int
    before: Literal["running", "paused"]


class NewBeginning(msgspec.Struct, frozen=True):
    """Where evidence begins anew after a rollback: with the decisions of a minute.

    It is the `number`-th new beginning. `arms` were active then, of as many arms as
    `first_added` counts.
    """

    minute: int
    number: int
    arms: int
    first_added: int


class Experiment(
    msgspec.Struct, frozen=True, kw_only=True, dict=True, rename={"policy_table": "policy"}
):
    """An experiment as it is stored. `p00` and `p11` are those of arms added without their own.

    `policy_table` is the stored form of `policy`. `rolled_back` lists spans of minutes whose
    decisions no longer count. `creation` identifies the request that created the experiment, so
    that the request can be repeated.

    A certificate is asked for with `delta`, `tolerance` and `expect`. `first_arms` is how many arms
    there were at the creation, and `begun_anew` is where evidence begins after a rollback.
    `certified` and `shipped` are what has come of it.

    Definitions of earlier versions do not have `sending`, nor anything from `goal` on. Which of
    their arms were there at first is not known: all but the first count as added.
    """

    name: str
    arms: tuple[Arm, ...]
    policy_table: dict[str, Any]
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
    step: int = wire.DEFAULT_STEP
    creation: str | None = None
    sending: wire.Sending = "when-due"
    goal: wire.Goal | None = None
    delta: float = DELTA
    tolerance: float = 0.0
    expect: dict[str, float] | None = None
    then: Literal["ship"] | None = None
    first_arms: int = 1
    begun_anew: NewBeginning | None = None
    certified: Certified | None = None
    shipped: Shipped | None = None

    @cached_property
    def channels(self) -> tuple[RandomizedResponse, ...]:
        """The channel of every arm."""
        return tuple(arm.channel for arm in self.arms)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each arm, by its key."""
        return {arm.key: position for position, arm in enumerate(self.arms)}

    @cached_property
    def policy(self) -> Policy:
        """The policy that chooses."""
        return policy_from_dict(self.policy_table)

    @cached_property
    def certificate(self) -> Certificate:
        """What is asked of the evidence."""
        return Certificate(self.delta, self.tolerance, Expect.of(self.expect))

    @property
    def beginning(self) -> Beginning:
        """With which arms the counts began that evidence reads."""
        anew = self.begun_anew
        if anew is None:
            return Beginning(self.first_arms)
        return Beginning(anew.arms, anew.first_added, anew.number)

    @property
    def evidence_begins(self) -> int | None:
        """The minute of the first decision that evidence reads, if not all of them count."""
        return None if self.begun_anew is None else self.begun_anew.minute

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

        A report is due after window and spread. If clients send it when it is due, it may be late
        by a tenth of that time; if they send it at the next visit, by a day.
        """
        due = self.window + self.spread
        late = max(due // 10, LEAST_MARGIN_SECONDS)
        if self.sending == "next-visit":
            late = wire.DAY_SECONDS
        return min(minutes_in(due + late), self.lifetime)

    def overdue_before(self, minute: int) -> int:
        """Return the first minute of issue that is still pending, or has just become overdue."""
        return minute - self.horizon - 1

    def expired_before(self, minute: int) -> int:
        """Return the first minute of issue that may still be answered, or has just expired."""
        return minute - self.lifetime - 1

    def joined_before(self, minute: int) -> int:
        """Return the day before which minutes are joined into days, now or within hours."""
        old = minute - self.retention // 60
        before = min(old, self.expired_before(minute))
        return before - before % DAY

    def with_rollback(self, start: int, stop: int, minute: int) -> "Experiment":
        """Return the experiment with one more span of minutes that do not count."""
        spans: list[tuple[int, int]] = []
        for span in sorted((*self.rolled_back, (start, stop))):
            if spans and span[0] <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], span[1])
            else:
                spans.append(span)
        return msgspec.structs.replace(self.with_new_beginning(minute), rolled_back=tuple(spans))

    @property
    def lacks_beginning(self) -> bool:
        """Whether an earlier version has rolled back, which did not note a new beginning."""
        return bool(self.rolled_back) and self.begun_anew is None

    def with_new_beginning(self, minute: int) -> "Experiment":
        """Return the experiment after a rollback: evidence begins from zero after a minute.

        Whoever rolls back has looked at the counts. Evidence reads decisions of the next day (UTC),
        so that days which are joined later stay apart from those before; and it is the next day for
        all servers, whose clocks may differ by a minute.
        """
        begun_anew = NewBeginning(
            minute=(minute + 1) // DAY * DAY + DAY,
            number=1 if self.begun_anew is None else self.begun_anew.number + 1,
            arms=sum(not arm.retired for arm in self.arms),
            first_added=len(self.arms),
        )
        return msgspec.structs.replace(self, begun_anew=begun_anew, certified=None)

    def with_certificate(self, arm: str, minute: int) -> "Experiment":
        """Return the experiment with an arm that was certified in a minute."""
        return msgspec.structs.replace(self, certified=Certified(arm, minute))

    def with_shipped(self, arm: str, minute: int) -> "Experiment":
        """Return the experiment with an arm that everybody sees from a minute on."""
        before: Any = self.status
        return msgspec.structs.replace(self, status="shipped", shipped=Shipped(arm, minute, before))

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
            policy=self.policy.label,
            window=self.window,
            spread=self.spread,
            sending=self.sending,
            feedback_ttl=self.feedback_ttl,
            floor=self.floor,
            retention=self.retention,
            step=self.step,
            created=time_of(self.created),
            goal=self.goal,
            expect=None if self.expect is None else wire.Expect(**self.expect),
            delta=self.delta,
            tolerance=self.tolerance,
            then=self.then,
            shipped=self.shipped_view,
        )

    @property
    def shipped_view(self) -> wire.Shipped | None:
        """What is said of the shipped arm."""
        if self.shipped is None:
            return None
        minute = self.shipped.minute
        return wire.Shipped(self.shipped.arm, time_of(minute), time_of(minute + UNDO_MINUTES))


@dataclass(frozen=True)
class ExperimentValidator:
    """Makes experiments from requests, or refuses what the operator does not allow.

    No report may reveal more than `most_epsilon`.
    """

    most_epsilon: float = MOST_EPSILON

    def create(self, asked: wire.NewExperiment, minute: int, creation: str | None) -> Experiment:
        """Return the experiment that was asked for, or refuse it."""
        common = self._mechanism("", asked)
        policy, certificate = _policy(asked), _certificate(asked)
        settled = asked.window + asked.spread
        lifetime = settled + WEEK_SECONDS if asked.feedback_ttl is None else asked.feedback_ttl
        if lifetime < settled:
            raise _invalid(
                "feedback_ttl",
                f"reports leave up to window + spread = {settled} s after a decision",
            )
        experiment = Experiment(
            name=asked.name,
            arms=self._arms("arms", asked.arms, common),
            policy_table=policy.to_dict(),
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
            goal=asked.goal,
            then=asked.then,
            first_arms=len(asked.arms),
            **certificate.to_dict(),
        )
        return _checked(experiment, "arms")

    def change(self, experiment: Experiment, asked: wire.Change) -> Experiment:
        """Return the experiment with the changes, or refuse them."""
        if experiment.status == "stopped" and asked != wire.Change(status="stopped"):
            message = "a stopped experiment cannot be changed"
            raise Refusal("experiment_stopped", message, "id")
        if experiment.status == "shipped" and asked != wire.Change(status="stopped"):
            message = "a shipped experiment can be stopped, or undone within a day, not changed"
            raise Refusal("experiment_shipped", message, "id")
        common = None
        if experiment.p00 is not None and experiment.p11 is not None:
            common = RandomizedResponse(p00=experiment.p00, p11=experiment.p11)
        arms = [*experiment.arms, *self._arms("add", asked.add, common)]
        positions = {arm.key: place for place, arm in enumerate(arms)}
        for index, key in enumerate(asked.retire):
            if key not in positions:
                raise Refusal("unknown_arm", f"there is no arm {key!r}", f"retire[{index}]")
            arms[positions[key]] = msgspec.structs.replace(arms[positions[key]], retired=True)
        certified = experiment.certified
        # It says nothing of arms that are added later; that a rival is retired changes nothing.
        if certified is not None and (asked.add or certified.arm in asked.retire):
            certified = None
        changed = msgspec.structs.replace(
            experiment,
            arms=tuple(arms),
            status=asked.status or experiment.status,
            certified=certified,
            shipped=None,
        )
        return _checked(changed, "add", len(experiment.arms))

    def ship(self, experiment: Experiment, arm: str, minute: int) -> Experiment:
        """Return the experiment in which everybody sees one arm, or refuse that."""
        if experiment.status == "stopped":
            message = "a stopped experiment cannot be changed"
            raise Refusal("experiment_stopped", message, "id")
        if arm not in experiment.positions:
            raise Refusal("unknown_arm", f"there is no arm {arm!r}", "arm")
        if experiment.arms[experiment.positions[arm]].retired:
            raise Refusal("unknown_arm", f"{arm!r} is retired", "arm")
        if experiment.shipped is None:
            return experiment.with_shipped(arm, minute)
        if experiment.shipped.arm != arm:
            message = f"{experiment.shipped.arm!r} is shipped already; undo that first"
            raise Refusal("experiment_shipped", message, "id")
        return experiment

    def unship(self, experiment: Experiment, minute: int) -> Experiment:
        """Return the experiment as it was before an arm was shipped, or refuse that."""
        if experiment.status == "stopped":
            message = "a stopped experiment cannot be changed"
            raise Refusal("experiment_stopped", message, "id")
        shipped = experiment.shipped
        if shipped is None:
            raise Refusal("not_shipped", "no arm of this experiment is shipped", "id")
        if minute > shipped.minute + UNDO_MINUTES:
            message = "an arm was shipped more than a day ago; create a new experiment instead"
            raise Refusal("too_late_to_unship", message, "id")
        return msgspec.structs.replace(experiment, status=shipped.before, shipped=None)

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
    """Return the name as it can stand in a URL.

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
    if _depth(payload) > wire.MAX_PAYLOAD_DEPTH:
        raise _invalid(
            field, f"its lists and objects are nested more than {wire.MAX_PAYLOAD_DEPTH} deep"
        )
    if len(msgspec.json.encode(payload)) > wire.MAX_PAYLOAD_BYTES:
        raise _invalid(field, f"it exceeds {wire.MAX_PAYLOAD_BYTES} bytes of JSON")


def _depth(payload: Any) -> int:
    """Return how deep the lists and objects of a payload are nested.

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


def _certificate(asked: wire.NewExperiment) -> Certificate:
    expect = None if asked.expect is None else msgspec.to_builtins(asked.expect)
    try:
        certificate = Certificate(asked.delta, asked.tolerance, Expect.of(expect))
    except InvalidInput as refused:
        raise _invalid(refused.field, refused.reason) from None
    if certificate.tolerance == 1:
        raise _invalid("tolerance", "with a tolerance of 1 every arm is good enough: give less")
    return certificate


def _policy(asked: wire.NewExperiment) -> Policy:
    if asked.goal is not None and asked.policy is not None:
        raise _invalid("goal", "give a goal or a policy, not both")
    if asked.goal is None:
        return _named_policy(asked.policy or DEFAULT_POLICY)
    if isinstance(asked.goal, str):
        return TS() if asked.goal == "earn" else TopTwo()
    return TopTwo(know=asked.goal)


def _named_policy(asked: str | wire.PolicyTable) -> Policy:
    table: Any = asked
    if isinstance(asked, wire.PolicyTable):
        given = msgspec.to_builtins(asked)
        table = {key: value for key, value in given.items() if value is not None}
    try:
        policy: Policy = policy_at("policy", table)[1]
    except InvalidInput as refused:
        raise _invalid(refused.field, refused.reason) from None
    if not policy.counts_feedback:
        raise _invalid(
            "policy",
            f"{policy.label} keeps more than counts of reports, and the service keeps no more",
        )
    return policy


def _checked(experiment: Experiment, field: str, known: int = 0) -> Experiment:
    """Return the experiment, or refuse its arms; those after `known` are new."""
    if len(experiment.arms) > wire.MAX_ARMS:
        raise _invalid(field, f"an experiment has at most {wire.MAX_ARMS} arms")
    keys: set[str] = set()
    for place, arm in enumerate(experiment.arms):
        if arm.key in keys:
            raise _invalid(f"{field}[{place - known}].key", f"two arms have the key {arm.key!r}")
        keys.add(arm.key)
    shown = sum(not arm.retired for arm in experiment.arms)
    if not shown:
        raise _invalid("retire", "this is the last active arm; add another before you retire it")
    if experiment.floor * shown > 1:
        message = f"the floor of {shown} arms is at most {1 / shown:.4g}"
        raise _invalid("add" if known else "floor", message)
    return experiment


def _invalid(field: str, message: str) -> Refusal:
    return Refusal("invalid_field", message, field)
