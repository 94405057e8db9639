"""A finite mechanism: the device reports one of several outputs, with known probabilities."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Self

from whitelie.channel import coin
from whitelie.channel.randomized_response import RandomizedResponse, probability
from whitelie.errors import InvalidInput

MOST_OUTPUTS = 64
SUM_TOLERANCE = 1e-9
"""How far a column of probabilities may be from a sum of 1 before it is refused."""


@dataclass(frozen=True, init=False)
class Mechanism:
    """Reports output y with probability zero[y] if the reward is 0, and one[y] if it is 1.

    The two columns are whole numbers of 2^-64ths, each with the sum 2^64: what is drawn, what the
    learner assumes and what epsilon is computed from are the same numbers. Randomised response is
    the case of two outputs.

    >>> shy = Mechanism(zero=[0.5, 0.2, 0.3], one=[0.2, 0.5, 0.3])  # the third says nothing
    >>> round(shy.epsilon, 6), shy.outputs, round(shy.slope, 6)
    (0.916291, 3, 0.3)
    """

    zero: tuple[int, ...]
    one: tuple[int, ...]

    kind: ClassVar[str] = "mechanism"

    def __init__(self, zero: Sequence[float], one: Sequence[float]) -> None:
        columns = [_units(name, column) for name, column in (("zero", zero), ("one", one))]
        self._set(*columns)

    @classmethod
    def from_units(cls, zero: Sequence[int], one: Sequence[int]) -> Self:
        """Return the mechanism of two columns of whole 2^-64ths, each with the sum 2^64."""
        for name, column in (("zero", zero), ("one", one)):
            whole = all(isinstance(unit, int) and not isinstance(unit, bool) for unit in column)
            if not whole or any(unit < 0 for unit in column) or sum(column) != coin.ONE:
                raise InvalidInput(name, column, "give whole numbers from 0 with the sum 2^64")
        made = cls.__new__(cls)
        made._set(tuple(zero), tuple(one))
        return made

    def _set(self, zero: tuple[int, ...], one: tuple[int, ...]) -> None:
        if len(zero) != len(one):
            raise InvalidInput("one", len(one), f"it has as many outputs as zero: {len(zero)}")
        if not 2 <= len(zero) <= MOST_OUTPUTS:
            raise InvalidInput("zero", len(zero), f"give from 2 to {MOST_OUTPUTS} outputs")
        for place, (of_zero, of_one) in enumerate(zip(zero, one, strict=True)):
            if of_zero == of_one == 0:
                raise InvalidInput("zero", place, "this output never comes: leave it out")
        if zero == one:
            reason = "equal columns say nothing about the reward: nothing can be learned"
            raise InvalidInput("one", [unit / coin.ONE for unit in one], reason)
        object.__setattr__(self, "zero", zero)
        object.__setattr__(self, "one", one)

    @classmethod
    def prefer_not_to_say(cls, channel: RandomizedResponse, silent: float) -> Self:
        """Return a ternary design: with probability `silent` nothing is said, else as `channel`.

        Silence does not depend on the reward, so epsilon is the channel's.
        """
        quiet = probability("silent", silent)
        if quiet == 1:
            raise InvalidInput("silent", silent, "if nobody says anything, nothing can be learned")
        rows = [
            (*((1 - quiet) * p for p in said), quiet)
            for said in ((channel.p00, 1 - channel.p00), (1 - channel.p11, channel.p11))
        ]
        return cls(*rows) if quiet else cls(*(row[:2] for row in rows))

    def with_loss(self, lost0: float, lost1: float) -> Self:
        """Return what arrives if a reward of 0 is lost with probability lost0, and 1 with lost1.

        The last output is "nothing came". Loss that depends on the reward reveals it: epsilon is
        that of what arrives.

        >>> Mechanism(zero=[0.75, 0.25], one=[0.25, 0.75]).with_loss(0.2, 0.2).outputs
        3
        """
        columns = []
        for name, lost, column in (("lost0", lost0, self.zero), ("lost1", lost1, self.one)):
            share = probability(name, lost)
            if share == 1:
                raise InvalidInput(name, lost, "if all of it is lost, nothing can be learned")
            columns.append([*((1 - share) * unit / coin.ONE for unit in column), share])
        if lost0 == lost1 == 0:
            return self
        return type(self)(*columns)

    @property
    def outputs(self) -> int:
        """How many outputs there are; they are numbered from 0."""
        return len(self.zero)

    @cached_property
    def cells(self) -> tuple[tuple[float, float], ...]:
        """P(output | reward 0) and P(output | reward 1) of every output."""
        return tuple((a / coin.ONE, b / coin.ONE) for a, b in zip(self.zero, self.one, strict=True))

    @cached_property
    def slope(self) -> float:
        """The total variation distance of the columns: that of the binary channel inside."""
        pairs = zip(self.zero, self.one, strict=True)
        return sum(max(of_one - of_zero, 0) for of_zero, of_one in pairs) / coin.ONE

    @cached_property
    def epsilon(self) -> float:
        """The local differential privacy of one report: the largest |ln| over all outputs."""
        pairs = zip(self.zero, self.one, strict=True)
        return max(coin.log_ratio(max(pair), min(pair)) for pair in pairs)

    def flip(self, reward: float, *, randbits: coin.RandomBits = secrets.randbits) -> int:
        """Return the number of an output, drawn for one reward in [0, 1].

        A reward strictly between 0 and 1 is rounded at random and randomised in one draw.
        `randbits(n)` must return n secret uniform bits; replace it in tests only. The bits are
        drawn before the reward is read, and all outputs are compared with them.
        """
        word = randbits(128)
        try:
            known = probability("reward", int(reward) if isinstance(reward, bool) else reward)
        except InvalidInput:
            raise InvalidInput("reward", "(not shown)", "a reward lies in [0, 1]") from None
        # Below the sum of the last outputs' probabilities lies one of these: of two, 1 as of a bit.
        last = zip(accumulate(self.zero[:0:-1]), accumulate(self.one[:0:-1]), strict=True)
        return sum(coin.flip(zero, one, known, word) for zero, one in last)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `channel_from_dict` makes an equal channel."""
        return {"kind": self.kind, "zero": list(self.zero), "one": list(self.one)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the channel that `to_dict` described."""
        return cls.from_units(data["zero"], data["one"])


def mechanism_of(channel: "RandomizedResponse | Mechanism") -> Mechanism:
    """Return a channel as a mechanism; of randomised response, the outputs are 0 and 1.

    >>> mechanism_of(RandomizedResponse.from_epsilon(1)).epsilon <= 1
    True
    """
    if isinstance(channel, Mechanism):
        return channel
    zero, one = channel.thresholds
    return Mechanism.from_units((coin.ONE - zero, zero), (coin.ONE - one, one))


def _units(name: str, column: Sequence[float]) -> tuple[int, ...]:
    """Return probabilities as whole 2^-64ths with the sum 2^64; the largest takes what is left."""
    try:
        shares = [probability(f"{name}[{place}]", share) for place, share in enumerate(column)]
    except TypeError:
        raise InvalidInput(name, column, "give a sequence of probabilities") from None
    if not shares or abs(sum(shares) - 1) > SUM_TOLERANCE:
        raise InvalidInput(name, column, f"the probabilities sum to {sum(shares):g}, not to 1")
    units = [max(round(share * 2.0**64), 1 if share else 0) for share in shares]
    largest = max(range(len(units)), key=units.__getitem__)
    units[largest] += coin.ONE - sum(units)
    return tuple(units)
