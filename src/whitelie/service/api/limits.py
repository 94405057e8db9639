"""Rate limits on decisions, per key and per address, as token buckets in memory.

A token bucket holds as many tokens as a minute allows, regains them evenly, and loses one for every
decision. (These tokens have nothing to do with the tokens of decisions.)

An address has a bucket of its own, so that one abuser cannot exhaust the key that everybody shares.
Whoever has one IPv6 address has many: an access line has a /64 network, a site a /56 or /48. So an
IPv6 address counts as its /64, and the networks around it have limits too, each larger than the one
within.

Many addresses together can still ask for more than a key may give. When a key runs low, those who
took most lately are refused first: with a share s left of what counts as scarce, a network that has
taken s times its limit or more gets nothing. Hence N networks that ask without end settle at an
equal part each, 1/N of the key's limit, and whoever asks for less than that is served. This does
not help against an unlimited number of addresses that ask once each: nobody can tell these from
visitors.

Addresses are never stored or logged. Even in memory there is only their hash, under a number that
this process drew when it started, and only of the latest addresses.
"""

from ipaddress import IPv6Address
from math import exp, log
from typing import NamedTuple

from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Key

MAX_BUCKETS = 100_000

NETWORKS = (64, 1), (56, 4), (48, 16)
"""Bits of the networks around an IPv6 address, and how many times one address's limit each has."""

SCARCE_SHARE = 0.25
"""A key is scarce when less than this share of a minute's decisions is left."""

DECAY_SECONDS = 60.0
"""In this time `taken` decays to 1/e, so that a steady caller has taken a minute's worth."""


class Bucket(NamedTuple):
    """Tokens that may be taken at once, tokens taken lately, and the time of both."""

    level: float
    taken: float
    then: float


class Buckets:
    """Token buckets by name; the longest unused are forgotten."""

    def __init__(self) -> None:
        self._kept: dict[int, Bucket] = {}

    def look(self, name: int, per_minute: int, now: float) -> Bucket:
        """Return a bucket as it is now; an unknown one is full."""
        bucket = self._kept.get(name)
        if bucket is None:
            return Bucket(float(per_minute), 0.0, now)
        passed = max(now - bucket.then, 0.0)  # a clock may be set back
        level = min(bucket.level + passed * per_minute / 60, per_minute)
        return Bucket(level, bucket.taken * exp(-passed / DECAY_SECONDS), now)

    def take(self, name: int, bucket: Bucket) -> None:
        """Take a token from a bucket that `look` returned."""
        self._keep(name, Bucket(bucket.level - 1, bucket.taken + 1, bucket.then))

    def touch(self, name: int, bucket: Bucket) -> None:
        """Mark a bucket as used: a caller who is refused and asks on must not be forgotten."""
        if name in self._kept:
            self._keep(name, bucket)

    def _keep(self, name: int, bucket: Bucket) -> None:
        self._kept.pop(name, None)
        self._kept[name] = bucket
        if len(self._kept) > MAX_BUCKETS:
            self._kept.pop(next(iter(self._kept)))  # the longest unused one

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
        share = left.level / max(SCARCE_SHARE * per_minute, 1.0)
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
                "this exceeds the limit; wait, or raise the limit",
                retry_after=int(wait) + 1,
            )
        self._keys.take(asked, left)
        for name, bucket in looked:
            self._addresses.take(name, bucket)


def _wait_for_one(bucket: Bucket, per_minute: int) -> float:
    """Return after how many seconds there is a token to take."""
    return max(1 - bucket.level, 0.0) * 60 / max(per_minute, 1)


def _wait_until_modest(bucket: Bucket, allowed: float) -> float:
    """Return after how many seconds `taken` is below this, if nothing more is taken."""
    if bucket.taken < allowed:
        return 0.0
    return (
        min(DECAY_SECONDS * log(bucket.taken / allowed), DECAY_SECONDS)
        if allowed > 0
        else DECAY_SECONDS
    )


def networks(address: str) -> tuple[bytes, ...]:
    """Return what an address counts as: itself, or the networks around it from the smallest.

    >>> networks("::ffff:192.0.2.7"), networks("2001:db8:1:2:3:4:5:6")[0].hex(":", 2)
    ((b'192.0.2.7',), '2001:0db8:0001:0002')
    """
    try:
        ipv6 = IPv6Address(address) if ":" in address else None
    except ValueError:
        ipv6 = None
    if ipv6 is None:
        return (address.encode(),)
    if ipv6.ipv4_mapped:
        return (str(ipv6.ipv4_mapped).encode(),)
    return tuple(ipv6.packed[: bits // 8] for bits, _ in NETWORKS)
