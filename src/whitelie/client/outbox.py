"""Sends stored reports one at a time, and retries with backoff while the service is away."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from whitelie.client.ledger import CHARGE, DAY_MS, Cap, Ledger
from whitelie.client.pending_report import REPORT, WHEN_DUE, PendingReport
from whitelie.client.storage import SENDING_LOCK, STATE_LOCK, StorageAdapter, StorageFailed
from whitelie.client.transport import Answer, Transport
from whitelie.client.warn_once import WarnOnce

FINAL_STATUSES = (200, 410, 422)
"""After these a report is settled: the service has counted it, or never will."""

INVALID_TOKEN_STATUS = 422
TOO_MANY_REQUESTS_STATUS = 429
FIRST_RETRY_MS, MAX_RETRY_MS = 5_000, 3_600_000
"""Time between attempts: doubled each time."""

JSON_HEADERS = {"Content-Type": "application/json"}
NO_ANSWER = Answer(0)
ALL_REPORTS = "all reports"


@dataclass
class Backoff:
    """How long to wait after the latest failure, and until when."""

    wait: int
    until: float

    def holds(self, now: float) -> bool:
        """Return whether it is too early to retry; a clock set back does not prolong the wait."""
        return 0 < self.until - now <= self.wait


@dataclass
class Backoffs:
    """The backoff of all reports together, and of each report."""

    _known: dict[str, Backoff] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def fail(self, name: str, now: float, retry_after: int) -> None:
        """Wait twice as long as the last time, or as long as the service asks for."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        wait = max(min(FIRST_RETRY_MS << min(failures, 20), MAX_RETRY_MS), 1000 * retry_after)
        self._known[name] = Backoff(wait, now + wait)

    def end(self, name: str) -> None:
        """Reset the backoff after a success."""
        self._known.pop(name, None)
        self._failures.pop(name, None)

    def until(self, name: str, now: float) -> float:
        """Return when the next attempt may be made; now if there is no backoff."""
        backoff = self._known.get(name)
        return backoff.until if backoff is not None and backoff.holds(now) else now


@dataclass
class Outbox:
    """The stored reports of one service; `now` is the clock in milliseconds.

    Each report was stored with its rule of sending. A report under "next-visit" that was due when
    the client started gets one attempt, and is `untried` until then. A report under "when-due" is
    tried until the service has taken it.
    """

    storage: StorageAdapter
    transport: Transport
    warnings: WarnOnce
    now: Callable[[], int]
    timeout: float
    has_consent: Callable[[], bool]
    backoffs: Backoffs = field(default_factory=Backoffs)
    untried: set[str] = field(default_factory=set)
    due_at_start: frozenset[str] = frozenset()

    def start(self) -> None:
        """Remember which reports are due now."""
        now = self.now()
        self.untried = {
            key
            for key, report in self.waiting()
            if report.sending != WHEN_DUE and report.on_clock(now).earliest <= now
        }
        self.due_at_start = frozenset(self.untried)

    def waiting(self) -> Iterator[tuple[str, PendingReport]]:
        """Yield all reports with their keys; skip those that cannot be read now."""
        for key in self._keys():
            report = self.read(key)
            if report is not None:
                yield key, report

    def read(self, key: str) -> PendingReport | None:
        """Return a report of this service, if it can be read."""
        text = self._text(key)
        report = PendingReport.from_text(text) if text is not None else None
        return report if report is not None and report.server == self.transport.address else None

    def next_due(self) -> float | None:
        """Return when the next report may be sent, by this client or one that starts then."""
        now = self.now()
        return min((self._time(*each, now) for each in self.waiting()), default=None)

    def next_attempt(self) -> float | None:
        """Return when the next report may be sent by this client."""
        now = self.now()
        times = (
            self._time(key, report, now)
            for key, report in self.waiting()
            if report.sending == WHEN_DUE or key in self.untried
        )
        return min(times, default=None)

    def flush(self) -> int:
        """Send what may be sent, one at a time; return how many reports are settled."""
        settled = 0
        try:
            with self.storage.lock(SENDING_LOCK):
                for key, is_when_due in self._due():
                    if self._may_try(key, is_when_due):
                        settled += self._attempt(key)
        except StorageFailed as failed:
            self.backoffs.fail(ALL_REPORTS, self.now(), 0)
            self.untried.clear()
            self.warnings.warn_storage(failed)
        return settled

    def forget(self) -> None:
        """Forget all failures; the client erases what is stored."""
        self.backoffs = Backoffs()

    def _keys(self) -> list[str]:
        try:
            return self.storage.keys_of(REPORT)
        except StorageFailed as failed:
            self.warnings.warn_storage(failed)
            return []

    def _text(self, key: str) -> str | None:
        """Return a text, or None if it cannot be read; the others are still sent."""
        try:
            return self.storage.get(key)
        except StorageFailed as failed:
            self.warnings.warn_storage(failed)
            return None

    def _time(self, key: str, report: PendingReport, now: float) -> float:
        earliest = max(report.on_clock(now).earliest, now)
        if report.sending != WHEN_DUE:
            return earliest
        return max(earliest, self.backoffs.until(ALL_REPORTS, now), self.backoffs.until(key, now))

    def _due(self) -> list[tuple[str, bool]]:
        """Return (key, whether its rule is "when-due") of what is due, in the order of sending."""
        now = self.now()
        with self.storage.lock(STATE_LOCK):
            self._tidy(now)
            self._erase_over_caps(now)
            due = []
            for key, report in self.waiting():
                is_when_due = report.sending == WHEN_DUE
                if not is_when_due and key not in self.untried:
                    if key not in self.due_at_start:
                        self._warn_if_long_due(report, now)
                elif self._time(key, report, now) <= now:
                    due.append((report.due, key, is_when_due))
        return [(key, is_when_due) for _, key, is_when_due in sorted(due)]

    def _erase_over_caps(self, now: int) -> None:
        """Remove reports that exceed their cap, because two tabs charged at the same instant.

        All are checked, due or not, so that the choice is made once, before anything is sent.
        """
        ledger = Ledger.read(self.storage.items_of(CHARGE), Cap(), now)
        for key in self.storage.keys_of(REPORT):
            charge = CHARGE + key.removeprefix(REPORT)
            if not ledger.allows(charge):
                self._remove(key)
                self.storage.remove(charge)

    def _warn_if_long_due(self, report: PendingReport, now: int) -> None:
        if now - report.earliest > DAY_MS:
            self.warnings.warn(
                "next visit",
                "a report has been due for a day and waits for the next start of a client; where "
                'the program runs whether anybody is there or not, say sending="when-due"',
            )

    def _tidy(self, now: int) -> None:
        """Remove what has expired or is no report, of any service; follow a clock set back."""
        for key in self._keys():
            text = self._text(key)
            if text is None:
                continue
            report = PendingReport.from_text(text)
            if report is None or now > report.on_clock(now).expires:
                self._remove(key)
            elif report != report.on_clock(now):
                self.storage.set(key, report.on_clock(now).to_text())

    def _may_try(self, key: str, is_when_due: bool) -> bool:
        """Return whether a report may still be tried after the attempts before it in this flush."""
        now = self.now()
        free = self.backoffs.until(ALL_REPORTS, now) <= now if is_when_due else key in self.untried
        return free and self.has_consent()

    def _attempt(self, key: str) -> bool:
        """Send a report; return whether it is settled."""
        report = self._sealed(key)
        self.untried.discard(key)
        return report is not None and self._send(key, report)

    def _sealed(self, key: str) -> PendingReport | None:
        """Store a report with one bit left, so that every retry sends this bit; None if it is gone.

        It is written before every attempt, even if it is sealed already: the write before may have
        failed after others could read it, and before it was durable.
        """
        with self.storage.lock(STATE_LOCK):
            report = self.read(key)
            if report is None:
                return None
            sealed = report.sealed()
            self.storage.set(key, sealed.to_text())
            return sealed

    def _send(self, key: str, report: PendingReport) -> bool:
        body = json.dumps({"token": report.token, "bit": report.bit}).encode()
        try:
            answer = self.transport.post("/v1/feedback", body, JSON_HEADERS, self.timeout)
        except Exception:  # a transport of the caller's own may raise anything
            answer = NO_ANSWER
        if answer.status in FINAL_STATUSES:
            self.backoffs.end(ALL_REPORTS)
            if answer.status == INVALID_TOKEN_STATUS:
                self.warnings.warn(
                    "invalid report",
                    "the service does not know a token and a report was dropped; was the "
                    "experiment deleted, or the service's secret changed?",
                )
            return self._settle(key)
        if answer == NO_ANSWER:  # how many requests time out in a row would reveal who stayed
            self.untried.clear()
        if report.sending == WHEN_DUE:
            # If the service is away, all reports wait; if it refuses one, only that one does.
            busy = answer.status == TOO_MANY_REQUESTS_STATUS or answer.status >= 500
            away = answer == NO_ANSWER or busy
            self.backoffs.fail(ALL_REPORTS if away else key, self.now(), answer.retry_after)
        self.warnings.warn("sending", "the service did not take a report, which is kept for later")
        return False

    def _settle(self, key: str) -> bool:
        """Remove a report; if that fails, it stays sealed, and is sent again with the same bit."""
        try:
            with self.storage.lock(STATE_LOCK):
                self._remove(key)
        except StorageFailed as failed:
            self.backoffs.fail(key, self.now(), 0)
            self.warnings.warn_storage(failed)
            return False
        return True

    def _remove(self, key: str) -> None:
        self.storage.remove(key)
        self.backoffs.end(key)
