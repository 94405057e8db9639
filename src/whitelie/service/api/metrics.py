"""Counters for Prometheus, read off the engine when they are asked for.

Admins see all of them as they are. All others see of reports what was shown, and nothing that moves
with a single one.
"""

from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from whitelie.estimate import is_misspecified
from whitelie.kernel.arms import Array
from whitelie.service import wire
from whitelie.service.engine import Engine
from whitelie.service.learner import Learner
from whitelie.service.standing import as_shown, standing_of
from whitelie.service.store import Step

Shown = Mapping[int, Mapping[int, Step]]
"""What was shown of every experiment, by its number and arm."""

ADMIN_COLUMNS = {
    "pending": "Decisions whose report may be on its way.",
    "overdue": "Decisions whose report is late, and may still come.",
    "missing": "Decisions that expired unanswered.",
}
READER_COLUMNS = {"pending": "Decisions without a report that was shown."}


def exposition(engine: Engine, *, is_admin: bool) -> bytes:
    """Return all metrics in Prometheus' text format."""
    shown = None
    if not is_admin:
        shown = {learner.number: engine.store.shown(learner.number) for learner in engine.roster}
    registry = CollectorRegistry()
    registry.register(_Metrics(engine, shown))
    return bytes(generate_latest(registry))


class _Metrics(Collector):
    def __init__(self, engine: Engine, shown: Shown | None) -> None:
        self._engine = engine
        self._shown = shown

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        total = self._engine.tally.total
        yield CounterMetricFamily(
            "whitelie_decisions", "Decisions committed since the start.", total("decisions")
        )
        yield from self._of_reports() if self._shown is None else self._of_shown(self._shown)
        yield from self._of_the_server()
        yield from self._of_arms()

    def _of_reports(self) -> Iterator[Metric]:
        total = self._engine.tally.total
        reports = CounterMetricFamily(
            "whitelie_reports", "Reports since the start, by outcome.", labels=["outcome"]
        )
        for outcome in get_args(wire.Outcome):
            reports.add_metric([outcome], total(outcome))
        yield reports
        yield CounterMetricFamily("whitelie_commits", "Transactions.", total("commits"))
        yield CounterMetricFamily(
            "whitelie_failed_commits", "Transactions that failed.", total("failed_commits")
        )
        yield CounterMetricFamily(
            "whitelie_commit_seconds", "Time that transactions took.", total("commit_seconds")
        )

    def _of_shown(self, shown: Shown) -> Iterator[Metric]:
        reports = CounterMetricFamily(
            "whitelie_reports", "Reports shown, of all experiments.", labels=["outcome"]
        )
        total = sum(step.answered for arms in shown.values() for step in arms.values())
        reports.add_metric(["accepted"], total)
        yield reports

    def _of_the_server(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "whitelie_store_available", "Whether the store works.", self._engine.writer.is_available
        )
        yield GaugeMetricFamily(
            "whitelie_clock_trusted",
            "Whether the clock has not jumped.",
            self._engine.clock.is_trusted,
        )

    def _columns(self, learner: Learner) -> tuple[Array, ...]:
        if self._shown is None:
            return learner.issued, learner.answered, learner.ones, *learner.unanswered
        seen = as_shown(standing_of(learner, {}), self._shown.get(learner.number, {}))
        return seen.issued, seen.answered, seen.ones, seen.unanswered.pending

    def _of_arms(self) -> Iterator[Metric]:
        columns = {
            "issued": "Decisions issued.",
            "answered": "Decisions answered.",
            "ones": "Answers that were 1.",
            **(ADMIN_COLUMNS if self._shown is None else READER_COLUMNS),
            "misspecified": "Whether the reports cannot come from the declared channel.",
        }
        families = {
            name: GaugeMetricFamily(f"whitelie_arm_{name}", text, labels=["experiment", "arm"])
            for name, text in columns.items()
        }
        for learner in self._engine.roster:
            values = zip(*self._columns(learner), strict=True)
            for arm, channel, counts in zip(
                learner.experiment.arms, learner.experiment.channels, values, strict=True
            ):
                impossible = is_misspecified(channel, int(counts[1]), int(counts[2]))
                for family, value in zip(families.values(), (*counts, impossible), strict=True):
                    family.add_metric([learner.slug, arm.key], float(value))
        yield from families.values()
