"""Limits on how many decisions may be asked for, per key and per address, in memory only.

An address fills its own bucket first, so that one abuser cannot exhaust the key that everybody
shares. Whoever has one IPv6 address has many: a line has a /64 network, a site a /56 or /48. So an
IPv6 address counts as its /64, and the networks around it have limits too, each larger than the one
within.

Many addresses can still ask for more together than a key may give. When little is left of a key,
those who took most of late are refused first: with a share s left of what is called scarce, a
network that has taken s times its limit or more gets nothing. Hence N networks that ask without end
settle at an equal part each, 1/N of the key's limit, and whoever asks for less than that is served.
What this cannot do: from addresses without end, each of which asks once, nobody can tell visitors.

Addresses are never stored or logged; even in memory only their hash, under a number that this
process drew when it started, is kept, and of the latest addresses only.
"""

from ipaddress import IPv6Address
from math import exp, log
from typing import NamedTuple

from whitelie.service.refusal import Refusal
from whitelie.service.store import Key

MOST_BUCKETS = 100_000

NETWORKS = (64, 1), (56, 4), (48, 16)
"""Bits of the networks around an IPv6 address, and how many times one address's limit each has."""

SCARCE = 0.25
"""A key is scarce when less than this share of a minute's decisions is left."""

MEMORY = 60.0
"""Seconds in which what somebody took fades to 1/e: who asks evenly has taken a minute's worth."""


class Bucket(NamedTuple):
    """What may be taken at once, what was taken of late, and when this was so."""

    level: float
    taken: float
    then: float


class Buckets:
    """Token buckets, each of which holds and regains `per_minute` tokens."""

    def __init__(self) -> None:
        self._kept: dict[int, Bucket] = {}

    def look(self, name: int, per_minute: int, now: float) -> Bucket:
        """Return a bucket as it is now; one that is not known is full."""
        found = self._kept.get(name)
        if found is None:
            return Bucket(float(per_minute), 0.0, now)
        passed = max(now - found.then, 0.0)  # a clock may be set back
        level = min(found.level + passed * per_minute / 60, per_minute)
        return Bucket(level, found.taken * exp(-passed / MEMORY), now)

    def take(self, name: int, bucket: Bucket) -> None:
        """Take a token from a bucket that was looked at."""
        self._keep(name, Bucket(bucket.level - 1, bucket.taken + 1, bucket.then))

    def touch(self, name: int, bucket: Bucket) -> None:
        """Keep what is known in mind: whoever is refused and asks on must not be forgotten."""
        if name in self._kept:
            self._keep(name, bucket)

    def _keep(self, name: int, bucket: Bucket) -> None:
        self._kept.pop(name, None)
        self._kept[name] = bucket
        if len(self._kept) > MOST_BUCKETS:
            self._kept.pop(next(iter(self._kept)))  # the one that was used longest ago

    def __len__(self) -> int:
        return len(self._kept)


class Limits:
    """The limits of publishable keys."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._addresses = Buckets()
        self._keys = Buckets()

    def charge(self, key: Key, address: str, now: float) -> None:
        """Charge one decision to an address, the networks around it and the key, or refuse it."""
        asked, per_minute = hash(key.hash), key.decisions_per_minute
        left = self._keys.look(asked, per_minute, now)
        share = left.level / max(SCARCE * per_minute, 1.0)
        wait = _wait_for_one(left, per_minute)
        looked = []
        for network, (_, times) in zip(networks(address), NETWORKS, strict=False):
            name, per_minute = hash(network), times * self._per_address
            bucket = self._addresses.look(name, per_minute, now)
            looked.append((name, bucket))
            wait = max(wait, _wait_for_one(bucket, per_minute))
            if share < 1:
                wait = max(wait, _wait_until_modest(bucket, share * per_minute))
        if wait:
            self._keys.touch(asked, left)
            for name, bucket in looked:
                self._addresses.touch(name, bucket)
            raise Refusal(
                "too_many_decisions",
                "this is more than the limit allows; wait, or raise the limit",
                retry_after=int(wait) + 1,
            )
        self._keys.take(asked, left)
        for name, bucket in looked:
            self._addresses.take(name, bucket)


def _wait_for_one(bucket: Bucket, per_minute: int) -> float:
    """Return in how many seconds there is a token to take."""
    return max(1 - bucket.level, 0.0) * 60 / max(per_minute, 1)


def _wait_until_modest(bucket: Bucket, allowed: float) -> float:
    """Return in how many seconds less than this was taken of late, if nobody takes more."""
    if bucket.taken < allowed:
        return 0.0
    return min(MEMORY * log(bucket.taken / allowed), MEMORY) if allowed > 0 else MEMORY


def networks(address: str) -> tuple[bytes, ...]:
    """Return whom an address stands for: itself, or the networks around it from the smallest.

    >>> networks("::ffff:192.0.2.7"), networks("2001:db8:1:2:3:4:5:6")[0].hex(":", 2)
    ((b'192.0.2.7',), '2001:0db8:0001:0002')
    """
    try:
        found = IPv6Address(address) if ":" in address else None
    except ValueError:
        found = None
    if found is None:
        return (address.encode(),)
    if found.ipv4_mapped:
        return (str(found.ipv4_mapped).encode(),)
    return tuple(found.packed[: bits // 8] for bits, _ in NETWORKS)
