"""A report that waits: both noisy bits are drawn, one of them will be sent."""

import json
from dataclasses import dataclass, replace
from typing import Any, Self

from whitelie.channel.coin import RandomBits
from whitelie.client.decision import Decision

PREFIX = "whitelie.report."
UNSEEN = 1000
"""Milliseconds after which everybody who shares a storage has seen the last reward."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is stored of a decision until its report is settled. Times are in milliseconds.

    `bits` are RR(0) and RR(1), `bit` is the one to send. A reward counts until `until`, nothing
    leaves before `earliest`, and after `expires` the service would not count it.
    """

    server: str
    experiment: str
    arm: str
    token: str
    bits: tuple[int, int]
    bit: int
    decided: int
    until: int
    due: int
    expires: int

    @classmethod
    def draw(
        cls, server: str, experiment: str, decision: Decision, now: int, randbits: RandomBits
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
        )

    def rewarded(self, now: int) -> Self:
        """Return the report after an outcome of 1, which counts within the window."""
        return replace(self, bit=self.bits[1]) if now <= self.until else self

    def at_once(self, moment: int) -> Self:
        """Return the report, due at a moment that the outcome may have set."""
        return replace(self, due=min(self.due, moment))

    @property
    def earliest(self) -> int:
        """When it may leave: `due`, and not before everybody has seen the last reward."""
        is_at_once = self.due < self.until
        return self.due if is_at_once else max(self.due, self.until + UNSEEN)

    def sealed(self) -> Self:
        """Return the report with one bit left: no reward changes it any more."""
        return replace(self, bits=(self.bit, self.bit))

    def on_clock(self, now: int) -> Self:
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
        """Return the report of a text, or None if it is not one."""
        try:
            found = json.loads(text)
            report = cls(**{**found, "bits": tuple(found["bits"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return report if report._is_sound() else None

    def _is_sound(self) -> bool:
        texts = (self.server, self.experiment, self.arm, self.token)
        times = (self.decided, self.until, self.due, self.expires)
        bits: tuple[Any, ...] = (*self.bits, self.bit)
        return (
            all(isinstance(text, str) for text in texts)
            and all(type(time) is int for time in times)
            and len(bits) == 3
            and all(type(bit) is int and bit in (0, 1) for bit in bits)
            and self.bit in self.bits
        )


def new_id(randbits: RandomBits) -> str:
    """Return 24 random hexadecimal digits."""
    return f"{randbits(96):024x}"
