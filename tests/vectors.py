"""The vectors of clients/conformance.json, computed by the reference.

`python tests/vectors.py` writes the file; a test compares it with what is computed.
"""

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

from whitelie.channel import RandomizedResponse, coin

FILE = Path(__file__).parent.parent / "clients/conformance.json"
DAY = 24 * 60 * 60
MILLISECONDS = 1000
LARGEST = 2**64 - 1
TOLERANCE = Fraction(1) + Fraction(1, 10**9)

HALF = 0.5
ABOVE_HALF = math.nextafter(HALF, 1)
BELOW_HALF = math.nextafter(HALF, 0)
BELOW_ONE = math.nextafter(1.0, 0)
EXACT = 2.0**-12
"""From here up every double is a whole number of 2^-64ths."""


def private(epsilon: float) -> tuple[float, float]:
    channel = RandomizedResponse.from_epsilon(epsilon)
    return channel.p00, channel.p11


def asymmetric(epsilon0: float, epsilon1: float) -> tuple[float, float]:
    channel = RandomizedResponse.from_epsilons(epsilon0=epsilon0, epsilon1=epsilon1)
    return channel.p00, channel.p11


COINS = [
    private(1),
    tuple(math.nextafter(p, 1) for p in private(1)),
    *(private(epsilon) for epsilon in (1e-6, 0.1, 0.25, 0.5, math.log(3), 2, 8, 36)),
    asymmetric(0.5, 1),
    asymmetric(math.inf, 1),
    asymmetric(1, math.inf),
    (0.95, 0.55),
    (2 / 3, 5 / 6),
    (0.1, 0.1),
    (0.45, 0.3),
    (0.0, 0.0),
    (1.0, 1.0),
    (1.0, 0.5),
    (0.5, 1.0),
    (0.0, 1.0),
    (1.0, 0.0),
    (0.5, 0.5),
    (ABOVE_HALF, ABOVE_HALF),
    (BELOW_HALF, BELOW_HALF),
    (BELOW_HALF, HALF),
    (HALF, ABOVE_HALF),
    (BELOW_ONE, BELOW_ONE),
    (1e-30, 0.9),
    (0.9, 1e-30),
    (1e-30, 1e-30),
    (5e-324, 1.0),
    (2.0**-64, 0.75),
    (math.nextafter(2.0**-64, 1), 0.75),
    (math.nextafter(2.0**-12, 0), 0.5),
    (1.1e-4, 1.3e-7),
    (EXACT, 1 - EXACT),
]
"""(p00, p11): increasing, decreasing, of slope 0, one-sided, and at the edges of rounding."""


def thresholds(p00: float, p11: float) -> tuple[int, int]:
    return coin.ONE - coin.threshold(p00), coin.threshold(p11)


def channels() -> list[Any]:
    found = []
    for p00, p11 in COINS:
        zero, one = thresholds(p00, p11)
        epsilon = coin.exact_epsilon(zero, one)
        found.append(
            {
                "p00": p00,
                "p11": p11,
                "zero": str(zero),
                "one": str(one),
                "epsilon": epsilon if math.isfinite(epsilon) else None,
            }
        )
    return found


def words(p00: float, p11: float, draw: random.Random) -> list[tuple[int, int]]:
    """Words on both sides of each threshold, the ends, and any."""
    zero, one = thresholds(p00, p11)
    near = [(zero - 1, one - 1), (zero, one), (0, 0), (LARGEST, LARGEST), (zero, one - 1)]
    inside = [(min(max(a, 0), LARGEST), min(max(b, 0), LARGEST)) for a, b in near]
    return [*inside, (draw.getrandbits(64), draw.getrandbits(64))]


def bits() -> list[Any]:
    draw = random.Random(1)
    chosen = [
        private(1),
        (0.45, 0.3),
        (1e-30, 0.9),
        (0.0, 1.0),
        (1.0, 0.0),
        (BELOW_HALF, BELOW_HALF),
    ]
    found = []
    for p00, p11 in chosen:
        zero, one = thresholds(p00, p11)
        for word0, word1 in words(p00, p11, draw):
            flipped = [
                coin.flip(zero, one, reward, word << 64)
                for reward, word in ((0, word0), (1, word1))
            ]
            found.append(
                {"p00": p00, "p11": p11, "words": [str(word0), str(word1)], "bits": flipped}
            )
    return found


def times() -> list[Any]:
    spans = [(0, 0), (60, 0), (0, 1), (0, 30), (600, 60), (60, 7 * DAY), (30 * DAY, 30 * DAY)]
    known = [0, 1, 2**31, 2**32 - 1, 2_863_311_531]
    return [
        {
            "window": window,
            "spread": spread,
            "word": word,
            "delay": MILLISECONDS * window
            + math.floor(Fraction(word * MILLISECONDS * spread, 2**32)),
        }
        for window, spread in spans
        for word in known
    ]


def charged(cap: float, days: float, charges: list[tuple[float, float]]) -> Any:
    """A ledger; charges are given as (days since 1970, epsilon)."""
    start, spent, found = -math.inf, 0.0, []
    for day, epsilon in charges:
        at = round(day * DAY * MILLISECONDS)
        if at >= start + days * DAY * MILLISECONDS:
            start, spent = at, 0.0
        start = min(start, at)
        kept = Fraction(spent + epsilon) <= Fraction(cap) * TOLERANCE
        spent += epsilon if kept else 0
        found.append({"at": at, "epsilon": epsilon, "kept": kept, "spent": spent})
    return {"cap": {"epsilon": cap, "days": days}, "charges": found}


INSTANT = 1 / (DAY * MILLISECONDS)
"""A millisecond, in days."""

TODAY = 20_000
ONE = RandomizedResponse.from_epsilon(1).epsilon


def ledgers() -> list[Any]:
    def many(count: int, epsilon: float, step: float = INSTANT) -> list[tuple[float, float]]:
        return [(TODAY + index * step, epsilon) for index in range(count)]

    return [
        charged(10, 1, many(12, 1)),
        charged(10, 1, many(12, ONE)),
        charged(10, 1, many(11, math.nextafter(1, 2))),
        charged(1, 1, many(12, 0.1)),
        charged(0.3, 1, [(TODAY, 0.1), (TODAY, 0.2), (TODAY, 1e-6)]),
        charged(1, 1, [(TODAY, 1 + 5e-10)]),
        charged(1, 1, [(TODAY, 1 + 2e-9)]),
        charged(1, 1, [(TODAY, 1.5), (TODAY, 1), (TODAY, 0.001)]),
        charged(10, 1, [(TODAY, 0)]),
        charged(2, 1, [(TODAY, 2), (TODAY + 1 - INSTANT, 1), (TODAY + 1, 1), (TODAY + 1.5, 1)]),
        charged(2, 1, many(12, 1, 0.25)),
        charged(2, 7, many(12, 1, 1.5)),
        charged(5, 0.5, many(12, 1.25, 0.1)),
        charged(2, 30, many(5, 1, 12)),
        charged(2, 1, [(TODAY, 1.5), (TODAY, 1), (TODAY, 0.5), (TODAY, 0.25)]),
        # A day goes by unused: the next period starts with its first charge.
        charged(2, 1, [(TODAY, 2), (TODAY + 2.5, 2), (TODAY + 3, 1), (TODAY + 3.5, 1)]),
        # The first charge of a period begins it, even when it is refused.
        charged(10, 1, [(TODAY, 10), (TODAY + 1, 20), (TODAY + 1.5, 6), (TODAY + 2.25, 6)]),
        # The clock was set back by a second, and by ten days while the ledger was full.
        charged(2, 1, [(TODAY, 2), (TODAY - 1 / DAY, 1), (TODAY + 1 - 1 / DAY, 1)]),
        charged(2, 1, [(TODAY, 2), (TODAY - 10, 1), (TODAY - 9.5, 1), (TODAY - 9, 1)]),
        # It was set forward.
        charged(2, 1, [(TODAY, 2), (TODAY + 400, 1), (TODAY, 1), (TODAY, 1)]),
        charged(0.5, 365, many(3, 0.25, 180)),
    ]


def computed() -> dict[str, list[Any]]:
    """All vectors."""
    return {"channels": channels(), "bits": bits(), "times": times(), "ledgers": ledgers()}


def text() -> str:
    """The file: one vector a line."""
    lists = []
    for name, vectors in computed().items():
        lines = ",\n".join("    " + json.dumps(vector, allow_nan=False) for vector in vectors)
        lists.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(lists) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
