"""What the service answers: an arm to show, a token, and the coin that it proposes."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from whitelie.channel import coin
from whitelie.client.parse import finite, parse

LONGEST = 400 * 24 * 60 * 60
"""The longest time that is believed, in seconds."""

LONGEST_ARM, LONGEST_TOKEN, LONGEST_PAYLOAD = 1_000, 4_096, 65_536
"""Characters: a device does not keep whatever a service sends."""


@dataclass(frozen=True)
class Mechanism:
    """A coin as its two thresholds, and when a report may leave, in seconds."""

    zero: int
    one: int
    window: int
    spread: int

    @classmethod
    def of(cls, p00: float, p11: float, window: int = 0, spread: int = 0) -> Self:
        """Return the mechanism of these probabilities, as the learner reads them."""
        return cls(coin.ONE - coin.threshold(p00), coin.threshold(p11), window, spread)

    @cached_property
    def epsilon(self) -> float:
        """What one report may reveal, never rounded down."""
        return coin.exact_epsilon(self.zero, self.one)

    def bits(self, word0: int, word1: int) -> tuple[int, int]:
        """Return both noisy bits, RR(0) and RR(1), from a secret 64-bit word for each."""
        return int(word0 < self.zero), int(word1 < self.one)

    def delay(self, word: int) -> int:
        """Return the milliseconds from decision to report, from a secret 32-bit word."""
        return 1000 * self.window + (word * 1000 * self.spread >> 32)


@dataclass(frozen=True)
class Decision:
    """One decision of the service."""

    arm: str
    payload: Any
    token: str
    mechanism: Mechanism
    expires_in: int

    @classmethod
    def from_answer(cls, body: bytes) -> Self | None:
        """Return the one decision of an answer, or None if it is not understood."""
        try:
            (found,) = parse(body)["decisions"]
            proposed = found["mechanism"]
            return cls(
                _text(found["arm"], LONGEST_ARM),
                _payload(found.get("payload")),
                _text(found["token"], LONGEST_TOKEN),
                Mechanism.of(
                    _probability(proposed["p00"]),
                    _probability(proposed["p11"]),
                    _seconds(proposed["window"]),
                    _seconds(proposed["spread"]),
                ),
                _seconds(found["expires_in"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise ValueError
    return value


def _payload(value: Any) -> Any:
    if len(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) > LONGEST_PAYLOAD:
        raise ValueError
    return value


def _probability(value: Any) -> float:
    if not 0 <= finite(value) <= 1:
        raise ValueError
    return float(value)


def _seconds(value: Any) -> int:
    if not 0 <= finite(value) <= LONGEST or value != int(value):
        raise ValueError
    return int(value)
