"""A menu of mechanisms: each person chooses how much privacy their report has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from whitelie.channel.mechanism import Mechanism, mechanism_of
from whitelie.channel.randomized_response import RandomizedResponse
from whitelie.errors import InvalidInput, real_number

MOST_CHOICES = 8
"""A choice tells people apart, so a menu is short."""

SHARE_TOLERANCE = 1e-9


@dataclass(frozen=True, init=False)
class Menu:
    """Mechanisms among which each person chooses, before the arm and the reward are known.

    A report is (choice, output). The learner needs no shares of people: the likelihood weighs every
    report by what its mechanism tells. `shares` say how many choose each; simulations and bounds
    use them.

    >>> offer = menu({0.25: 0.5, 4: 0.5})
    >>> offer.choice_for(1.0), offer.choice_for(10), offer.choice_for(0.1)
    (0, 1, None)
    >>> round(offer.epsilon, 6)
    4.0
    """

    mechanisms: tuple[Mechanism, ...]
    shares: tuple[float, ...]

    kind: ClassVar[str] = "menu"

    def __init__(
        self,
        mechanisms: Iterable[Any],
        shares: Iterable[float] | None = None,
    ) -> None:
        offered = tuple(mechanisms)
        for one in offered:
            if not isinstance(one, RandomizedResponse | Mechanism):
                raise InvalidInput("menu", one, "offer mechanisms, or numbers epsilon: share")
        if not 1 <= len(offered) <= MOST_CHOICES:
            raise InvalidInput("menu", len(offered), f"offer from 1 to {MOST_CHOICES} mechanisms")
        listed = tuple(map(mechanism_of, offered))
        if len(set(listed)) < len(listed):
            raise InvalidInput("menu", offered, "two of these mechanisms are the same")
        object.__setattr__(self, "mechanisms", listed)
        object.__setattr__(self, "shares", _shares(shares, len(listed)))

    @cached_property
    def epsilon(self) -> float:
        """The local differential privacy of a report for whoever chooses the least private one.

        The choice does not depend on the reward, so it adds nothing.
        """
        return max(one.epsilon for one in self.mechanisms)

    @cached_property
    def cells(self) -> tuple[tuple[float, float], ...]:
        """The cells of all mechanisms in order, each given its choice."""
        return tuple(cell for one in self.mechanisms for cell in one.cells)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first cell of each choice."""
        starts = [0]
        for one in self.mechanisms[:-1]:
            starts.append(starts[-1] + one.outputs)
        return tuple(starts)

    def choice_for(self, limit: float) -> int | None:
        """Return the most informative choice whose epsilon is at most the limit, or None.

        It depends on the limit and the menu alone, so it says nothing of arm or reward.
        """
        allowed = [
            choice
            for choice, one in enumerate(self.mechanisms)
            if one.epsilon <= limit * (1 + 1e-9)
        ]
        return max(allowed, key=lambda choice: self.mechanisms[choice].slope, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `channel_from_dict` makes an equal menu."""
        mechanisms = [one.to_dict() for one in self.mechanisms]
        return {"kind": self.kind, "mechanisms": mechanisms, "shares": list(self.shares)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the menu that `to_dict` described."""
        return cls(map(Mechanism.from_dict, data["mechanisms"]), data["shares"])


def menu(offer: Mapping[float, float]) -> Menu:
    """Return the menu of symmetric randomised responses {epsilon: share of people}.

    >>> [round(one.epsilon, 6) for one in menu({0.25: 0.2, 1: 0.5, 4: 0.3}).mechanisms]
    [0.25, 1.0, 4.0]
    """
    if not isinstance(offer, Mapping):
        raise InvalidInput("menu", offer, "give {epsilon: share of people}")
    return Menu(map(RandomizedResponse.from_epsilon, offer), offer.values())


def _shares(shares: Iterable[float] | None, count: int) -> tuple[float, ...]:
    if shares is None:
        return (1 / count,) * count
    reason = "a share of people lies above 0 and is at most 1"
    listed = [real_number("share", share, reason, least=0, most=1) for share in shares]
    if len(listed) != count:
        raise InvalidInput("shares", listed, f"give one for each of {count} mechanisms")
    if 0 in listed:
        raise InvalidInput("shares", listed, reason)
    if abs(sum(listed) - 1) > SHARE_TOLERANCE:
        raise InvalidInput("shares", listed, f"they sum to {sum(listed):g}, not to 1")
    return tuple(listed)
