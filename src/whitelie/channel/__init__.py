"""What corrupts one arm's reward: g, its inverse, its epsilon, the coin flip.

This package needs the standard library only, so that a device can carry it.
"""

from typing import Any

from whitelie.channel.monotone import Monotone
from whitelie.channel.randomized_response import IDENTITY, RandomizedResponse
from whitelie.errors import InvalidInput

__all__ = ["IDENTITY", "Channel", "Monotone", "RandomizedResponse", "channel_from_dict"]

Channel = RandomizedResponse | Monotone


def channel_from_dict(data: Any) -> Channel:
    """Return the channel that a channel's `to_dict` described.

    >>> channel_from_dict(IDENTITY.to_dict()) == IDENTITY
    True
    """
    for kind in (RandomizedResponse, Monotone):
        if isinstance(data, dict) and data.get("kind") == kind.kind:
            try:
                return kind.from_dict(data)
            except (KeyError, TypeError, ValueError) as error:
                if isinstance(error, InvalidInput):
                    raise
                raise InvalidInput(
                    "channel", data, f"not a complete {kind.kind} channel"
                ) from error
    raise InvalidInput("channel", data, 'its "kind" must be "randomized_response" or "monotone"')
