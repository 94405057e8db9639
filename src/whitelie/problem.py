"""A problem: arms with names, hidden mean rewards and channels, and what follows from them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from whitelie.channel import IDENTITY, AnyChannel, channel_from_dict, of_bits
from whitelie.errors import InvalidInput, real_number

Channels = AnyChannel | Sequence[AnyChannel] | Mapping[Any, AnyChannel]


def arm_names(arms: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return the names as a tuple if there are some and all differ, else refuse them."""
    try:
        names = tuple(arms)
        distinct = set(names)
    except TypeError:
        raise InvalidInput("arms", arms, "give a sequence of hashable names") from None
    if not names:
        raise InvalidInput("arms", arms, "at least one arm is needed")
    if len(distinct) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput("arms", twice, "this name is given to two arms")
    return names


def arm_channels(channels: Channels, names: Sequence[Hashable]) -> tuple[AnyChannel, ...]:
    """Return one channel per name, from one for all, one per arm in order, or a mapping by name."""
    if isinstance(channels, AnyChannel):
        return (channels,) * len(names)
    if isinstance(channels, Mapping):
        for name in names:
            if name not in channels:
                raise InvalidInput("channels", name, "this arm has no channel")
        for name in channels:
            if name not in names:
                raise InvalidInput("channels", name, "there is no arm of this name")
        channels = [channels[name] for name in names]
    if not isinstance(channels, Sequence) or len(channels) != len(names):
        raise InvalidInput("channels", channels, f"give one channel, or {len(names)}: one per arm")
    for channel in channels:
        if not isinstance(channel, AnyChannel):
            raise InvalidInput("channels", channel, "not a channel, such as RandomizedResponse")
    return tuple(channels)


@dataclass(frozen=True, init=False)
class Problem:
    """A corrupt bandit problem: hidden mean rewards, known channels (the paper, section 2).

    >>> from whitelie import RandomizedResponse
    >>> problem = Problem({"red": 0.9, "blue": 0.6}, RandomizedResponse(p00=0.75, p11=0.75))
    >>> problem.best, [round(gap, 3) for gap in problem.gaps]
    ('red', [0.0, 0.3])
    >>> [round(mean, 3) for mean in problem.feedback_means]
    [0.7, 0.55]
    """

    names: tuple[Hashable, ...]
    means: tuple[float, ...]
    channels: tuple[AnyChannel, ...]

    def __init__(
        self, means: Sequence[float] | Mapping[Any, float], channels: Channels = IDENTITY
    ) -> None:
        try:
            named: dict[Hashable, float]
            named = dict(means) if isinstance(means, Mapping) else dict(enumerate(means))
        except TypeError:
            raise InvalidInput("means", means, "give a sequence, or {name: mean}") from None
        names = arm_names(tuple(named))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "means", tuple(_mean(name, named[name]) for name in names))
        object.__setattr__(self, "channels", arm_channels(channels, names))

    @property
    def best(self) -> Hashable:
        """The name of an arm with the largest mean reward."""
        return self.names[self.gaps.index(0.0)]

    @property
    def gaps(self) -> tuple[float, ...]:
        """What each pull of an arm costs: the largest mean reward minus the arm's."""
        largest = max(self.means)
        return tuple(largest - mean for mean in self.means)

    @property
    def feedback_means(self) -> tuple[float, ...]:
        """The mean feedback of each arm, g(mean reward)."""
        pairs = zip(of_bits(self.channels), self.means, strict=True)
        return tuple(channel.mean_feedback(mean) for channel, mean in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `from_dict` makes an equal problem, if names are plain."""
        return {
            "names": list(self.names),
            "means": list(self.means),
            "channels": [channel.to_dict() for channel in self.channels],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the problem that `to_dict` described."""
        means = dict(zip(data["names"], data["means"], strict=True))
        return cls(means, [channel_from_dict(channel) for channel in data["channels"]])


def _mean(name: Hashable, value: Any) -> float:
    return real_number(f"means[{name!r}]", value, "a mean reward lies in [0, 1]", least=0, most=1)
