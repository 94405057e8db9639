"""A report that waits: both noisy bits are drawn, one of them will be sent."""

import json
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, Self

from whitelie.channel.coin import RandomBits
from whitelie.client.decision import Decision
from whitelie.client.parse import finite, parse

NEXT_VISIT: Final = "next-visit"
WHEN_DUE: Final = "when-due"
Sending = Literal["next-visit", "when-due"]

PREFIX = "whitelie.report."
UNSEEN = 1000
"""Milliseconds after which everybody who shares a storage has seen the last reward."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is stored of a decision until its report is settled. Times are in milliseconds.

    `bits` are RR(0) and RR(1), `bit` is the one to send. A reward counts until `until`, nothing
    leaves before `earliest`, and after `expires` the service would not count it. `sending` is the
    rule by which it leaves; earlier versions did not store one.
    """

    server: str
    experiment: str
    arm: str
    token: str
    bits: tuple[int, int]
    bit: int
    decided: float
    until: float
    due: float
    expires: float
    sending: Sending = NEXT_VISIT

    @classmethod
    def draw(
        cls,
        server: str,
        experiment: str,
        decision: Decision,
        sending: Sending,
        now: int,
        randbits: RandomBits,
    ) -> Self:
        """Flip both outcomes and draw the time, before there is an outcome."""
        mechanism = decision.mechanism
        bits = mechanism.bits(randbits(64), randbits(64))
        return cls(
            server=server,
            experiment=experiment,
            arm=decision.arm,
            token=decision.token,
            bits=bits,
            bit=bits[0],
            decided=now,
            until=now + 1000 * mechanism.window,
            due=now + mechanism.delay(randbits(32)),
            expires=now + 1000 * decision.expires_in,
            sending=sending,
        )

    def rewarded(self, now: float) -> Self:
        """Return the report after an outcome of 1, which counts within the window."""
        return replace(self, bit=self.bits[1]) if now <= self.until else self

    def at_once(self, moment: float) -> Self:
        """Return the report, due at a moment that the outcome may have set."""
        return replace(self, due=min(self.due, moment))

    @property
    def earliest(self) -> float:
        """When it may leave: `due`, and not before everybody has seen the last reward."""
        is_at_once = self.due < self.until
        return self.due if is_at_once else max(self.due, self.until + UNSEEN)

    def sealed(self) -> Self:
        """Return the report with one bit left: no reward changes it any more."""
        return replace(self, bits=(self.bit, self.bit))

    def on_clock(self, now: float) -> Self:
        """Return the report as a clock that was set back shows it: not decided in the future."""
        ahead = self.decided - now
        if ahead <= 0:
            return self
        return replace(
            self,
            decided=now,
            until=self.until - ahead,
            due=self.due - ahead,
            expires=self.expires - ahead,
        )

    def to_text(self) -> str:
        """Return it as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Return the report of a text, or None if it is not one; other fields are dropped."""
        try:
            found = parse(text)
            known = {field.name: found[field.name] for field in fields(cls)[:-1]}
            is_when_due = found.get("sending") == WHEN_DUE
            first, second = known["bits"]
            known |= {"bits": (first, second), "sending": WHEN_DUE if is_when_due else NEXT_VISIT}
            report = cls(**known)
            report._check()
        except (ValueError, TypeError, KeyError):
            return None
        return report

    def _check(self) -> None:
        texts: tuple[Any, ...] = (self.server, self.experiment, self.arm, self.token)
        bits = [finite(bit) for bit in (*self.bits, self.bit)]
        for time in (self.decided, self.until, self.due, self.expires):
            finite(time)
        is_sound = all(isinstance(text, str) for text in texts) and {*bits} <= {0, 1}
        if not (is_sound and self.bit in self.bits):
            raise ValueError


def new_id(randbits: RandomBits) -> str:
    """Return 24 random hexadecimal digits."""
    return f"{randbits(96):024x}"
