"""What reports have cost together in this period, against the most that they may cost."""

import json
import math
from dataclasses import dataclass
from typing import Self

from whitelie.errors import real_number

DAY = 24 * 60 * 60 * 1000
"""In milliseconds."""

TOLERANCE = 1 + 1e-9
"""Two devices may differ in the last digits of a logarithm and must not differ in what they do."""


@dataclass(frozen=True)
class Cap:
    """The most epsilon that all reports of a device may cost together in a period."""

    epsilon: float = 10.0
    days: float = 1.0

    def __post_init__(self) -> None:
        for field, least in (("epsilon", 0.0), ("days", 1e-6)):
            reason = f"give a number from {least:g} to 1e6"
            known = real_number(f"cap.{field}", getattr(self, field), reason, least=least, most=1e6)
            object.__setattr__(self, field, known)


@dataclass(frozen=True)
class Ledger:
    """When the period began, in milliseconds, and what was spent since."""

    start: float = -math.inf
    spent: float = 0.0

    def charged(self, epsilon: float, now: int, cap: Cap) -> tuple[bool, Self]:
        """Return whether a report of this epsilon is within the cap, and the ledger afterwards.

        >>> kept, ledger = Ledger().charged(0.75, 0, Cap(epsilon=1, days=1))
        >>> kept, ledger.charged(0.75, DAY - 1, Cap(1))[0], ledger.charged(0.75, DAY, Cap(1))[0]
        (True, False, True)
        """
        start, spent = min(self.start, now), self.spent  # after now: the clock was set back
        if now >= start + cap.days * DAY:
            start, spent = now, 0.0
        kept = spent + epsilon <= cap.epsilon * TOLERANCE
        return kept, type(self)(start, spent + epsilon if kept else spent)

    def to_text(self) -> str:
        """Return it as JSON."""
        return json.dumps({"start": self.start, "spent": self.spent})

    @classmethod
    def from_text(cls, text: str | None, now: int, cap: Cap) -> Self:
        """Return the ledger of a text, an empty one of none; what is not understood is full."""
        if text is None:
            return cls()
        try:
            found = json.loads(text)
            ledger = cls(float(found["start"]), float(found["spent"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return cls(now, cap.epsilon)
        sound = math.isfinite(ledger.start) and ledger.spent >= 0
        return ledger if sound else cls(now, cap.epsilon)
