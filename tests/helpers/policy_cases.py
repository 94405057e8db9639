"""The policies and channel kinds that every law is tried on, and random states for them."""

import random
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from whitelie import IDENTITY, Channel, Monotone, RandomizedResponse
from whitelie.kernel.arms import Array
from whitelie.kernel.rule import declaration_of
from whitelie.kernel.state import State
from whitelie.policy import POLICIES as KINDS
from whitelie.policy import Policy

EXAMPLES: list[Policy] = [policy for kind in KINDS for policy in kind.examples()]
"""All policies, as each of them wants to be tried."""

POLICIES = [policy for policy in EXAMPLES if policy.counts_feedback]
"""Those that choose from counts alone, live too."""

LOCAL = [policy for policy in POLICIES if declaration_of(policy.rule).local]
"""Those whose decisions change one arm's value only."""

CORRECTED = [policy for policy in POLICIES if policy.feedback == "corrected"]


Case = tuple[list[Channel], State, Array]
"""Channels, a state that the choice rule may meet, and distinct random words."""

CASES = 60
"""So many of every kind of channel."""


# Multiples of 1/64 add and subtract without rounding, so that laws about exact ties can be exact.
def grid(draw: random.Random, size: int) -> list[float]:
    return [n / 64 for n in sorted(draw.sample(range(65), size))]


def affine(draw: random.Random, increasing: bool) -> Channel:
    zero, one = grid(draw, 2) if increasing else grid(draw, 2)[::-1]
    return RandomizedResponse(p00=1 - zero, p11=one)


def table(draw: random.Random, increasing: bool) -> Channel:
    ys = grid(draw, draw.randint(2, 5))
    inner = sorted(draw.sample(range(1, 64), len(ys) - 2))
    xs = [0.0, *(n / 64 for n in inner), 1.0]
    return Monotone.from_points(zip(xs, ys if increasing else ys[::-1], strict=True))


def either(*makers: Callable[..., Channel]) -> Callable[[random.Random], Channel]:
    return lambda draw: draw.choice(makers)(draw, draw.random() < 0.5)


CHANNEL_KINDS: dict[str, Callable[[random.Random], Channel]] = {
    "identity": lambda _: IDENTITY,
    "increasing": lambda draw: affine(draw, True),
    "decreasing": lambda draw: affine(draw, False),
    "increasing table": lambda draw: table(draw, True),
    "decreasing table": lambda draw: table(draw, False),
    "mixed affine": either(affine),
    "mixed": either(affine, table),
}


def pairs(policies: list[Policy] = POLICIES) -> Iterator[tuple[Policy, str]]:
    """Every policy with every channel kind on which it has a meaning."""
    for policy in policies:
        for kind in CHANNEL_KINDS:
            tabulated = "table" in kind or kind == "mixed"
            if not (policy.feedback == "wrapped" and tabulated):
                yield policy, kind


def name(value: object) -> str:
    return value.label if isinstance(value, Policy) else str(value)


@cache
def cases(kind: str) -> list[Case]:
    """The cases of a kind that laws are tried on; whoever would change a state copies it."""
    draw = random.Random(kind)
    return [random_case(kind, draw) for _ in range(CASES)]


def random_case(kind: str, draw: random.Random) -> Case:
    size = draw.randint(1, 6)

    def counts(most: int) -> Array:
        """Uniform ones, and in every other case many at the ends, or alike."""
        numbers = draw.choice([range(most + 1), range(most + 1), (0, most), (0, 1, 2), (most,)])
        return np.array(draw.choices(numbers, k=size), dtype=np.int64)

    pulls = counts(40) * draw.choice([1, 1000])
    shares = counts(8)
    available = np.array(draw.choices([True, False], k=size))
    available[draw.randrange(size)] = True
    words = {draw.choice([draw.getrandbits(64), 0, 2**64 - 1])}
    while len(words) < size:
        words.add(draw.getrandbits(64))
    state = State(pulls, pulls * shares // 8, counts(3), available)
    channels = [CHANNEL_KINDS[kind](draw) for _ in range(size)]
    return channels, state, np.array(draw.sample(sorted(words), size), dtype=np.uint64)
