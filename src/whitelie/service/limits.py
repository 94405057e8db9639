"""Limits on how many decisions may be asked for, per key and per address, in memory only.

An address fills its own bucket first, so that one abuser cannot exhaust the key that everybody
shares. Addresses are never stored or logged; even in memory only their hash, under a number that
this process drew when it started, is kept, and of the latest addresses only.
"""

from ipaddress import IPv6Address, ip_network

from whitelie.service.refusal import Refusal
from whitelie.service.store import Key

MOST_BUCKETS = 100_000


class Buckets:
    """Token buckets, each of which holds and regains `per_minute` tokens."""

    def __init__(self) -> None:
        self._levels: dict[int, tuple[float, float]] = {}

    def take(self, name: int, per_minute: int, now: float) -> float:
        """Take a token and return 0, or take none and return for how many seconds to wait."""
        level, then = self._levels.pop(name, (float(per_minute), now))
        passed = max(now - then, 0.0)  # a clock may be set back
        level = min(level + passed * per_minute / 60, per_minute)
        taken = level >= 1
        self._levels[name] = (level - 1 if taken else level), now
        if len(self._levels) > MOST_BUCKETS:
            self._levels.pop(next(iter(self._levels)))  # the one that was used longest ago
        return 0.0 if taken else (1 - level) * 60 / max(per_minute, 1)

    def give_back(self, name: int) -> None:
        """Return a token that was taken in vain."""
        level, then = self._levels[name]
        self._levels[name] = level + 1, then

    def __len__(self) -> int:
        return len(self._levels)


class Limits:
    """The limits of publishable keys."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._addresses = Buckets()
        self._keys = Buckets()

    def charge(self, key: Key, address: str, now: float) -> None:
        """Charge one decision, or refuse it: to the address first, then to the key."""
        name = hash(neighbourhood(address))
        wait = self._addresses.take(name, self._per_address, now)
        if not wait:
            wait = self._keys.take(hash(key.hash), key.decisions_per_minute, now)
            if wait:
                self._addresses.give_back(name)
        if wait:
            raise Refusal(
                "too_many_decisions",
                "this is more than the limit allows; wait, or raise the limit",
                retry_after=int(wait) + 1,
            )


def neighbourhood(address: str) -> str:
    """Return whom an address stands for: itself, or the /64 network that one IPv6 line has.

    >>> neighbourhood("::ffff:192.0.2.7"), neighbourhood("2001:db8:1:2:3:4:5:6")
    ('192.0.2.7', '2001:db8:1:2::/64')
    """
    if ":" not in address:
        return address
    try:
        mapped = IPv6Address(address).ipv4_mapped
        return str(mapped or ip_network((address, 64), strict=False))
    except ValueError:
        return address
