"""Binomial and multinomial draws as functions of one random word."""

import math

from whitelie.kernel.arms import Array
from whitelie.kernel.divergence import divergence
from whitelie.kernel.interval import log_largest_probability
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word, uniform, word

FEW = 10.0
"""Below this mean the distribution function is searched from 0 on."""


@jit
def log_probability(n: int, p: float, k: int) -> float:
    """Return ln P(k of n) for a success rate p strictly inside (0, 1) (Loader's form, 2000)."""
    return log_largest_probability(float(n), float(k)) - n * divergence(k / n, p)


@jit
def search(n: int, p: float, u: float) -> int:
    """Return the least k with P(at most k of n) ≥ u, by summing the probabilities from 0 on."""
    odds = p / (1 - p)
    probability = math.exp(n * math.log1p(-p))
    k = ZERO
    while u > probability and k < n:
        u -= probability
        k += 1
        probability *= odds * (n - k + 1) / k
    return k


@jit
def transformed_rejection(n: int, p: float, seed: Word) -> int:
    """Return a draw from Binomial(n, p) for p ≤ ½ and n·p ≥ 10: BTRS of Hörmann (1993), exact."""
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    draw = ZERO
    while True:
        u, v = uniform(word(seed, draw)) - 0.5, uniform(word(seed, draw + 1))
        draw += 2
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + n * p + 0.5)
        if edge >= 0.07 and v <= 0.92 - 4.2 / b:
            return k
        if 0 <= k <= n:
            at_mode = log_probability(n, p, math.floor((n + 1) * p))
            bar = math.log(v * alpha / (a / (edge * edge) + b)) + at_mode
            if bar <= log_probability(n, p, k):
                return k


@jit
def binomial(n: int, p: float, seed: Word) -> int:
    """Return a draw from Binomial(n, p), a pure function of the seed word."""
    if n == 0 or p <= 0:
        return ZERO
    if p >= 1:
        return n
    rarer = min(p, 1 - p)
    if n * rarer < FEW:
        k = search(n, rarer, uniform(word(seed, ZERO)))
    else:
        k = transformed_rejection(n, rarer, seed)
    return k if p <= 0.5 else n - k


@jit
def multinomial(n: int, shares: Array, seed: Word, counts: Array) -> None:
    """Fill `counts` with how many of n fall to each share, by one binomial after another."""
    rest, left = n, 1.0
    last = len(shares) - 1
    for k in range(last):
        chance = min(shares[k] / left, 1.0) if left > 0 else 1.0
        counts[k] = binomial(rest, chance, word(seed, k))
        rest -= counts[k]
        left -= shares[k]
    counts[last] = rest
