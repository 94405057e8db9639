"""Requests that wait for a commit, and the commit that several of them share."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from whitelie.service.engine.learner import Learner
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Batch, ReportedBit
from whitelie.service.wire import Outcome

Issued = list[tuple[int, str]]
"""The decisions of one request: arms and tokens."""


class DecisionRequest(NamedTuple):
    """A request for as many decisions as are `wanted`, and the future that gets them."""

    learner: Learner
    wanted: int
    available: Sequence[str] | None
    answer: "asyncio.Future[Issued]"


class FeedbackRequest(NamedTuple):
    """A request with reports, and the minute in which it came.

    None stands for a report whose token this service has not sealed.
    """

    reports: Sequence[ReportedBit | None]
    minute: int
    answer: "asyncio.Future[list[Outcome]]"


@dataclass
class RequestQueue:
    """Requests that wait for the next commit."""

    decisions: list[DecisionRequest] = field(default_factory=list)
    feedback: list[FeedbackRequest] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.decisions or self.feedback)

    def put_back(self, others: "RequestQueue") -> None:
        """Put requests that still wait for an answer before these."""
        self.decisions[:0] = [request for request in others.decisions if not request.answer.done()]
        self.feedback[:0] = others.feedback

    def refuse(self, refused: Refusal) -> None:
        """Refuse all requests."""
        for decision in self.decisions:
            refuse(decision.answer, refused)
        for feedback in self.feedback:
            refuse(feedback.answer, refused)


@dataclass
class Commit:
    """One commit: the requests that share it, what it writes, and what it will answer.

    `outcomes` has, for each feedback request, what becomes of its reports if their decisions turn
    out to be unanswered. `is_released` says that its decisions are no longer in flight.
    """

    batch: Batch
    requests: RequestQueue
    decided: list[tuple["asyncio.Future[Issued]", Issued]] = field(default_factory=list)
    outcomes: list[list[Outcome]] = field(default_factory=list)
    is_released: bool = False
    started: float = field(default_factory=time.perf_counter)
    timeout: asyncio.TimerHandle | None = None


def resolve(answer: "asyncio.Future[Any]", value: Any) -> None:
    """Answer a request, unless its client has gone."""
    if not answer.done():
        answer.set_result(value)


def refuse(answer: "asyncio.Future[Any]", refused: Refusal) -> None:
    """Refuse a request with a copy of its own, as every `raise` of one adds to its frames."""
    if not answer.done():
        answer.set_exception(replace(refused))
