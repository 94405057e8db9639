"""Sending: what is due, once, with patience for a service that is away."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from whitelie.client.report import PREFIX, Report
from whitelie.client.storage import SENDING, STATE, Shelf
from whitelie.client.transport import Answer, Transport
from whitelie.client.trouble import Trouble

SETTLED = (200, 410, 422)
INVALID = 422
BUSY = 429
FIRST_WAIT, LONGEST_WAIT = 5_000, 3_600_000
"""Milliseconds between attempts: doubled each time."""

JSON = {"Content-Type": "application/json"}
NOTHING = Answer(0)
SERVICE = "the service"


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
    """Waits between attempts, by what is waited for: the service, or one report."""

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
    """The reports of one service that wait on a shelf; `now` is the clock in milliseconds."""

    shelf: Shelf
    transport: Transport
    trouble: Trouble
    now: Callable[[], int]
    timeout: float
    pauses: Pauses = field(default_factory=Pauses)

    def waiting(self) -> Iterator[tuple[str, Report]]:
        """Yield all reports by their keys."""
        for key in self.shelf.keys_of(PREFIX):
            report = self.read(key)
            if report is not None:
                yield key, report

    def read(self, key: str) -> Report | None:
        """Return a report of this service."""
        text = self.shelf.get(key)
        report = Report.from_text(text) if text is not None else None
        return report if report is not None and report.server == self.transport.address else None

    def next_due(self) -> int | None:
        """Return when the next report may be sent, in milliseconds."""
        now = self.now()
        service = self.pauses.until(SERVICE, now)
        times = [
            max(report.on_clock(now).due, service, self.pauses.until(key, now))
            for key, report in self.waiting()
        ]
        return min(times, default=None)

    def flush(self) -> int:
        """Send what is due, one at a time, and return how many reports were settled."""
        settled = 0
        with self.shelf.lock(SENDING):
            for key in self._due():
                now = self.now()
                if self.pauses.until(SERVICE, now) > now:
                    break
                report = self._sealed(key)
                if report is None:
                    continue  # it has expired or was forgotten meanwhile
                if self._send(key, report):
                    settled += 1
        return settled

    def _due(self) -> list[str]:
        """Return the keys of what is due, in the order in which it fell due."""
        now = self.now()
        with self.shelf.lock(STATE):
            self._tidy(now)
            found = [
                (report.due, key)
                for key, report in self.waiting()
                if now >= report.due and self.pauses.until(key, now) <= now
            ]
        return [key for _, key in sorted(found)]

    def _tidy(self, now: int) -> None:
        """Remove what has expired or is no report, of any service; follow a clock set back."""
        for key in self.shelf.keys_of(PREFIX):
            text = self.shelf.get(key)
            if text is None:
                continue
            report = Report.from_text(text)
            if report is None or now > report.on_clock(now).expires:
                self._remove(key)
            elif report != report.on_clock(now):
                self.shelf.set(key, report.on_clock(now).to_text())

    def _sealed(self, key: str) -> Report | None:
        """Return a report whose bit no reward can change any more; a retry sends the same."""
        with self.shelf.lock(STATE):
            report = self.read(key)
            if report is None:
                return None
            sealed = report.sealed()
            if sealed != report:
                self.shelf.set(key, sealed.to_text())
            return sealed

    def _send(self, key: str, report: Report) -> bool:
        body = json.dumps({"token": report.token, "bit": report.bit}).encode()
        try:
            answer = self.transport.post("/v1/feedback", body, JSON, self.timeout)
        except Exception:  # a transport of the caller's own may raise anything
            answer = NOTHING
        if answer.status in SETTLED:
            with self.shelf.lock(STATE):
                self._remove(key)
            self.pauses.end(SERVICE)
            if answer.status == INVALID:
                self.trouble.warn(
                    "invalid report",
                    "the service does not know a token and a report was dropped; was the "
                    "experiment deleted, or the service's secret changed?",
                )
            return True
        # A service that is away or busy is left alone; a report that it refuses holds up no other.
        away = answer == NOTHING or answer.status == BUSY or answer.status >= 500
        self.pauses.fail(SERVICE if away else key, self.now(), answer.retry_after)
        said = "gave no answer" if answer == NOTHING else f"answered {answer.status}"
        self.trouble.warn(
            "sending", f"the service {said} to a report, which is kept and sent again later"
        )
        return False

    def _remove(self, key: str) -> None:
        self.shelf.remove(key)
        self.pauses.end(key)
