"""The policies and channel kinds that every law is tried on, and random states for them."""

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from whitelie import IDENTITY, KLUCB, TS, UCB, UCB1, Channel, Monotone, RandomizedResponse
from whitelie.kernel.arms import Array
from whitelie.kernel.choice import State
from whitelie.policy import Policy

POLICIES: list[Policy] = [
    KLUCB(),
    KLUCB(c=0, domain="unit"),
    KLUCB(feedback="naive"),
    KLUCB(feedback="wrapped"),
    UCB(),
    UCB(feedback="naive"),
    UCB(feedback="wrapped"),
    UCB1(),
    UCB1(feedback="wrapped"),
    TS(),
    TS(feedback="naive"),
]


# Multiples of 1/64 add and subtract without rounding, so that laws about exact ties can be exact.
grid = st.integers(0, 64).map(lambda n: n / 64)


@st.composite
def affine(draw: st.DrawFn, increasing: bool) -> Channel:
    zero, one = sorted(draw(st.lists(grid, min_size=2, max_size=2, unique=True)))
    if not increasing:
        zero, one = one, zero
    return RandomizedResponse(p00=1 - zero, p11=one)


@st.composite
def table(draw: st.DrawFn, increasing: bool) -> Channel:
    size = draw(st.integers(2, 5))
    inner = draw(st.lists(st.integers(1, 63), min_size=size - 2, max_size=size - 2, unique=True))
    xs = [0.0, *(n / 64 for n in sorted(inner)), 1.0]
    ys = sorted(draw(st.lists(grid, min_size=size, max_size=size, unique=True)))
    return Monotone.from_points(zip(xs, ys if increasing else ys[::-1], strict=True))


CHANNEL_KINDS: dict[str, st.SearchStrategy[Channel]] = {
    "identity": st.just(IDENTITY),
    "increasing": affine(True),
    "decreasing": affine(False),
    "increasing table": table(True),
    "decreasing table": table(False),
    "mixed affine": affine(True) | affine(False),
    "mixed": affine(True) | affine(False) | table(True) | table(False),
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


@st.composite
def arms(draw: st.DrawFn, kind: str) -> tuple[list[Channel], State, Array]:
    """Channels, a state that the choice rule may meet, and distinct random words."""
    size = draw(st.integers(1, 6))

    def counts(most: int) -> Array:
        numbers = st.lists(st.integers(0, most), min_size=size, max_size=size)
        return np.array(draw(numbers), dtype=np.int64)

    pulls = counts(40) * draw(st.sampled_from([1, 1000]))
    shares = counts(8)
    available = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    available[draw(st.integers(0, size - 1))] = True
    words = draw(st.lists(st.integers(0, 2**64 - 1), min_size=size, max_size=size, unique=True))
    channels = draw(st.lists(CHANNEL_KINDS[kind], min_size=size, max_size=size))
    state = State(pulls, pulls * shares // 8, counts(3), available)
    return channels, state, np.array(words, dtype=np.uint64)
