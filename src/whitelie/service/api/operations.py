"""All operations of the service, as data for the router and the OpenAPI document."""

from dataclasses import dataclass
from typing import Any

from whitelie.service import wire
from whitelie.service.experiment.results import Results

ADMIN = ("admin",)
READERS = ("admin", "reader")
DECIDERS = ("admin", "publishable")
ANYBODY: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method on one path: who may call it, with what, and what comes back.

    `body` is a type of JSON, or a tuple of the types that are accepted. `answer` is a type of JSON,
    or the media type of a text. `refusals` are the error codes besides those of its key and body.
    """

    name: str
    method: str
    path: str
    summary: str
    roles: tuple[str, ...]
    answer: Any
    body: Any = None
    query: Any = None
    status: int = 200
    refusals: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """All error codes that this operation may answer with."""
        codes = list(self.refusals)
        if self.roles:
            codes += ["unknown_key", "not_allowed"]
        if "{id}" in self.path:
            codes.append("unknown_experiment")
        if self.body is not None:
            codes += ["malformed_json", "body_too_large", "unsupported_media_type", "invalid_field"]
        if self.query is not None:
            codes.append("invalid_field")
        return tuple(dict.fromkeys(codes))


ONE = "/v1/experiments/{id}"

OPERATIONS = (
    Operation(
        name="create",
        method="POST",
        path="/v1/experiments",
        summary="Create an experiment; the same Idempotency-Key creates it once.",
        roles=ADMIN,
        body=wire.NewExperiment,
        answer=wire.Experiment,
        status=201,
        refusals=("epsilon_above_ceiling", "idempotency_conflict", "store_unavailable"),
    ),
    Operation(
        name="list",
        method="GET",
        path="/v1/experiments",
        summary="List all experiments.",
        roles=READERS,
        answer=wire.Experiments,
    ),
    Operation(
        name="show",
        method="GET",
        path=ONE,
        summary="Show one experiment.",
        roles=READERS,
        answer=wire.Experiment,
    ),
    Operation(
        name="change",
        method="PATCH",
        path=ONE,
        summary="Pause, resume or stop an experiment; add or retire arms.",
        roles=ADMIN,
        body=wire.Change,
        answer=wire.Experiment,
        refusals=(
            "epsilon_above_ceiling",
            "experiment_stopped",
            "experiment_shipped",
            "changed_meanwhile",
            "unknown_arm",
            "store_unavailable",
        ),
    ),
    Operation(
        name="ship",
        method="POST",
        path=f"{ONE}/ship",
        summary="Let everybody see one arm; nobody reports any more.",
        roles=ADMIN,
        body=wire.Ship,
        answer=wire.Experiment,
        refusals=(
            "experiment_stopped",
            "experiment_shipped",
            "changed_meanwhile",
            "unknown_arm",
            "store_unavailable",
        ),
    ),
    Operation(
        name="unship",
        method="POST",
        path=f"{ONE}/unship",
        summary="Undo the shipping of an arm, within a day.",
        roles=ADMIN,
        answer=wire.Experiment,
        refusals=(
            "experiment_stopped",
            "not_shipped",
            "too_late_to_unship",
            "changed_meanwhile",
            "store_unavailable",
        ),
    ),
    Operation(
        name="delete",
        method="DELETE",
        path=ONE,
        summary="Delete an experiment and all its counts.",
        roles=ADMIN,
        answer=None,
        status=204,
        refusals=("store_unavailable",),
    ),
    Operation(
        name="decide",
        method="POST",
        path=f"{ONE}/decisions",
        summary="Decide which arm to show; publishable keys get one decision, among all arms.",
        roles=DECIDERS,
        body=wire.Ask,
        answer=wire.Decisions,
        refusals=(
            "origin_not_allowed",
            "experiment_paused",
            "experiment_stopped",
            "unknown_arm",
            "too_many_decisions",
            "clock_jumped",
            "store_unavailable",
        ),
    ),
    Operation(
        name="feedback",
        method="POST",
        path="/v1/feedback",
        summary="Report flipped bits; the token is the permission.",
        roles=ANYBODY,
        body=(wire.Report, wire.Reports),
        answer=wire.Items,
        refusals=(
            "invalid_bit",
            "invalid_token",
            "token_expired",
            "clock_jumped",
            "store_unavailable",
        ),
    ),
    Operation(
        name="results",
        method="GET",
        path=f"{ONE}/results",
        summary="What the reports say of every arm.",
        roles=READERS,
        answer=Results,
        refusals=("store_unavailable",),
    ),
    Operation(
        name="results_csv",
        method="GET",
        path=f"{ONE}/results.csv",
        summary="The results as a table.",
        roles=READERS,
        answer="text/csv",
        refusals=("store_unavailable",),
    ),
    Operation(
        name="history",
        method="GET",
        path=f"{ONE}/history",
        summary="Counts over time: by the minute of the decision or coarser; for readers reports "
        "are by the minute in which they were shown.",
        roles=READERS,
        query=wire.Period,
        answer=wire.History,
        refusals=("store_unavailable",),
    ),
    Operation(
        name="stream",
        method="GET",
        path=f"{ONE}/stream",
        summary="Results as server-sent events, whenever they have changed.",
        roles=READERS,
        answer="text/event-stream",
    ),
    Operation(
        name="roll_back",
        method="POST",
        path=f"{ONE}/rollback",
        summary="Remove the counts of all decisions of some minutes; their tokens expire.",
        roles=ADMIN,
        body=wire.Span,
        answer=wire.Removed,
        refusals=("changed_meanwhile", "store_unavailable"),
    ),
    Operation(
        name="privacy",
        method="GET",
        path=f"{ONE}/privacy",
        summary="What devices are promised, for everybody to check.",
        roles=ANYBODY,
        answer=wire.Privacy,
    ),
    Operation(
        name="stored",
        method="GET",
        path="/v1/stored",
        summary="How many rows each table of the store has.",
        roles=READERS,
        answer=wire.Stored,
        refusals=("store_unavailable",),
    ),
    Operation(
        name="healthz",
        method="GET",
        path="/healthz",
        summary="Whether the process lives.",
        roles=ANYBODY,
        answer=wire.Health,
    ),
    Operation(
        name="readyz",
        method="GET",
        path="/readyz",
        summary="Whether decisions and feedback can be served now.",
        roles=ANYBODY,
        answer=wire.Health,
        refusals=("store_unavailable", "clock_jumped"),
    ),
    Operation(
        name="metrics",
        method="GET",
        path="/metrics",
        summary="Counters for Prometheus.",
        roles=READERS,
        answer="text/plain",
    ),
    Operation(
        name="openapi",
        method="GET",
        path="/openapi.json",
        summary="This document.",
        roles=ANYBODY,
        answer=dict[str, Any],
    ),
)
