"""Requests that gather, go through one commit together, and are answered after it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from whitelie.service.learner import Learner
from whitelie.service.refusal import Refusal
from whitelie.service.store import Batch, Report
from whitelie.service.wire import Outcome

Issued = list[tuple[int, str]]
"""Decisions of one request: arms and tokens."""


class Ask(NamedTuple):
    """A request for decisions."""

    learner: Learner
    wanted: int
    available: Sequence[str] | None
    answer: "asyncio.Future[Issued]"


class Reporter(NamedTuple):
    """A request with reports, and when it came; None stands for one whose token is not ours."""

    reports: Sequence[Report | None]
    minute: int
    answer: "asyncio.Future[list[Outcome]]"


@dataclass
class Gathered:
    """Requests that wait for the next commit."""

    asks: list[Ask] = field(default_factory=list)
    reporters: list[Reporter] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.asks or self.reporters)

    def take_back(self, others: "Gathered") -> None:
        """Put others who still wait before these."""
        self.asks[:0] = [ask for ask in others.asks if not ask.answer.done()]
        self.reporters[:0] = others.reporters

    def refuse(self, refused: Refusal) -> None:
        """Refuse them all."""
        for ask in self.asks:
            refuse(ask.answer, refused)
        for reporter in self.reporters:
            refuse(reporter.answer, refused)


@dataclass
class Round:
    """Requests on their way through one commit: what it writes, and whom it answers."""

    batch: Batch
    gathered: Gathered
    decided: list[tuple["asyncio.Future[Issued]", Issued]] = field(default_factory=list)
    judged: list[list[Outcome]] = field(default_factory=list)
    has_landed: bool = False
    started: float = field(default_factory=time.perf_counter)
    watch: asyncio.TimerHandle | None = None


def settle(answer: "asyncio.Future[Any]", value: Any) -> None:
    """Answer whoever still waits: a client may have gone."""
    if not answer.done():
        answer.set_result(value)


def refuse(answer: "asyncio.Future[Any]", refused: Refusal) -> None:
    """Refuse whoever still waits."""
    if not answer.done():
        answer.set_exception(refused)
