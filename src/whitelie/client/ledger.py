"""What reports have cost, charge by charge, against the most that they may cost together."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from whitelie.client.parse import finite, parse
from whitelie.errors import real_number

CHARGE = "whitelie.charge."
"""What the keys of charges begin with; the id of the report follows."""

EARLIER = "whitelie.ledger"
"""The one item of earlier versions."""

FROM_EARLIER = CHARGE + "ledger"
DAY = 24 * 60 * 60 * 1000
"""In milliseconds."""

KEPT_FOR = 40.0
"""Days for which a charge is kept at least: another client may come with a longer cap.

Not longer: charges say when somebody was here."""

TOLERANCE = 1 + 1e-9
"""Two devices may differ in the last digits of a logarithm and must not differ in what they do."""


@dataclass(frozen=True)
class Cap:
    """The most epsilon that all reports of a device may cost together in the `days` before one.

    It binds the client that has it, and does not stop other clients with larger caps.
    """

    epsilon: float = 10.0
    days: float = 1.0

    def __post_init__(self) -> None:
        for field, least in (("epsilon", 0.0), ("days", 1e-6)):
            reason = f"give a number from {least:g} to 1e6"
            known = real_number(f"cap.{field}", getattr(self, field), reason, least=least, most=1e6)
            object.__setattr__(self, field, known)


@dataclass(frozen=True)
class Charge:
    """What one report cost, when (in milliseconds), and the cap of the client that charged it.

    An infinite epsilon, stored as null, is more than any cap.
    """

    at: float
    epsilon: float
    most: float
    days: float

    @classmethod
    def of(cls, epsilon: float, cap: Cap, now: float) -> Self:
        """Return a charge of now."""
        return cls(now, epsilon, cap.epsilon, cap.days)

    @classmethod
    def from_text(cls, text: str, cap: Cap, now: float) -> Self:
        """Return the charge of a text; what is not understood is more than any cap, of now."""
        try:
            found = parse(text)
            epsilon, limit = found["epsilon"], found["cap"]
            charge = cls(
                _amount(found["at"]),
                math.inf if epsilon is None else float(_amount(epsilon)),
                float(_amount(limit["epsilon"])),
                float(_amount(limit["days"])),
            )
        except (ValueError, TypeError, KeyError):
            return cls.of(math.inf, cap, now)
        return replace(charge, at=min(charge.at, now))  # after now: the clock was set back

    def to_text(self) -> str:
        """Return it as JSON."""
        epsilon = None if math.isinf(self.epsilon) else self.epsilon
        cap = {"epsilon": self.most, "days": self.days}
        return json.dumps({"at": self.at, "epsilon": epsilon, "cap": cap})

    def is_within_cap(self, others: Iterable["Charge"]) -> bool:
        """Return whether it is within its own cap, together with others of the span it ends."""
        start = self.at - self.days * DAY
        spent = sum(other.epsilon for other in others if other.at > start)
        return spent + self.epsilon <= self.most * TOLERANCE


@dataclass(frozen=True)
class Ledger:
    """All charges of a device, by their keys."""

    charges: Mapping[str, Charge]

    @classmethod
    def read(cls, items: Mapping[str, str], cap: Cap, now: float) -> Self:
        """Return all charges among stored texts, as a client with this cap reads them now."""
        return cls(
            {
                key: Charge.from_text(text, cap, now)
                for key, text in items.items()
                if key.startswith(CHARGE)
            }
        )

    @classmethod
    def pruned(
        cls, items: Mapping[str, str], cap: Cap, now: float, waiting: Collection[str] = ()
    ) -> Self:
        """Return what to charge on: with what an earlier version spent, without what is old.

        The charges of reports that wait are kept however old: they may have to give way.
        """
        charges = {**cls.read(items, cap, now).charges}
        if EARLIER in items:
            before = charges[FROM_EARLIER].epsilon if FROM_EARLIER in charges else 0.0
            charges[FROM_EARLIER] = Charge.of(before + _spent(items[EARLIER]), cap, now)
        days = max(KEPT_FOR, cap.days, *(charge.days for charge in charges.values()))
        oldest = now - days * DAY
        return cls(
            {key: charge for key, charge in charges.items() if charge.at > oldest or key in waiting}
        )

    def charged(self, key: str, epsilon: float, cap: Cap, now: float) -> Self | None:
        """Return the ledger with one more charge, or None if that would exceed the cap.

        >>> first = Ledger({}).charged("a", 0.75, Cap(epsilon=1, days=1), 0)
        >>> [first.charged("b", 0.75, Cap(1, 1), at) is not None for at in (DAY - 1, DAY)]
        [False, True]
        """
        charge = Charge.of(epsilon, cap, now)
        if not charge.is_within_cap(self.charges.values()):
            return None
        return type(self)({**self.charges, key: charge})

    def allows(self, key: str) -> bool:
        """Return whether a report may be sent: its charge is within the cap it was made under.

        Of charges that were made at the same instant, unseen by each other, those with the least
        keys are. A report without a charge is one of an earlier version.
        """
        own = self.charges.get(key)
        if own is None:
            return True
        place = _place(key, own)
        return own.is_within_cap(
            charge for other, charge in self.charges.items() if _place(other, charge) < place
        )

    def to_items(self) -> dict[str, str]:
        """Return the texts to store, by their keys."""
        return {key: charge.to_text() for key, charge in self.charges.items()}


def _place(key: str, charge: Charge) -> tuple[bool, float, str]:
    """Return what to sort charges by; what an earlier version spent was spent before all."""
    return key != FROM_EARLIER, charge.at, key


def _spent(text: str) -> float:
    """Return what the item of an earlier version says; what is not understood is infinite."""
    try:
        found = parse(text)
        _amount(found["start"])
        return _amount(found["spent"])
    except (ValueError, TypeError, KeyError):
        return math.inf


def _amount(value: Any) -> float:
    """Return a finite number that is not negative."""
    amount = finite(value)
    if amount < 0:
        raise ValueError
    return amount
