"""Tails of the Beta distribution, and draws from it truncated to an interval."""

import math
from typing import NamedTuple

from whitelie.kernel.beta import beta
from whitelie.kernel.divergence import divergence
from whitelie.kernel.interval import log_largest_probability
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word, uniform, word


class Interval(NamedTuple):
    """(low, high] and the probability that it holds."""

    low: float
    high: float
    mass: float


@jit
def continued_fraction(a: float, b: float, x: float) -> float:
    """Return the fraction F with I_x(a, b) = x^a·(1 − x)^b / (a·B(a, b))·F.

    Its convergents A/B are computed two at a time and scaled to B = 1 after each pair.
    """
    numerator, denominator = 1.0, 1 - (a + b) * x / (a + 1)
    last_numerator, last_denominator = 1.0, 1.0
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        between = numerator + even * last_numerator
        between_denominator = denominator + even * last_denominator
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        scale = 1 / (between_denominator + odd * denominator)
        before, numerator = numerator, (between + odd * numerator) * scale
        last_numerator, last_denominator = between * scale, between_denominator * scale
        denominator = 1.0
        if abs(numerator - before) <= 1e-15 * abs(numerator):
            break
    return numerator


@jit
def tail_and_step(a: float, b: float, x: float) -> tuple[float, float]:
    """Return P(θ > x) for θ ~ Beta(a, b), and h = x^a·(1 − x)^b / B(a, b)."""
    if x <= 0:
        return 1.0, 0.0
    if x >= 1:
        return 0.0, 0.0
    n = a + b
    log_binomial = log_largest_probability(n, a) - n * divergence(a / n, x)
    h = a * b / n * math.exp(log_binomial)
    if x * (n + 2) < a + 1:
        return max(1 - h / a * continued_fraction(a, b, x), 0.0), h
    return min(h / b * continued_fraction(b, a, 1 - x), 1.0), h


@jit
def log_slope(a: float, b: float, x: float) -> float:
    """Return the derivative of the log-density of Beta(a, b)."""
    left = (a - 1) / x if a > 1 else 0.0
    right = (b - 1) / (1 - x) if b > 1 else 0.0
    return left - right


@jit
def largest_bend(a: float, b: float, low: float, high: float) -> float:
    """Return a bound on minus the second derivative of the log-density within an interval."""
    if low <= 0 or high >= 1:
        return math.inf
    return (a - 1) / (low * low) + (b - 1) / ((1 - high) * (1 - high))


@jit
def draw_between(a: float, b: float, interval: Interval, seed: Word) -> float:
    """Return a draw from Beta(a, b), a, b ≥ 1, truncated to an interval.

    Where the interval holds much of the mass, whole draws are tried. Else the envelope is the
    exponential tangent to the density, which is log-concave, at the end of the interval nearest to
    the mode, or a constant if the mode is inside. The log-density is above log-envelope −
    bend·(θ − top)²/2, and 1 − x ≤ e^-x: most draws are accepted without a logarithm.
    """
    low, high, mass = interval
    draw = ZERO
    if mass > 0.25:
        while True:
            theta = beta(a, b, word(seed, draw))
            draw += 1
            if low < theta <= high:
                return theta
    mode = (a - 1) / (a + b - 2) if a + b > 2 else 0.5
    top = min(max(mode, low), high)
    rate = log_slope(a, b, top) if top != mode else 0.0
    width = high - low
    bend = largest_bend(a, b, low, high)
    while True:
        u, accept = uniform(word(seed, draw)), uniform(word(seed, draw + 1))
        draw += 2
        if rate == 0:
            theta = low + width * u
        elif rate < 0:
            theta = low + math.log1p(u * math.expm1(rate * width)) / rate
        else:
            theta = high + math.log1p(u * math.expm1(-rate * width)) / rate
        away = theta - top
        if accept <= 1 - 0.5 * bend * away * away:
            return theta
        below_envelope = -rate * away
        if a > 1:
            below_envelope += (a - 1) * math.log(theta / top)
        if b > 1:
            below_envelope += (b - 1) * math.log((1 - theta) / (1 - top))
        if math.log(accept) <= below_envelope:
            return theta
