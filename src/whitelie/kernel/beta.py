"""Beta draws as functions of one random word."""

import math

from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO, Word, uniform, word


@jit
def beta(a: float, b: float, seed: Word) -> float:
    """Return a draw from Beta(a, b) for a, b ≥ 1, a pure function of the seed word.

    If a or b is 1 the distribution function is inverted; otherwise algorithm BB of Cheng (1978),
    rejection from a log-logistic envelope, with uniforms from the seed's own stream.
    """
    draw = ZERO
    if a == 1 or b == 1:
        exponential = -math.log(uniform(word(seed, draw)))
        return -math.expm1(-exponential / b) if a == 1 else math.exp(-exponential / a)
    low, high = min(a, b), max(a, b)
    total = a + b
    rate = math.sqrt((total - 2) / (2 * a * b - total))
    gamma = low + 1 / rate
    while True:
        u1, u2 = uniform(word(seed, draw)), uniform(word(seed, draw + 1))
        draw += 2
        v = rate * math.log(u1 / (1 - u1))
        w = low * math.exp(v)
        z = u1 * u1 * u2
        r = gamma * v - 1.3862943611198906  # ln 4
        s = low + r - w
        if (
            s + 2.6094379124341003 >= 5 * z  # 1 + ln 5
            or s >= math.log(z)
            or r + total * math.log(total / (high + w)) >= math.log(z)
        ):
            return w / (high + w) if low == a else high / (high + w)
