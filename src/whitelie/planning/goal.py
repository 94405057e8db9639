"""What a plan is for: to earn from the first day on, or to know the best arm and ship it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from whitelie.certificate import Certificate, Expect
from whitelie.errors import InvalidInput

GOALS = ("earn", "know")

AS_PLANNED: Literal["plan"] = "plan"
"""The expectation of a certificate is the plan's own rate and difference."""


@dataclass(frozen=True)
class Goal:
    """To "earn" as long as the year lasts; or to "know": at the certificate the winner is shipped.

    A plan for earning says, too, when its policy gets the certificate.
    """

    name: Literal["earn", "know"] = "earn"
    certificate: Certificate = field(default_factory=Certificate)

    def __post_init__(self) -> None:
        if self.name not in GOALS:
            reason = 'choose "earn", or "know" for a certificate of the best arm'
            raise InvalidInput("goal", self.name, reason)

    @property
    def ships(self) -> bool:
        """Whether the winner alone is shown from the certificate on."""
        return self.name == "know"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"name": self.name, "certificate": self.certificate.to_dict()}


def expectation(given: Any, base: float, lead: float) -> Expect | None:
    """Return what a certificate expects: what is given, or the plan's own rate and difference.

    Where a certificate cannot expect these (no clicks at all, or a difference as large as the rate
    varies), it expects nothing.

    >>> expectation("plan", 0.05, 0.06 - 0.05)
    Expect(rate=0.05, difference=0.01)
    """
    if given != AS_PLANNED:
        if isinstance(given, str):
            reason = f'give a rate and a difference, "{AS_PLANNED}" for those of the plan, or None'
            raise InvalidInput("expect", given, reason)
        return Expect.of(given)
    try:
        return Expect(rate=float(f"{base:.12g}"), difference=float(f"{lead:.12g}"))
    except InvalidInput:
        return None
