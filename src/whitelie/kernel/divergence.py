"""The Bernoulli divergence d and its upper and lower confidence ends."""

import math

from whitelie.kernel.jit import jit


@jit
def log_ratio(p: float, q: float, difference: float) -> float:
    """Return ln(p/q), where difference = q − p, without cancellation near q = p."""
    if 2 * difference > -p:
        return -math.log1p(difference / p)
    return math.log(p / q)


@jit
def divergence(x: float, y: float) -> float:
    """Return d(x, y) = x·ln(x/y) + (1 − x)·ln((1 − x)/(1 − y)) (the paper, eq. 4).

    0·ln 0 is 0, and d is infinite where y excludes what x allows.
    """
    if (y <= 0 and x > 0) or (y >= 1 and x < 1):
        return math.inf
    result = 0.0
    if x > 0:
        result += x * log_ratio(x, y, y - x)
    if x < 1:
        result += (1 - x) * log_ratio(1 - x, 1 - y, x - y)
    return max(result, 0.0)


@jit
def upper_end(mean: float, budget: float) -> float:
    """Return max{q ∈ [0, 1] : d(mean, q) ≤ budget}.

    Newton's method on the excess δ = q − mean. With v = mean·(1 − mean) and s = sqrt(2v·budget) it
    starts at δ = s + ⅔·(1 − 2·mean)·budget + s·budget·(1 − 13v)/(18v): the root of d's expansion to
    fourth order. d is convex and increasing there, so after one step every iterate stays above the
    root; d''/d' ≤ 1/δ + 1/(1 − q) tells from a step that the next one would be lost in rounding.
    """
    if mean >= 1:
        return 1.0
    if budget <= 0:
        return mean
    if mean <= 0:
        return -math.expm1(-budget)
    rest = 1 - mean
    # Upper bounds on the root: Pinsker's, and d(mean, q) ≥ mean·ln mean + rest·ln(rest/(1 − q)).
    ceiling = math.sqrt(budget / 2)
    if ceiling >= 0.5 * rest:
        ceiling = min(ceiling, rest * -math.expm1((mean * math.log(mean) - budget) / rest))
    variance = mean * rest
    excess = math.sqrt(2 * variance * budget) * (1 + budget * (1 - 13 * variance) / (18 * variance))
    excess += (2 / 3) * (1 - 2 * mean) * budget
    if not 0.1 * ceiling < excess < ceiling:
        excess = ceiling
    for _ in range(100):
        if excess >= rest:
            return 1.0
        value = -mean * math.log1p(excess / mean) - rest * math.log1p(-excess / rest)
        slope = excess / ((mean + excess) * (rest - excess))
        step = (value - budget) / slope
        excess = min(excess - step, ceiling)
        if step * step * rest <= 1e-16 * excess * excess * (rest - excess):
            break
    return mean + excess


@jit
def lower_end(mean: float, budget: float) -> float:
    """Return min{q ∈ [0, 1] : d(mean, q) ≤ budget}."""
    return 1 - upper_end(1 - mean, budget)
