"""The client: asks which arm to show, flips the outcome on the device, reports later."""

import json
import numbers
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self
from urllib.parse import quote

from whitelie.channel.coin import RandomBits
from whitelie.client.background import Background
from whitelie.client.decision import ReceivedDecision
from whitelie.client.ledger import CHARGE, LEGACY_LEDGER, TOLERANCE, Cap, Ledger
from whitelie.client.outbox import JSON_HEADERS, Outbox
from whitelie.client.parse import parse
from whitelie.client.pending_report import (
    NEXT_VISIT,
    REPORT,
    WHEN_DUE,
    PendingReport,
    Sending,
    new_id,
)
from whitelie.client.storage import STATE_LOCK, Memory, Storage, StorageAdapter, StorageFailed
from whitelie.client.transport import HTTP, Answer, Transport
from whitelie.client.warn_once import WarnOnce
from whitelie.errors import InvalidInput, real_number

OWN_PREFIX = "whitelie."
STICKY = "whitelie.sticky."


@dataclass(frozen=True)
class Choice:
    """What to show. `reward(1)` says that the outcome was 1; without this call it is 0."""

    arm: str | None
    payload: Any = None
    _rewarded: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def reward(self, value: int = 1) -> None:
        """Say the outcome. The first 1 within the window counts; any other call changes nothing."""
        if _is_one(value) and self._rewarded is not None:
            self._rewarded()


@dataclass(frozen=True, eq=False)
class Client:
    """Stands between a person and the service, and keeps the contract in clients/CONTRACT.md.

    `max_epsilon` is the most that one report may reveal, and `cap` the most that all reports
    together may reveal within a number of days. `min_spread` is the least number of seconds over
    which report times are spread. A decision beyond one of these limits is shown, but not reported.
    `storage` keeps reports until they are sent; give a `Folder`, since memory ends with the
    program. `timeout` is in seconds. `consent` is True, or a function that returns True; without
    consent nothing is stored or sent.

    `flush` sends reports; so does a background thread between `start` and `stop`, or in a `with`
    block. Construct one client in each run of a program, and call one of these right after. A
    report made under `sending="next-visit"` is sent only after such a start, the first one after it
    is due, and is tried once; so its time does not depend on how long somebody stays. A report made
    under `sending="when-due"` is sent as soon as it is due, which is for programs that run whether
    anybody is there or not. With `immediate` a report is sent when its outcome is known, so that
    its time reveals the outcome.

    Failures of the network, the service or the disk are a `WhitelieWarning`, never an exception.
    """

    server: str | Transport
    key: str = field(repr=False)
    _: KW_ONLY
    max_epsilon: float = 1.0
    min_spread: float = 30.0
    cap: Cap = field(default_factory=Cap)
    sending: Sending = NEXT_VISIT
    storage: Storage | None = field(default=None, repr=False)
    timeout: float = 1.0
    consent: bool | Callable[[], bool] = True
    immediate: bool = False
    clock: Callable[[], float] = field(default=time.time, repr=False)
    random_bits_for_tests_only: RandomBits = field(default=secrets.randbits, repr=False)

    _transport: Transport = field(init=False, repr=False)
    _warnings: WarnOnce = field(init=False, repr=False)
    _storage: StorageAdapter = field(init=False, repr=False)
    _outbox: Outbox = field(init=False, repr=False)
    _latest: dict[str, str | None] = field(init=False, repr=False)
    _background: Background = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        transport = HTTP(self.server) if isinstance(self.server, str) else self.server
        if not callable(getattr(transport, "post", None)):
            raise InvalidInput("server", transport, "give an address or a Transport")
        warnings = WarnOnce()
        storage = StorageAdapter(Memory() if self.storage is None else self.storage)
        outbox = Outbox(storage, transport, warnings, self._now, self.timeout, self._has_consent)
        for name, part in {
            "_transport": transport,
            "_warnings": warnings,
            "_storage": storage,
            "_outbox": outbox,
            "_latest": {},
            "_background": Background(outbox, self._now),
        }.items():
            object.__setattr__(self, name, part)
        outbox.start()
        if self._rule == NEXT_VISIT and self.storage is None:
            warnings.warn(
                "memory",
                "reports leave at the next start, and memory ends with this client: give a "
                'storage, or say sending="when-due" where the program runs anyway',
            )
        if self.immediate:
            warnings.warn(
                "immediate",
                "reports leave at once, so that their time reveals the outcome; "
                "do not use `immediate` where the outcome is to stay private",
            )
        if self.random_bits_for_tests_only is not secrets.randbits:
            warnings.warn("randomness", "the bits are not secret: nothing is private in this test")

    def decide(
        self,
        experiment: str,
        *,
        sticky: bool = False,
        force: str | None = None,
        fallback: Choice | None = None,
    ) -> Choice:
        """Return what to show; the fallback if the service does not answer in time.

        `sticky` returns the first choice of this device again. `force` shows an arm for a test,
        without asking the service or reporting to it.
        """
        _check_text("experiment", experiment)
        if fallback is not None and not isinstance(fallback, Choice):
            raise InvalidInput("fallback", fallback, "give a Choice")
        if force is not None:
            _check_text("force", force)
            self._latest[experiment] = None
            return Choice(force)
        if sticky and (kept := self._known_choice(experiment)) is not None:
            return kept
        decision = self._ask(experiment)
        if decision is None:
            self._latest[experiment] = None
            return Choice(None) if fallback is None else Choice(fallback.arm, fallback.payload)
        return self._keep(experiment, decision, sticky)

    def reward(self, experiment: str, value: int = 1) -> None:
        """Say the outcome of the latest decision of an experiment, even of an earlier run."""
        _check_text("experiment", experiment)
        if not _is_one(value):
            return
        if experiment in self._latest:
            key = self._latest[experiment]
        else:
            candidates = [
                (report.decided, key)
                for key, report in self._outbox.waiting()
                if report.experiment == experiment
            ]
            key = max(candidates, default=(0, None))[1]
        if key is not None:
            self._reward(key)

    def flush(self) -> int:
        """Send the reports that may be sent, each by its own rule; return how many are settled.

        A report is settled when the service has counted it, or never will.
        """
        return self._outbox.flush()

    @property
    def next_due(self) -> float | None:
        """When the next report is due, in the clock's seconds; None if there is none.

        A report under `sending="next-visit"` is sent when a client is constructed after that.
        """
        due = self._outbox.next_due()
        return None if due is None else due / 1000

    def forget(self) -> None:
        """Erase everything that clients have stored here: reports, choices, and the ledger.

        The cap then starts again from zero. A report that was sent cannot be recalled.
        """
        self._latest.clear()
        self._outbox.forget()
        failures = []
        try:
            with self._storage.lock(STATE_LOCK):
                for key in self._storage.keys_of(OWN_PREFIX):
                    try:
                        self._storage.remove(key)
                    except StorageFailed as failed:
                        failures.append(failed)
        except StorageFailed as failed:
            failures.append(failed)
        if failures:
            self._warnings.warn(
                "forget",
                f"not everything was erased, because the storage fails ({failures[0]}): mend it "
                "and call forget() again, or erase the storage itself",
            )

    def start(self) -> None:
        """Start a background thread that sends reports as `flush` does."""
        self._background.start()

    def stop(self) -> None:
        """Stop the thread; reports that are not due yet stay in the storage."""
        self._background.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _check(self) -> None:
        if not isinstance(self.key, str) or not re.fullmatch("[!-~]+", self.key):
            raise InvalidInput("key", "(not shown)", "give the text of a publishable key")
        if not isinstance(self.cap, Cap):
            raise InvalidInput("cap", self.cap, "give a Cap(epsilon, days)")
        reason = "give a finite number above 0"
        real_number("max_epsilon", self.max_epsilon, reason, least=5e-324, most=1e6)
        real_number("timeout", self.timeout, reason, least=1e-3, most=1e6)
        reason = "give a number of seconds"
        real_number("min_spread", self.min_spread, reason, least=0, most=1e9)
        if not isinstance(self.consent, bool) and not callable(self.consent):
            raise InvalidInput("consent", self.consent, "give True, False, or a function")
        if self.sending not in (NEXT_VISIT, WHEN_DUE):
            raise InvalidInput("sending", self.sending, f'say "{NEXT_VISIT}" or "{WHEN_DUE}"')
        if not isinstance(self.immediate, bool):
            raise InvalidInput("immediate", self.immediate, "give True or False")

    @property
    def _rule(self) -> Sending:
        return WHEN_DUE if self.immediate else self.sending

    def _now(self) -> int:
        return round(self.clock() * 1000)

    def _ask(self, experiment: str) -> ReceivedDecision | None:
        path = f"/v1/experiments/{quote(experiment, safe='')}/decisions"
        headers = JSON_HEADERS | {"Authorization": f"Bearer {self.key}"}
        try:
            answer = self._transport.post(path, b"{}", headers, self.timeout)
        except Exception:  # a transport of the caller's own may raise anything
            self._warnings.warn(
                "no answer",
                f"no decision from {self._transport.address} within {self.timeout:g} s, "
                "so the fallback is shown; check that the service runs and can be reached",
            )
            return None
        decision = ReceivedDecision.from_answer(answer.body) if answer.status == 200 else None
        if decision is None:
            self._warn_refused(answer)
        return decision

    def _warn_refused(self, answer: Answer) -> None:
        # Only the status is repeated: a service must not write into the program's output.
        is_status = 300 <= answer.status < 600
        said = str(answer.status) if is_status else "something that is no decision"
        self._warnings.warn(
            f"refused {said}",
            f"{self._transport.address} answered {said}, so the fallback is shown; "
            "docs/service.md lists what answers mean",
        )

    def _keep(self, experiment: str, decision: ReceivedDecision, sticky: bool) -> Choice:
        """Store the report on a decision, unless a limit forbids it, and return the choice."""
        consent = self._has_consent()
        within = consent and self._is_within_limits(decision)
        now = self._now()
        key = None
        try:
            with self._storage.lock(STATE_LOCK):
                if sticky and (first := self._sticky(experiment)) is not None:
                    return first  # another process was faster; this decision is never shown
                key = self._stored(experiment, decision, now) if within else None
                if sticky and consent:
                    kept = {
                        "server": self._transport.address,
                        "arm": decision.arm,
                        "payload": decision.payload,
                        "report": None if key is None else key.removeprefix(REPORT),
                    }
                    self._storage.set(STICKY + experiment, json.dumps(kept))
        except StorageFailed as failed:
            self._warnings.warn_storage(failed)
        self._latest[experiment] = key
        self._background.wake()
        return self._choice(decision.arm, decision.payload, key)

    def _stored(self, experiment: str, decision: ReceivedDecision, now: int) -> str | None:
        """Charge and store a report, in this order; return its key, or None if over the cap."""
        number = new_id(self.random_bits_for_tests_only)
        if not self._charge(CHARGE + number, decision.mechanism.epsilon, now):
            return None
        try:
            self._storage.set(REPORT + number, self._report(experiment, decision, now).to_text())
        except StorageFailed:
            with suppress(StorageFailed):  # first the report: its charge must outlive it
                self._storage.remove(REPORT + number)
                self._storage.remove(CHARGE + number)
            raise
        return REPORT + number

    def _report(self, experiment: str, decision: ReceivedDecision, now: int) -> PendingReport:
        randbits, server = self.random_bits_for_tests_only, self._transport.address
        report = PendingReport.draw(server, experiment, decision, self._rule, now, randbits)
        return report.at_once(report.until) if self.immediate else report

    def _has_consent(self) -> bool:
        try:
            given = self.consent() if callable(self.consent) else self.consent
        except Exception as error:
            self._warnings.warn(
                "consent", f"`consent` raised {type(error).__name__}, which counts as no consent"
            )
            return False
        return given is True  # a coroutine that nobody awaited is no consent

    def _is_within_limits(self, decision: ReceivedDecision) -> bool:
        mechanism = decision.mechanism
        if mechanism.epsilon > self.max_epsilon * TOLERANCE:
            self._warnings.warn(
                "epsilon",
                f"a report would reveal epsilon = {mechanism.epsilon:.4g}, so none is sent; "
                f"lower the experiment's epsilon or raise max_epsilon = {self.max_epsilon:g}",
            )
            return False
        if mechanism.spread < self.min_spread:
            self._warnings.warn(
                "spread",
                f"report times would be spread over {mechanism.spread} s only, so none is sent; "
                f"raise the experiment's spread or lower min_spread = {self.min_spread:g}",
            )
            return False
        return True

    def _charge(self, key: str, epsilon: float, now: int) -> bool:
        before = self._storage.items_of(CHARGE, LEGACY_LEDGER)
        waiting = {CHARGE + name.removeprefix(REPORT) for name in self._storage.keys_of(REPORT)}
        ledger = Ledger.pruned(before, self.cap, now, waiting)
        charged = ledger.charged(key, epsilon, self.cap, now)
        after = (charged or ledger).to_items()
        for name in after:
            if after[name] != before.get(name):
                self._storage.set(name, after[name])
        for name in before.keys() - after.keys():
            self._storage.remove(name)
        return charged is not None

    def _known_choice(self, experiment: str) -> Choice | None:
        """Return the sticky choice; if it cannot be read now, it is read again under the lock."""
        try:
            return self._sticky(experiment)
        except StorageFailed as failed:
            self._warnings.warn_storage(failed)
            return None

    def _sticky(self, experiment: str) -> Choice | None:
        text = self._storage.get(STICKY + experiment)
        try:
            kept = parse(text or "null")
            arm, report = kept["arm"], kept.get("report")
        except (ValueError, TypeError, KeyError):
            return None
        address = self._transport.address
        if not isinstance(arm, str) or not arm or kept.get("server", address) != address:
            return None
        key = None if report is None else f"{REPORT}{report}"
        self._latest[experiment] = key
        return self._choice(arm, kept.get("payload"), key)

    def _choice(self, arm: str, payload: Any, key: str | None) -> Choice:
        return Choice(arm, payload, None if key is None else lambda: self._reward(key))

    def _reward(self, key: str) -> None:
        if not self._has_consent():
            return
        now = self._now()
        try:
            with self._storage.lock(STATE_LOCK):
                report = self._outbox.read(key)
                if report is None:
                    return
                # The times stay as they are even if the clock was set back: so they reveal nothing.
                rewarded = replace(report, bit=report.on_clock(now).rewarded(now).bit)
                if self.immediate and report.sending == WHEN_DUE:
                    rewarded = rewarded.at_once(now)
                self._storage.set(key, rewarded.to_text())
        except StorageFailed as failed:
            self._warnings.warn_storage(failed)
        if self.immediate:  # otherwise nothing may happen because of a reward
            self._background.wake()


def _is_one(value: int) -> bool:
    """Return whether an outcome is 1; refuse what is neither 0 nor 1, without repeating it."""
    if not isinstance(value, numbers.Integral) or value not in (0, 1):
        raise InvalidInput("reward", "(not shown)", "a reward is 0 or 1")
    return bool(value == 1)


def _check_text(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise InvalidInput(field, value, "give a text that is not empty")
