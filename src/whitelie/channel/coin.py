"""The device's coin: an integer threshold against 64 bits of the operating system's generator.

A probability is a whole number of 2^-64ths, so that what is drawn, what the learner assumes and
what the privacy claim is computed from are one and the same number. Two thresholds describe a
channel: zero = P(feedback 1 | reward 0)·2^64 and one = P(feedback 1 | reward 1)·2^64.
"""

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

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


@lru_cache(1024)
def exact_epsilons(zero: int, one: int) -> tuple[float, float]:
    """Return (ε₀, ε₁): how much one report can reveal of a reward of 0, and of a reward of 1.

    A report y multiplies anyone's odds of reward 1 against 0 by P(y|1)/P(y|0). ε₁ is the largest ln
    of that factor over both reports, ε₀ the largest ln of its inverse; neither is rounded down.
    Where more reward means more feedback, ε₁ = ln P(1|1)/P(1|0) is what a report of 1 can reveal
    and ε₀ = ln P(0|0)/P(0|1) what a report of 0 can. A factor with 0 makes a budget infinite.

    >>> zero, one = exact_epsilons(2**63, 3 * 2**62)
    >>> round(math.exp(zero), 9), round(math.exp(one), 9)
    (2.0, 1.5)
    """
    if zero > one:
        zero, one = ONE - zero, ONE - one
    return log_ratio(ONE - zero, ONE - one), log_ratio(one, zero)


def exact_epsilon(zero: int, one: int) -> float:
    """Return max |ln| over the four probability ratios of the thresholds, never rounded down.

    The ratios are P(1|1)/P(1|0), P(0|0)/P(0|1) and their inverses: a report of either kind,
    from a person of either kind. One-sided channels have a ratio with 0, hence epsilon = inf.

    >>> exact_epsilon(2**62, 3 * 2**62) >= math.log(3)
    True
    """
    return max(exact_epsilons(zero, one))


def log_ratio(numerator: int, denominator: int) -> float:
    """Return ln(numerator/denominator), at least 0, rounded up; it is 0 where both are equal."""
    if numerator == denominator:
        return 0.0
    if denominator == 0:
        return math.inf
    with decimal.localcontext(EXACT):
        exact = (decimal.Decimal(numerator) / decimal.Decimal(denominator)).ln()
        rounded = float(exact)
        if decimal.Decimal(rounded) < exact:
            rounded = math.nextafter(rounded, math.inf)
    return rounded


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


def truth_probabilities(epsilon0: float, epsilon1: float) -> tuple[float, float]:
    """Return (p00, p11) of the most informative coin whose exact budgets are at most the two.

    P(1|0) = (e^ε₀ − 1)/(e^(ε₀+ε₁) − 1) = y·(1 − x)/(1 − x·y), with x = e^−ε₀ and y = e^−ε₁, and
    P(1|1) = P(1|0)/y: the one point where both budgets are spent. P(0|0) is rounded down; then
    P(1|1) is the largest that y·P(1|1) ≤ P(1|0) and x·P(0|0) ≤ P(0|1) allow, rounded down. Both
    are doubles and whole 2^-64ths, so these inequalities hold for the coin's own integers.

    >>> truth_probabilities(math.inf, math.inf)
    (1.0, 1.0)
    """
    x, y = _exponential(epsilon0), _exponential(epsilon1)
    p00 = _round_down(1 - y * (1 - x) / (1 - x * y))
    p11 = _round_down(1 - x * Fraction(p00))
    if y > 0:
        p11 = min(p11, _round_down((1 - Fraction(p00)) / y))
    return p00, p11


def _exponential(epsilon: float) -> Fraction:
    """Return e^−epsilon, rounded up by less than 10^-59: what is private with it is private.

    Beyond 50 nothing changes, since no double below 1 has such odds; inf is exactly 0.
    """
    if epsilon == math.inf:
        return Fraction(0)
    with decimal.localcontext(EXACT):
        return Fraction((-decimal.Decimal(min(epsilon, 50.0))).exp().next_plus())


def _round_down(probability: Fraction) -> float:
    """Return the largest double ≤ probability that is a whole number of 2^-64ths, at least 0."""
    units = max(math.floor(probability * ONE), 0)
    spare = max(units.bit_length() - 53, 0)
    return math.ldexp(units >> spare, spare - 64)


def flip(zero: int, one: int, reward: float, word: int) -> int:
    """Return whether 128 drawn bits lie below zero + reward·(one − zero), without any branch.

    The reward counts in whole 2^-64ths too (exact for doubles from 2^-12 up), so 128 bits decide
    exactly, and for a reward of 0 or 1 the upper 64 bits alone.
    """
    return int(word < zero * ONE + int(reward * 2.0**64) * (one - zero))
