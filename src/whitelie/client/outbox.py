"""Sending: what may leave, one report at a time, with patience for a service that is away."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from whitelie.client.ledger import CHARGE, DAY, Cap, Ledger
from whitelie.client.report import PREFIX, WHEN_DUE, Report
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
    until: float

    def holds(self, now: float) -> bool:
        """Whether it is too early; a clock that was set back does not make it longer."""
        return 0 < self.until - now <= self.wait


@dataclass
class Pauses:
    """Waits between attempts, by what waits: all reports, or one."""

    _known: dict[str, Pause] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def fail(self, name: str, now: float, retry_after: int) -> None:
        """Wait twice as long as the last time, or as long as the service asks for."""
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        wait = max(min(FIRST_WAIT << min(failures, 20), LONGEST_WAIT), 1000 * retry_after)
        self._known[name] = Pause(wait, now + wait)

    def end(self, name: str) -> None:
        """Forget the failures."""
        self._known.pop(name, None)
        self._failures.pop(name, None)

    def until(self, name: str, now: float) -> float:
        """Return when the next attempt may come; now if nothing holds it."""
        pause = self._known.get(name)
        return pause.until if pause is not None and pause.holds(now) else now


@dataclass
class Outbox:
    """The reports of one service that wait on a shelf; `now` is the clock in milliseconds.

    A report leaves by its own rule. Those under "next-visit" that were due at the start get one
    attempt each, and are `untried` until then; those under "when-due" are tried until settled.
    """

    shelf: Shelf
    transport: Transport
    trouble: Trouble
    now: Callable[[], int]
    timeout: float
    has_consent: Callable[[], bool]
    pauses: Pauses = field(default_factory=Pauses)
    untried: set[str] = field(default_factory=set)
    due_at_start: frozenset[str] = frozenset()

    def start(self) -> None:
        """Take note of what is due now."""
        now = self.now()
        self.untried = {
            key
            for key, report in self.waiting()
            if report.sending != WHEN_DUE and report.on_clock(now).earliest <= now
        }
        self.due_at_start = frozenset(self.untried)

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
        """Send what may be sent, one at a time, and return how many reports were settled."""
        settled = 0
        try:
            with self.shelf.lock(SENDING):
                for key, is_when_due in self._due():
                    if self._may_try(key, is_when_due):
                        settled += self._attempt(key)
        except StorageFailed as failed:
            self.pauses.fail(ALL, self.now(), 0)
            self.untried.clear()
            self.trouble.warn_storage(failed)
        return settled

    def forget(self) -> None:
        """Forget the failures; what is stored is erased by others."""
        self.pauses = Pauses()

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

    def _time(self, key: str, report: Report, now: float) -> float:
        earliest = max(report.on_clock(now).earliest, now)
        if report.sending != WHEN_DUE:
            return earliest
        return max(earliest, self.pauses.until(ALL, now), self.pauses.until(key, now))

    def _due(self) -> list[tuple[str, bool]]:
        """Return what is due, in this order: the keys, and whether "when-due" is the rule."""
        now = self.now()
        with self.shelf.lock(STATE):
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
        """Remove what was charged unseen by another and exceeds its cap, due or not.

        So it is decided once who gives way, before anything is sent.
        """
        ledger = Ledger.read(self.shelf.items_of(CHARGE), Cap(), now)
        for key in self.shelf.keys_of(PREFIX):
            charge = CHARGE + key.removeprefix(PREFIX)
            if not ledger.allows(charge):
                self._remove(key)
                self.shelf.remove(charge)

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

    def _may_try(self, key: str, is_when_due: bool) -> bool:
        """Return whether no attempt before this one, in this flush, holds a report up."""
        now = self.now()
        free = self.pauses.until(ALL, now) <= now if is_when_due else key in self.untried
        return free and self.has_consent()

    def _attempt(self, key: str) -> bool:
        """Send a report; whether it is settled."""
        report = self._sealed(key)
        self.untried.discard(key)
        return report is not None and self._send(key, report)

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
        if answer == NOTHING:  # how many time out one after the other would tell who stayed
            self.untried.clear()
        if report.sending == WHEN_DUE:
            # A service that is away is left alone; a report that it refuses holds up no other.
            away = answer == NOTHING or answer.status == BUSY or answer.status >= 500
            self.pauses.fail(ALL if away else key, self.now(), answer.retry_after)
        self.trouble.warn("sending", "the service did not take a report, which is kept for later")
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
