"""The ledger of a device: what each report cost in epsilon, and the cap on their sum."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from whitelie.client.parse import finite, parse
from whitelie.errors import real_number

CHARGE = "whitelie.charge."
"""What the keys of stored charges begin with; the id of the report follows."""

LEGACY_LEDGER = "whitelie.ledger"
"""The key under which earlier versions stored one sum instead of charges."""

FROM_LEGACY_LEDGER = CHARGE + "ledger"
DAY_MS = 24 * 60 * 60 * 1000

MIN_RETENTION_DAYS = 40.0
"""How long a charge is stored at least, since another client may have a cap over more days.

It is not stored longer, since charges reveal when somebody was here."""

TOLERANCE = 1 + 1e-9
"""Two devices may differ in the last digits of a logarithm, but must decide the same."""


@dataclass(frozen=True)
class Cap:
    """The most epsilon that all reports of a device may cost together in the `days` before one.

    It limits the client that has it, and no other client of the device.
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
        """Return a charge made now."""
        return cls(now, epsilon, cap.epsilon, cap.days)

    @classmethod
    def from_text(cls, text: str, cap: Cap, now: float) -> Self:
        """Parse a charge; a text that is none counts as an infinite charge made now."""
        try:
            stored = parse(text)
            epsilon, limit = stored["epsilon"], stored["cap"]
            charge = cls(
                _amount(stored["at"]),
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
        """Return whether it is within its cap, with the other charges of the days before it."""
        start = self.at - self.days * DAY_MS
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
        """Return the charges that count: with those of earlier versions, without old ones.

        Charges of `waiting` reports are kept however old they are: the report may still turn out to
        exceed its cap.
        """
        charges = {**cls.read(items, cap, now).charges}
        if LEGACY_LEDGER in items:
            before = charges[FROM_LEGACY_LEDGER].epsilon if FROM_LEGACY_LEDGER in charges else 0.0
            charges[FROM_LEGACY_LEDGER] = Charge.of(before + _spent(items[LEGACY_LEDGER]), cap, now)
        days = max(MIN_RETENTION_DAYS, cap.days, *(charge.days for charge in charges.values()))
        oldest = now - days * DAY_MS
        return cls(
            {key: charge for key, charge in charges.items() if charge.at > oldest or key in waiting}
        )

    def charged(self, key: str, epsilon: float, cap: Cap, now: float) -> Self | None:
        """Return the ledger with one more charge, or None if that would exceed the cap.

        >>> first = Ledger({}).charged("a", 0.75, Cap(epsilon=1, days=1), 0)
        >>> [first.charged("b", 0.75, Cap(1, 1), at) is not None for at in (DAY_MS - 1, DAY_MS)]
        [False, True]
        """
        charge = Charge.of(epsilon, cap, now)
        if not charge.is_within_cap(self.charges.values()):
            return None
        return type(self)({**self.charges, key: charge})

    def allows(self, key: str) -> bool:
        """Return whether a report may be sent: its charge is within the cap it was made under.

        Two tabs may charge at the same instant without seeing each other's charge. Then the charges
        count in the order of their keys. A report without a charge is one of an earlier version.
        """
        own = self.charges.get(key)
        if own is None:
            return True
        own_key = _sort_key(key, own)
        return own.is_within_cap(
            charge for other, charge in self.charges.items() if _sort_key(other, charge) < own_key
        )

    def to_items(self) -> dict[str, str]:
        """Return the texts to store, by their keys."""
        return {key: charge.to_text() for key, charge in self.charges.items()}


def _sort_key(key: str, charge: Charge) -> tuple[bool, float, str]:
    """Return the sort key of a charge; that of an earlier version comes first."""
    return key != FROM_LEGACY_LEDGER, charge.at, key


def _spent(text: str) -> float:
    """Return the sum that an earlier version stored; infinite if it is not understood."""
    try:
        stored = parse(text)
        _amount(stored["start"])
        return _amount(stored["spent"])
    except (ValueError, TypeError, KeyError):
        return math.inf


def _amount(value: Any) -> float:
    """Return a finite number that is not negative."""
    amount = finite(value)
    if amount < 0:
        raise ValueError
    return amount
