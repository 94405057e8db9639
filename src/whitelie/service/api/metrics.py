"""Counters for Prometheus, read off the engine when they are asked for.

Admins see all of them as they are. All others see of reports what was shown, and nothing that moves
with a single one.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from whitelie.estimate import is_misspecified
from whitelie.service import wire
from whitelie.service.engine.engine import Engine
from whitelie.service.experiment.certificate_state import certificate_of
from whitelie.service.experiment.results import CLOCK_JUMPED, alarms, doubt
from whitelie.service.experiment.snapshot import Snapshot

ADMIN_COLUMNS = {
    "pending": "Decisions whose report may be on its way.",
    "overdue": "Decisions whose report is late, and may still come.",
    "missing": "Decisions that expired unanswered.",
}
READER_COLUMNS = {"pending": "Decisions without a report that was shown."}


async def exposition(engine: Engine, *, is_admin: bool) -> bytes:
    """Return all metrics in Prometheus' text format.

    Snapshots are taken here, on the event loop, where no commit can come between two columns of one
    experiment; so every number is that of /results. A thread makes the text.
    """
    snapshots = {learner.number: learner.snapshot({}) for learner in engine.directory}
    return await asyncio.to_thread(_text, engine, snapshots, is_admin)


def _text(engine: Engine, snapshots: Mapping[int, Snapshot], is_admin: bool) -> bytes:
    if not is_admin:
        snapshots = {
            number: snapshot.for_readers(engine.store.published(number))
            for number, snapshot in snapshots.items()
        }
    snapshots = {
        number: snapshot.with_evidence(engine.store, number, engine.clock.minute)
        if snapshot.begun_anew is not None
        else snapshot
        for number, snapshot in snapshots.items()
    }
    registry = CollectorRegistry()
    registry.register(_Metrics(engine, list(snapshots.values()), is_admin))
    return bytes(generate_latest(registry))


class _Metrics(Collector):
    def __init__(self, engine: Engine, snapshots: Sequence[Snapshot], is_admin: bool) -> None:
        self._engine = engine
        self._snapshots = snapshots
        self._is_admin = is_admin

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        total = self._engine.counters.total
        yield CounterMetricFamily(
            "whitelie_decisions", "Decisions committed since the start.", total("decisions")
        )
        yield from self._of_reports() if self._is_admin else self._of_shown()
        yield from self._of_the_server()
        yield from self._of_arms()
        yield from self._of_certificates()

    def _of_reports(self) -> Iterator[Metric]:
        total = self._engine.counters.total
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

    def _of_shown(self) -> Iterator[Metric]:
        reports = CounterMetricFamily(
            "whitelie_reports", "Reports shown, of all experiments.", labels=["outcome"]
        )
        total = sum(int(snapshot.answered.sum()) for snapshot in self._snapshots)
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

    def _of_arms(self) -> Iterator[Metric]:
        texts = {
            "issued": "Decisions issued.",
            "answered": "Decisions answered.",
            "ones": "Answers that were 1.",
            **(ADMIN_COLUMNS if self._is_admin else READER_COLUMNS),
            "misspecified": "Whether the reports cannot come from the declared channel.",
        }
        families = {
            name: GaugeMetricFamily(f"whitelie_arm_{name}", text, labels=["experiment", "arm"])
            for name, text in texts.items()
        }
        for snapshot in self._snapshots:
            unanswered = snapshot.unanswered if self._is_admin else snapshot.unanswered[:1]
            columns = snapshot.issued, snapshot.answered, snapshot.ones, *unanswered
            for key, channel, *counts in zip(
                snapshot.keys, snapshot.channels, *columns, strict=True
            ):
                impossible = is_misspecified(channel, int(counts[1]), int(counts[2]))
                for family, value in zip(families.values(), (*counts, impossible), strict=True):
                    family.add_metric([snapshot.slug, key], float(value))
        yield from families.values()

    def _of_certificates(self) -> Iterator[Metric]:
        progress = GaugeMetricFamily(
            "whitelie_certificate_progress",
            "How much of the evidence is there, from 0 to 1.",
            labels=["experiment"],
        )
        certified = GaugeMetricFamily(
            "whitelie_certified", "Whether one arm is known to be best.", labels=["experiment"]
        )
        clock = [] if self._engine.clock.is_trusted else [CLOCK_JUMPED]
        for snapshot in self._snapshots:
            state = certificate_of(snapshot, doubt([*clock, *alarms(snapshot)]))
            progress.add_metric([snapshot.slug], state.progress)
            certified.add_metric([snapshot.slug], float(state.state == "certified"))
        yield progress
        yield certified
