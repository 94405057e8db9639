"""What corrupts one arm's reward: g, its inverse, its epsilon, the coin flip.

This package needs the standard library only, so that a device can carry it.
"""

from collections.abc import Iterable
from typing import Any, cast

from whitelie.channel.mechanism import Mechanism, mechanism_of
from whitelie.channel.menu import Menu, menu
from whitelie.channel.monotone import Monotone
from whitelie.channel.randomized_response import IDENTITY, RandomizedResponse
from whitelie.errors import InvalidInput

__all__ = [
    "IDENTITY",
    "AnyChannel",
    "Channel",
    "Mechanism",
    "Menu",
    "Monotone",
    "RandomizedResponse",
    "channel_from_dict",
    "mechanism_of",
    "menu",
    "of_bits",
]

Channel = RandomizedResponse | Monotone
"""A channel whose reports are bits."""

AnyChannel = Channel | Mechanism | Menu
"""Whatever an arm's reports may come through."""


def of_bits(channels: Iterable[AnyChannel]) -> tuple[Channel, ...]:
    """Return the channels if the reports of all are bits, so that there is a mean feedback."""
    listed = tuple(channels)
    for channel in listed:
        if not isinstance(channel, Channel):
            reason = "its reports are more than bits: give RandomizedResponse or Monotone channels"
            raise InvalidInput("channels", channel, reason)
    return cast(tuple[Channel, ...], listed)


def channel_from_dict(data: Any) -> AnyChannel:
    """Return the channel that a channel's `to_dict` described.

    >>> channel_from_dict(IDENTITY.to_dict()) == IDENTITY
    True
    """
    for kind in (RandomizedResponse, Monotone, Mechanism, Menu):
        if isinstance(data, dict) and data.get("kind") == kind.kind:
            try:
                return kind.from_dict(data)
            except (KeyError, TypeError, ValueError) as error:
                if isinstance(error, InvalidInput):
                    raise
                raise InvalidInput(
                    "channel", data, f"not a complete {kind.kind} channel"
                ) from error
    kinds = '"randomized_response", "monotone", "mechanism" or "menu"'
    raise InvalidInput("channel", data, f'its "kind" must be {kinds}')
