"""A decision as the client receives it: an arm to show, a token, and the proposed coin."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from whitelie.channel import coin
from whitelie.client.parse import finite, parse

MAX_DURATION_SECONDS = 400 * 24 * 60 * 60
"""The longest duration that a client accepts from a service."""

MAX_ARM_CHARACTERS, MAX_TOKEN_CHARACTERS, MAX_PAYLOAD_CHARACTERS = 1_000, 4_096, 65_536
"""A device does not store whatever a service sends."""


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
class ReceivedDecision:
    """One decision of the service, checked."""

    arm: str
    payload: Any
    token: str
    mechanism: Mechanism
    expires_in: int

    @classmethod
    def from_answer(cls, body: bytes) -> Self | None:
        """Return the only decision of an answer, or None if the answer is not understood."""
        try:
            (answer,) = parse(body)["decisions"]
            proposed = answer["mechanism"]
            return cls(
                _text(answer["arm"], MAX_ARM_CHARACTERS),
                _payload(answer.get("payload")),
                _text(answer["token"], MAX_TOKEN_CHARACTERS),
                Mechanism.of(
                    _probability(proposed["p00"]),
                    _probability(proposed["p11"]),
                    _seconds(proposed["window"]),
                    _seconds(proposed["spread"]),
                ),
                _seconds(answer["expires_in"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ValueError
    return value


def _payload(value: Any) -> Any:
    if len(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) > MAX_PAYLOAD_CHARACTERS:
        raise ValueError
    return value


def _probability(value: Any) -> float:
    if not 0 <= finite(value) <= 1:
        raise ValueError
    return float(value)


def _seconds(value: Any) -> int:
    if not 0 <= finite(value) <= MAX_DURATION_SECONDS or value != int(value):
        raise ValueError
    return int(value)
