"""A snapshot of an experiment: a copy of its counts, as admins or as readers see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from whitelie.certificate import Beginning, Certificate, Conclusion, conclude
from whitelie.channel import RandomizedResponse
from whitelie.kernel.arms import Array
from whitelie.service.experiment.definition import Certified
from whitelie.service.experiment.unanswered import ALL_MINUTES, Unanswered, by_arm, unanswered
from whitelie.service.minutes import DAY
from whitelie.service.store.contract import Counts, Step, Store
from whitelie.service.wire import Shipped

TRAFFIC_MINUTES = 60
"""Minutes over which shares of traffic are taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """An experiment and its counts at one time, by arm.

    `expired_issued` and `expired_answered` are the part of `issued` and `answered` whose tokens
    have expired; `overdue` are those that may come late; `recent` counts the decisions issued
    lately. `last_report` is the minute of the latest report, if it is known. In a snapshot
    that `is_for_readers`, nothing has expired and nothing is overdue.

    `certificate` is what is asked of the evidence, `certified` what the service has noted. Evidence
    reads all reports, or after a rollback those `since_beginning`, the minute `begun_anew`.
    """

    slug: str
    name: str
    status: str
    keys: tuple[str, ...]
    channels: tuple[RandomizedResponse, ...]
    retired: Array
    issued: Array
    answered: Array
    ones: Array
    expired_issued: Array
    expired_answered: Array
    overdue: Array
    recent: Array
    last_report: int | None = None
    is_for_readers: bool = False
    certificate: Certificate = field(default_factory=Certificate)
    beginning: Beginning | None = None
    created: int = 0
    begun_anew: int | None = None
    since_beginning: tuple[Array, Array] | None = None
    reports_per_day: float | None = None
    certified: Certified | None = None
    shipped: Shipped | None = None

    @property
    def unanswered(self) -> Unanswered:
        """The decisions of each arm without a report."""
        return unanswered(
            issued=self.issued,
            answered=self.answered,
            expired_issued=self.expired_issued,
            expired_answered=self.expired_answered,
            overdue=self.overdue,
        )

    @property
    def traffic_shares(self) -> Array:
        """Each arm's share of the recent decisions; of all, if none is recent."""
        counts = self.recent if self.recent.sum() else self.issued
        return np.asarray(counts / max(counts.sum(), 1))

    @property
    def active(self) -> list[int]:
        """The arms that are not retired."""
        return [int(k) for k in np.flatnonzero(~self.retired)]

    @property
    def evidence_counts(self) -> tuple[Array, Array]:
        """The reports that evidence reads, and how many of them were 1."""
        if self.since_beginning is not None:
            return self.since_beginning
        return self.answered, self.ones

    def reading(self, counts: tuple[Array, Array]) -> "Snapshot":
        """Return the snapshot in which evidence reads these counts."""
        return replace(self, since_beginning=counts)

    def conclude(self) -> Conclusion:
        """Return what a certificate says of the counts."""
        channels = dict(zip(self.keys, self.channels, strict=True))
        counts, terms = self.evidence_counts, (self.retired, self.beginning)
        return conclude(self.certificate, channels, counts, *terms)

    def with_evidence(self, store: Store, number: int, minute: int) -> "Snapshot":
        """Return the snapshot with what the store alone knows.

        It is what evidence reads after a rollback, and how many reports came lately. Both are read
        from steps where readers see them; how many came lately always is, as steps are dated by the
        time of the reports.
        """
        since = max(minute - DAY, self.created, self.begun_anew or 0)
        shown = store.steps(number, since, minute + 1, ALL_MINUTES).values()
        reports, minutes = sum(step.answered for step in shown), minute - since
        rate = DAY * reports / minutes if reports > 0 and minutes > 0 else None
        return replace(
            self, reports_per_day=rate, since_beginning=self.read_since_beginning(store, number)
        )

    def read_since_beginning(self, store: Store, number: int) -> tuple[Array, Array] | None:
        """Return the reports that evidence reads, if it has begun anew."""
        if self.begun_anew is None:
            return None
        span = number, self.begun_anew, ALL_MINUTES, ALL_MINUTES
        read = store.steps if self.is_for_readers else store.history
        counts = {arm: each for (_, arm), each in read(*span).items()}
        return reports_by_arm(counts, len(self.keys))

    def for_readers(self, shown: Mapping[int, Step]) -> "Snapshot":
        """Return what readers see: the reports that were shown, and nothing about late ones.

        How many decisions are overdue or missing changes with single reports, however it is
        rounded. Decisions are as they are: that one was issued says nothing about an answer.
        """
        steps = [shown.get(arm, Step()) for arm in range(len(self.keys))]
        unknown = np.zeros_like(self.issued)
        return replace(
            self,
            answered=np.array([step.answered for step in steps]),
            ones=np.array([step.ones for step in steps]),
            expired_issued=unknown,
            expired_answered=unknown,
            overdue=unknown,
            last_report=max((step.minute for step in shown.values()), default=None),
            is_for_readers=True,
        )


def recent_counts(store: Store, number: int, minute: int) -> Mapping[int, Counts]:
    """Return the counts of recent decisions, by arm."""
    return by_arm(store, number, minute - TRAFFIC_MINUTES, minute + 1)


def reports_by_arm(counts: Mapping[int, Counts | Step], arms: int) -> tuple[Array, Array]:
    """Return the reports on each arm, and how many of them were 1."""
    known = [counts.get(arm, Counts()) for arm in range(arms)]
    return np.array([each.answered for each in known]), np.array([each.ones for each in known])
