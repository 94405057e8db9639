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


class Envelope(NamedTuple):
    """height·e^(rate·(θ − top)) on (low, high], above the density and equal to it at `top`.

    And a bound on minus the second derivative of the log-density there.
    """

    low: float
    high: float
    top: float
    rate: float
    bend: float


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
def step(a: float, b: float, x: float) -> float:
    """Return h = x^a·(1 − x)^b / B(a, b) for 0 < x < 1."""
    n = a + b
    log_binomial = log_largest_probability(n, a) - n * divergence(a / n, x)
    return a * b / n * math.exp(log_binomial)


@jit
def tail_and_step(a: float, b: float, x: float) -> tuple[float, float]:
    """Return P(θ > x) for θ ~ Beta(a, b), and h = x^a·(1 − x)^b / B(a, b)."""
    if x <= 0:
        return 1.0, 0.0
    if x >= 1:
        return 0.0, 0.0
    h = step(a, b, x)
    if x * (a + b + 2) < a + 1:
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
def envelope_above(a: float, b: float, low: float, high: float) -> Envelope:
    """Return the envelope of Beta(a, b), a, b ≥ 1, on an interval.

    The density is log-concave: below the exponential tangent at the end of the interval nearest to
    the mode, and below a constant if the mode is inside.
    """
    mode = (a - 1) / (a + b - 2) if a + b > 2 else 0.5
    top = min(max(mode, low), high)
    rate = log_slope(a, b, top) if top != mode else 0.0
    return Envelope(low, high, top, rate, largest_bend(a, b, low, high))


@jit
def envelope_mass(a: float, b: float, envelope: Envelope) -> float:
    """Return the integral of the envelope: a bound on the probability of its interval."""
    top, rate, width = envelope.top, abs(envelope.rate), envelope.high - envelope.low
    height = a if top >= 1 else step(a, b, top) / (top * (1 - top))
    return height * (width if rate == 0 else -math.expm1(-rate * width) / rate)


@jit
def propose(a: float, b: float, envelope: Envelope, u: float, accept: float) -> tuple[float, bool]:
    """Return a draw from the envelope, and whether it is one from Beta(a, b): density/envelope.

    The log-density is above log-envelope − bend·(θ − top)²/2, and 1 − x ≤ e^-x: most draws are
    accepted without a logarithm.
    """
    low, high, top, rate, bend = envelope
    width = high - low
    if rate == 0:
        theta = low + width * u
    elif rate < 0:
        theta = low + math.log1p(u * math.expm1(rate * width)) / rate
    else:
        theta = high + math.log1p(u * math.expm1(-rate * width)) / rate
    away = theta - top
    if accept <= 1 - 0.5 * bend * away * away:
        return theta, True
    below_envelope = -rate * away
    if a > 1:
        below_envelope += (a - 1) * math.log(theta / top)
    if b > 1:
        below_envelope += (b - 1) * math.log((1 - theta) / (1 - top))
    return theta, math.log(accept) <= below_envelope


@jit
def draw_between(a: float, b: float, interval: Interval, seed: Word) -> float:
    """Return a draw from Beta(a, b), a, b ≥ 1, truncated to an interval.

    Where the interval holds much of the mass, whole draws are tried; else draws from its envelope.
    """
    low, high, mass = interval
    draw = ZERO
    if mass > 0.25:
        while True:
            theta = beta(a, b, word(seed, draw))
            draw += 1
            if low < theta <= high:
                return theta
    envelope = envelope_above(a, b, low, high)
    while True:
        u, accept = uniform(word(seed, draw)), uniform(word(seed, draw + 1))
        draw += 2
        theta, accepted = propose(a, b, envelope, u, accept)
        if accepted:
            return theta
