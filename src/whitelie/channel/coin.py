"""The device's coin: an integer threshold against 64 bits of the operating system's generator.

A probability is a whole number of 2^-64ths, so that what is drawn, what the learner assumes and
what the privacy claim is computed from are one and the same number. Two thresholds describe a
channel: zero = P(feedback 1 | reward 0)·2^64 and one = P(feedback 1 | reward 1)·2^64.
"""

import decimal
import math
from collections.abc import Callable
from fractions import Fraction

ONE = 1 << 64
EXACT = decimal.Context(
    prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
)
"""Our own arithmetic, whatever the caller has set for theirs."""
LARGEST_BELOW_ONE = 1 - 2.0**-53

RandomBits = Callable[[int], int]


def threshold(probability: float) -> int:
    """Return probability · 2^64, rounded toward ½ to a whole number.

    Every double from 2^-12 up is exact. Epsilon is computed after this rounding.

    >>> threshold(0.75) == 3 * 2**62, threshold(1e-30), threshold(0.0), threshold(1.0) == 2**64
    (True, 1, 0, True)
    """
    scaled = probability * 2.0**64  # exact: only the exponent changes
    return math.ceil(scaled) if probability < 0.5 else math.floor(scaled)


def exact_epsilon(zero: int, one: int) -> float:
    """Return max |ln| over the four probability ratios of the thresholds, never rounded down.

    The ratios are P(1|1)/P(1|0), P(0|0)/P(0|1) and their inverses: a report of either kind,
    from a person of either kind. One-sided channels have a ratio with 0, hence epsilon = inf.

    >>> exact_epsilon(2**62, 3 * 2**62) >= math.log(3)
    True
    """
    epsilon = 0.0
    for numerator, denominator in ((one, zero), (ONE - zero, ONE - one)):
        if numerator == denominator:
            continue
        if numerator == 0 or denominator == 0:
            return math.inf
        with decimal.localcontext(EXACT):
            exact = abs((decimal.Decimal(numerator) / decimal.Decimal(denominator)).ln())
            rounded = float(exact)
            if decimal.Decimal(rounded) < exact:
                rounded = math.nextafter(rounded, math.inf)
        epsilon = max(epsilon, rounded)
    return epsilon


def truth_probability(epsilon: float) -> float:
    """Return the largest double p with p / (1 − p) ≤ e^epsilon exactly, for finite epsilon > 0.

    This is e^ε / (1 + e^ε), rounded toward ½: the exact epsilon of the coin never exceeds the
    nominal one. Doubles end at 1 − 2^-53, so no coin is less private than epsilon = 36.7.
    """
    p = min(1 / (1 + math.exp(-epsilon)) + 2.0**-51, LARGEST_BELOW_ONE)
    with decimal.localcontext(EXACT):
        # e^50 exceeds the odds of LARGEST_BELOW_ONE, so capping there changes nothing.
        largest_odds = decimal.Decimal(min(epsilon, 50.0)).exp().next_minus()
    while p > 0.5 and Fraction(p) / (1 - Fraction(p)) > Fraction(largest_odds):
        p = math.nextafter(p, 0.5)
    return p


def flip(zero: int, one: int, reward: float, word: int) -> int:
    """Return whether 128 drawn bits lie below zero + reward·(one − zero), without any branch.

    The reward counts in whole 2^-64ths too (exact for doubles from 2^-12 up), so 128 bits decide
    exactly, and for a reward of 0 or 1 the upper 64 bits alone.
    """
    return int(word < zero * ONE + int(reward * 2.0**64) * (one - zero))
