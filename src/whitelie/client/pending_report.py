"""A report that waits: both noisy bits are drawn, one of them will be sent."""

import json
from dataclasses import dataclass, replace
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
            first, second = map(_bit, found["bits"])
            bit = _bit(found["bit"])
            if bit not in (first, second):
                return None
            return cls(
                server=_text(found["server"]),
                experiment=_text(found["experiment"]),
                arm=_text(found["arm"]),
                token=_text(found["token"]),
                decided=finite(found["decided"]),
                until=finite(found["until"]),
                due=finite(found["due"]),
                expires=finite(found["expires"]),
                bits=(first, second),
                bit=bit,
                sending=WHEN_DUE if found.get("sending") == WHEN_DUE else NEXT_VISIT,
            )
        except (ValueError, TypeError, KeyError):
            return None


def _bit(value: Any) -> int:
    if finite(value) not in (0, 1):
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def new_id(randbits: RandomBits) -> str:
    """Return 24 random hexadecimal digits."""
    return f"{randbits(96):024x}"
