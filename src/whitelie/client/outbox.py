"""Sending: what is due, once, with patience for a service that is away."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from whitelie.client.ledger import CHARGE, DAY, Cap, Ledger
from whitelie.client.report import PREFIX, Report
from whitelie.client.storage import SENDING, STATE, Shelf, StorageFailed
from whitelie.client.transport import Answer, Transport
from whitelie.client.trouble import Trouble

SETTLED = (200, 410, 422)
INVALID = 422
BUSY = 429
FIRST_WAIT, LONGEST_WAIT = 5_000, 3_600_000
"""Milliseconds between attempts: doubled each time."""

JSON = {"Content-Type": "application/json"}
NOTHING = Answer(0)
ALL = "all reports"


@dataclass
class Pause:
    """How long to wait after the latest failure, and until when."""

    wait: int
    until: int

    def holds(self, now: int) -> bool:
        """Whether it is too early; a clock that was set back does not make it longer."""
        return 0 < self.until - now <= self.wait


@dataclass
class Pauses:
    """Waits between attempts, by what waits: all reports, or one."""

    _known: dict[str, Pause] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def fail(self, name: str, now: int, retry_after: int) -> None:
        """Wait twice as long as the last time, or as long as the service asks for."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        wait = max(min(FIRST_WAIT << min(failures, 20), LONGEST_WAIT), 1000 * retry_after)
        self._known[name] = Pause(wait, now + wait)

    def end(self, name: str) -> None:
        """Forget the failures."""
        self._known.pop(name, None)
        self._failures.pop(name, None)

    def until(self, name: str, now: int) -> int:
        """Return when the next attempt may come; now if nothing holds it."""
        pause = self._known.get(name)
        return pause.until if pause is not None and pause.holds(now) else now


@dataclass
class Outbox:
    """The reports of one service that wait on a shelf; `now` is the clock in milliseconds.

    `only` are the keys of what this client may send, or None for everything.
    """

    shelf: Shelf
    transport: Transport
    trouble: Trouble
    now: Callable[[], int]
    timeout: float
    has_consent: Callable[[], bool]
    only: frozenset[str] | None = None
    pauses: Pauses = field(default_factory=Pauses)

    def waiting(self) -> Iterator[tuple[str, Report]]:
        """Yield all reports by their keys; what cannot be read now is left out."""
        for key in self._keys():
            report = self.read(key)
            if report is not None:
                yield key, report

    def read(self, key: str) -> Report | None:
        """Return a report of this service, if it can be read."""
        text = self._text(key)
        report = Report.from_text(text) if text is not None else None
        return report if report is not None and report.server == self.transport.address else None

    def next_due(self) -> int | None:
        """Return when the next report may be sent, by this client or one that starts then."""
        return min(self._times(), default=None)

    def next_attempt(self) -> int | None:
        """Return when the next report may be sent by this client."""
        return min(self._times(self.only), default=None)

    def send_only_what_is_due_now(self) -> None:
        """Leave all other reports to clients that start later."""
        now = self.now()
        waiting = self.waiting()
        due = [key for key, report in waiting if report.on_clock(now).earliest <= now]
        self.only = frozenset(due)

    def flush(self) -> int:
        """Send what may be sent, one at a time, and return how many reports were settled."""
        settled = 0
        try:
            with self.shelf.lock(SENDING):
                keys = self._due()
                if keys and not self.has_consent():
                    keys = []
                for key in keys:
                    now = self.now()
                    if self.pauses.until(ALL, now) > now:
                        break
                    report = self._sealed(key)
                    if report is not None and self._send(key, report):
                        settled += 1
        except StorageFailed as failed:
            self.pauses.fail(ALL, self.now(), 0)
            self.trouble.warn_storage(failed)
        return settled

    def _keys(self) -> list[str]:
        try:
            return self.shelf.keys_of(PREFIX)
        except StorageFailed as failed:
            self.trouble.warn_storage(failed)
            return []

    def _text(self, key: str) -> str | None:
        """Return a text; one that cannot be read holds up no other."""
        try:
            return self.shelf.get(key)
        except StorageFailed as failed:
            self.trouble.warn_storage(failed)
            return None

    def _times(self, only: frozenset[str] | None = None) -> list[int]:
        now = self.now()
        held = self.pauses.until(ALL, now)
        return [
            max(report.on_clock(now).earliest, held, self.pauses.until(key, now))
            for key, report in self.waiting()
            if only is None or key in only
        ]

    def _due(self) -> list[str]:
        """Return the keys of what may be sent now, in the order in which it fell due."""
        now = self.now()
        with self.shelf.lock(STATE):
            self._tidy(now)
            due = []
            for key, report in self.waiting():
                if self.only is not None and key not in self.only:
                    self._warn_if_long_due(report, now)
                elif report.earliest <= now and self.pauses.until(key, now) <= now:
                    due.append((report.due, key))
            return self._within_their_caps([key for _, key in sorted(due)], now)

    def _within_their_caps(self, keys: list[str], now: int) -> list[str]:
        """Remove what was charged unseen by another and exceeds its cap; return the others."""
        if not keys:
            return keys
        ledger = Ledger.from_items(self.shelf.items_of(CHARGE), Cap(), now)
        allowed = []
        for key in keys:
            charge = CHARGE + key.removeprefix(PREFIX)
            if ledger.allows(charge):
                allowed.append(key)
            else:
                self._remove(key)
                self.shelf.remove(charge)
        return allowed

    def _warn_if_long_due(self, report: Report, now: int) -> None:
        if now - report.earliest > DAY:
            self.trouble.warn(
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
            report = Report.from_text(text)
            if report is None or now > report.on_clock(now).expires:
                self._remove(key)
            elif report != report.on_clock(now):
                self.shelf.set(key, report.on_clock(now).to_text())

    def _sealed(self, key: str) -> Report | None:
        """Return a report whose bit nothing can change any more, or None if it is gone.

        It is written before every attempt, though it may look sealed: an earlier write may have
        failed after it was seen and before it would last.
        """
        with self.shelf.lock(STATE):
            report = self.read(key)
            if report is None:
                return None
            sealed = report.sealed()
            self.shelf.set(key, sealed.to_text())
            return sealed

    def _send(self, key: str, report: Report) -> bool:
        body = json.dumps({"token": report.token, "bit": report.bit}).encode()
        try:
            answer = self.transport.post("/v1/feedback", body, JSON, self.timeout)
        except Exception:  # a transport of the caller's own may raise anything
            answer = NOTHING
        if answer.status in SETTLED:
            self.pauses.end(ALL)
            if answer.status == INVALID:
                self.trouble.warn(
                    "invalid report",
                    "the service does not know a token and a report was dropped; was the "
                    "experiment deleted, or the service's secret changed?",
                )
            return self._settle(key)
        # A service that is away or busy is left alone; a report that it refuses holds up no other.
        away = answer == NOTHING or answer.status == BUSY or answer.status >= 500
        self.pauses.fail(ALL if away else key, self.now(), answer.retry_after)
        said = "gave no answer" if answer == NOTHING else f"answered {answer.status}"
        self.trouble.warn(
            "sending", f"the service {said} to a report, which is kept and sent again later"
        )
        return False

    def _settle(self, key: str) -> bool:
        """Remove a report, or leave it sealed where that fails: it is then sent again as it is."""
        try:
            with self.shelf.lock(STATE):
                self._remove(key)
        except StorageFailed as failed:
            self.pauses.fail(key, self.now(), 0)
            self.trouble.warn_storage(failed)
            return False
        return True

    def _remove(self, key: str) -> None:
        self.shelf.remove(key)
        self.pauses.end(key)
