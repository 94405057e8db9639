"""The bodies of requests and answers, as types; the OpenAPI document is generated from them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from whitelie.certificate import DELTA
from whitelie.policy import COUNT_POLICIES
from whitelie.service.minutes import DAY

DAY_SECONDS = 24 * 60 * 60
MAX_ARMS = 1000
MAX_ITEMS = 1000
MAX_PAYLOAD_BYTES = 4096
MAX_PAYLOAD_DEPTH = 32
DEFAULT_STEP = 10

Status = Literal["running", "paused", "stopped", "shipped"]
Goal = Literal["earn", "know"] | Annotated[float, Meta(gt=0, le=1)]
Sending = Literal["next-visit", "when-due"]
Outcome = Literal["accepted", "duplicate", "expired", "invalid"]

# Without the look-ahead, Python's $ lets a line break pass at the end.
PRINTABLE = r"^[^\x00-\x1f\x7f]+(?!\n)$"
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
ArmKey = Annotated[str, Meta(min_length=1, max_length=64, pattern=PRINTABLE)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Epsilon = Annotated[float, Meta(gt=0)]
Wait = Annotated[int, Meta(ge=0, le=30 * DAY_SECONDS)]
Time = Annotated[datetime, Meta(tz=True)]


if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(type(policy).__name__ for policy in COUNT_POLICIES)]


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body that is sent to the service; unknown fields are refused."""


class NewArm(Request):
    """An option to show; without a mechanism of its own it has the experiment's."""

    key: ArmKey
    payload: Annotated[Any, Meta(description="Any JSON, given to the page with a decision.")] = None
    epsilon: Epsilon | None = None
    p00: Probability | None = None
    p11: Probability | None = None


class PolicyTable(Request):
    """A policy with its tuning."""

    rule: PolicyName
    feedback: Literal["corrected", "naive", "wrapped"] | None = None
    c: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    domain: Literal["extended", "unit"] | None = None
    know: float | None = None


class Expect(Request):
    """What a plan expects: the usual rate, and the difference that matters."""

    rate: float
    difference: float


class NewExperiment(Request):
    """An experiment to create. Times are in seconds."""

    name: Name
    arms: Annotated[list[NewArm], Meta(min_length=1, max_length=MAX_ARMS)]
    window: Annotated[Wait, Meta(description="How long after a decision a reward may still come.")]
    spread: Annotated[Wait, Meta(description="Reports leave at decision + window + U(0, spread).")]
    epsilon: Epsilon | None = None
    p00: Probability | None = None
    p11: Probability | None = None
    policy: Annotated[
        Annotated[str, Meta(max_length=32)] | PolicyTable | None,
        Meta(description="Which arms are shown; TS-CF if neither this nor a goal is given."),
    ] = None
    goal: Annotated[
        Goal | None,
        Meta(
            description="Instead of a policy: earn most, know the best arm soonest, or the share "
            "of decisions that serve to know."
        ),
    ] = None
    expect: Annotated[
        Expect | None,
        Meta(description="A certificate comes sooner if this is about right."),
    ] = None
    delta: Annotated[
        float,
        Meta(description="The probability that a certificate is ever wrong: above 0, at most 0.5."),
    ] = DELTA
    tolerance: Annotated[
        float,
        Meta(description="A certificate says that no other arm is better by more than this."),
    ] = 0.0
    then: Annotated[
        Literal["ship"] | None,
        Meta(description="What the service does by itself when an arm is certified."),
    ] = None
    feedback_ttl: (
        Annotated[
            int,
            Meta(
                ge=60,
                le=90 * DAY_SECONDS,
                description="How long after a decision its report counts.",
            ),
        ]
        | None
    ) = None
    sending: Annotated[
        Sending,
        Meta(
            description="When clients send: at the first visit after a report is due, or by a "
            "timer as soon as it is due."
        ),
    ] = "next-visit"
    floor: Annotated[
        float, Meta(ge=0, le=1, description="The least share of decisions of every arm.")
    ] = 0.0
    retention: Annotated[
        int,
        Meta(
            ge=DAY_SECONDS,
            le=3650 * DAY_SECONDS,
            description="After this, minutes are joined into days.",
        ),
    ] = 90 * DAY_SECONDS
    step: Annotated[
        int,
        Meta(
            ge=1,
            le=10**6,
            description="Readers see reports in steps of at least so many of an arm.",
        ),
    ] = DEFAULT_STEP


class Change(Request):
    """Changes of an experiment: pause, resume or stop it, add arms, retire arms."""

    status: Literal["running", "paused", "stopped"] | None = None
    add: Annotated[list[NewArm], Meta(max_length=MAX_ARMS)] = []
    retire: Annotated[list[ArmKey], Meta(max_length=MAX_ARMS)] = []


class Ship(Request):
    """The arm that everybody is to see from now on."""

    arm: ArmKey


class Ask(Request):
    """How many decisions are wanted, and among which arms."""

    count: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 1
    available: Annotated[list[ArmKey], Meta(min_length=1, max_length=MAX_ARMS)] | None = None


class Report(Request):
    """A flipped bit, and the token of the decision that it answers."""

    token: Annotated[str, Meta(max_length=256)]
    bit: Literal[0, 1]


class Reports(Request):
    """Many reports."""

    items: Annotated[list[Report], Meta(min_length=1, max_length=MAX_ITEMS)]


class Span(Request, rename={"start": "from", "stop": "to"}):
    """The minutes from `from` up to but without `to`; both are whole minutes."""

    start: Time
    stop: Time


class Period(Request, rename={"start": "from", "stop": "to"}):
    """What to show of the history: by default all of it, in at most 1,000 buckets."""

    start: Time | None = None
    stop: Time | None = None
    minutes: Annotated[int, Meta(ge=1, le=DAY)] | None = None


class Mechanism(msgspec.Struct, frozen=True):
    """How the device flips and when it reports."""

    p00: float
    p11: float
    window: int
    spread: int


class Decision(msgspec.Struct):
    """An arm to show, and the token with which to report on it within `expires_in` seconds."""

    arm: str
    payload: Any
    token: str
    mechanism: Mechanism
    expires_in: int


class Decisions(msgspec.Struct):
    """Decisions, committed."""

    decisions: list[Decision]


class Item(msgspec.Struct):
    """What became of a report."""

    status: Outcome


class Items(msgspec.Struct):
    """What became of reports, in their order; committed."""

    items: list[Item]


class Arm(msgspec.Struct):
    """An arm as the operator sees it; epsilon is computed from its probabilities."""

    key: str
    payload: Any
    p00: float
    p11: float
    epsilon: float | None
    retired: bool


class Shipped(msgspec.Struct, frozen=True):
    """The arm that everybody sees, since when, and until when that can be undone."""

    arm: str
    at: datetime
    undo_until: datetime


class Experiment(msgspec.Struct):
    """An experiment as the operator sees it.

    `goal` is null where a policy was given instead.
    """

    id: str
    name: str
    status: Status
    arms: list[Arm]
    policy: str
    window: int
    spread: int
    sending: Sending
    feedback_ttl: int
    floor: float
    retention: int
    step: int
    created: datetime
    goal: Goal | None
    expect: Expect | None
    delta: float
    tolerance: float
    then: Literal["ship"] | None
    shipped: Shipped | None


class Experiments(msgspec.Struct):
    """All experiments."""

    experiments: list[Experiment]


class ArmCounts(msgspec.Struct):
    """The counts of an arm in a bucket of time."""

    key: str
    issued: int
    answered: int
    ones: int


class Bucket(msgspec.Struct):
    """Counts of a bucket of time.

    Admins see the decisions issued within it, and how many of these were answered. Readers see the
    decisions issued within it, and the reports that were shown within it first.
    """

    start: datetime
    arms: list[ArmCounts]


class History(msgspec.Struct):
    """Counts over time; arms without counts in a bucket are left out."""

    minutes: int
    buckets: list[Bucket]


class Removed(msgspec.Struct):
    """What a rollback removed."""

    arms: list[ArmCounts]


class Channel(msgspec.Struct, frozen=True):
    """The probabilities of a coin, and its exact epsilon per report."""

    p00: float
    p11: float
    epsilon: float | None


class Privacy(msgspec.Struct):
    """What devices are promised; `hash` is over all other fields, for clients that pin it.

    The hash is SHA-256 of the JSON of all other fields, keys sorted, without spaces.
    """

    experiment: str
    epsilon: float | None
    channels: list[Channel]
    window: int
    spread: int
    sending: Sending
    feedback_ttl: int
    retention: int
    step: int
    stored: list[str]
    not_stored: list[str]
    not_guaranteed: list[str]
    hash: str = ""


class Stored(msgspec.Struct):
    """How many rows each table of the store has; readers see those without single reports."""

    tables: dict[str, int]


class Health(msgspec.Struct):
    """Whether the service lives, or is ready."""

    status: Literal["ok"]
