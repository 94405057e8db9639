"""What many private releases about one person cost together."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Guarantee:
    """A differential privacy guarantee (epsilon, delta) and the theorem that gives it."""

    epsilon: float
    delta: float
    horizon: int
    theorem: str

    def __str__(self) -> str:
        return f"{self.size} after {self.horizon:,} steps ({self.theorem})"

    @property
    def size(self) -> str:
        """Both numbers, rounded up: what is said is never more private than what holds."""
        return f"ε = {rounded_up(self.epsilon, 3)}, δ = {rounded_up(self.delta, 2)}"


def rounded_up(value: float, digits: int) -> str:
    """Return the number with so many significant digits, and no smaller than it is.

    >>> rounded_up(15.8312, 3), rounded_up(4.54e-05, 2), rounded_up(math.inf, 3)
    ('15.9', '4.6e-05', 'inf')
    """
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(value))
    return f"{float(up):.{digits}g}"


def basic(levels: ArrayLike) -> float:
    """Return Σ ε_i: basic composition, with δ = 0.

    >>> basic([1.0] * 3)
    3.0
    """
    return float(np.sum(levels))


def advanced(levels: ArrayLike, delta: float) -> float:
    """Return Σ ε_i·(e^ε_i − 1) + sqrt(2·ln(1/δ)·Σ ε_i²): advanced composition.

    Dwork, Rothblum and Vadhan, *Boosting and Differential Privacy*, 2010.

    >>> round(advanced([n**-0.55 for n in range(1, 100_001)], math.exp(-10)), 1)
    21.0
    """
    levels = np.asarray(levels, dtype=float)
    spread = math.sqrt(2 * math.log(1 / delta) * np.sum(levels**2))
    return float(np.sum(levels * np.expm1(levels)) + spread)


def optimal(levels: ArrayLike, delta: float) -> float:
    """Return min(Σ ε_i, Σ ε_i·tanh(ε_i/2) + sqrt(2·L·Σ ε_i²)), for releases of any levels.

    L = min(ln(1/δ), ln(e + sqrt(Σ ε_i²)/δ)). Kairouz, Oh and Viswanath, *The Composition Theorem
    for Differential Privacy*, 2015, Theorem 3.5.

    >>> round(optimal([n**-0.55 for n in range(1, 100_001)], math.exp(-10)), 1)
    15.8
    """
    levels = np.asarray(levels, dtype=float)
    squares = float(np.sum(levels**2))
    logarithm = min(math.log(1 / delta), math.log(math.e + math.sqrt(squares) / delta))
    drift = float(np.sum(levels * np.tanh(levels / 2)))
    return min(basic(levels), drift + math.sqrt(2 * logarithm * squares))


def release_levels(period: int, v: float, horizon: int) -> NDArray[np.float64]:
    """Return the levels of DP-UCB-INT's releases about one arm, every `period` pulls.

    A release after n pulls has sensitivity 1/n and Laplace scale n^-(1 − v/2): level n^-(v/2).
    """
    return np.arange(period, horizon + 1, period, dtype=float) ** (-v / 2)


@lru_cache(maxsize=64)
def calibrated_period(epsilon: float, v: float, delta: float, horizon: int) -> int:
    """Return the shortest period whose releases up to the horizon cost at most epsilon together."""

    def private_enough(period: int) -> bool:
        return optimal(release_levels(period, v, horizon), delta) <= epsilon

    too_short, long_enough = 0, 1
    while not private_enough(long_enough):
        too_short, long_enough = long_enough, 2 * long_enough
    while long_enough - too_short > 1:
        middle = (too_short + long_enough) // 2
        if private_enough(middle):
            long_enough = middle
        else:
            too_short = middle
    return long_enough
