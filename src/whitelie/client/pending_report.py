"""A report that is stored until it is sent: both noisy bits are drawn, one will be sent."""

import json
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

from whitelie.channel.coin import RandomBits
from whitelie.client.decision import ReceivedDecision
from whitelie.client.parse import finite, parse

NEXT_VISIT: Final = "next-visit"
WHEN_DUE: Final = "when-due"
Sending = Literal["next-visit", "when-due"]

REPORT = "whitelie.report."
"""What the keys of stored reports begin with."""

REWARD_PROPAGATION_MS = 1000
"""After this long everybody who shares a storage has seen the last reward."""


@dataclass(frozen=True, kw_only=True)
class PendingReport:
    """What a device stores of a decision until the service has taken the report, or it expires.

    Times are in milliseconds. `bits` are RR(0) and RR(1), `bit` is the one to send. A reward counts
    until `until`. The report is not sent before `earliest`, and after `expires` the service would
    not count it. `sending` says when it is sent; earlier versions did not store it.
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
        decision: ReceivedDecision,
        sending: Sending,
        now: int,
        randbits: RandomBits,
    ) -> Self:
        """Draw both noisy bits and the time of the report, before there is an outcome."""
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

    def at_once(self, time: float) -> Self:
        """Return the report, due no later than a time that the outcome may have set."""
        return replace(self, due=min(self.due, time))

    @property
    def earliest(self) -> float:
        """When it may be sent: at `due`, but not before everybody has seen the last reward."""
        is_at_once = self.due < self.until
        return self.due if is_at_once else max(self.due, self.until + REWARD_PROPAGATION_MS)

    def sealed(self) -> Self:
        """Return the report with one bit left, which no reward can change."""
        return replace(self, bits=(self.bit, self.bit))

    def on_clock(self, now: float) -> Self:
        """Return the report as a clock that was set back needs it: not decided in the future."""
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
        """Parse a report; return None if the text is none. Unknown fields are dropped."""
        try:
            stored = parse(text)
            first, second = map(_bit, stored["bits"])
            bit = _bit(stored["bit"])
            if bit not in (first, second):
                return None
            return cls(
                server=_text(stored["server"]),
                experiment=_text(stored["experiment"]),
                arm=_text(stored["arm"]),
                token=_text(stored["token"]),
                decided=finite(stored["decided"]),
                until=finite(stored["until"]),
                due=finite(stored["due"]),
                expires=finite(stored["expires"]),
                bits=(first, second),
                bit=bit,
                sending=WHEN_DUE if stored.get("sending") == WHEN_DUE else NEXT_VISIT,
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
