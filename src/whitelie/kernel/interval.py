"""The confidence interval on mean feedback that stays valid under continuous looking."""

import math

from whitelie.kernel.divergence import lower_end, upper_end
from whitelie.kernel.jit import jit


@jit
def stirling_error(n: float) -> float:
    """Return ln n! − ln(sqrt(2πn)·(n/e)^n), without cancellation for large n."""
    if n <= 15:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    square = n * n
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / n


@jit
def log_largest_probability(pulls: float, successes: float) -> float:
    """Return ln P(S successes of N) under the success rate S/N (Loader's form, 2000)."""
    failures = pulls - successes
    if successes == 0 or failures == 0:
        return 0.0
    errors = stirling_error(pulls) - stirling_error(successes) - stirling_error(failures)
    return errors + 0.5 * math.log(pulls / (2 * math.pi * successes * failures))


@jit
def feedback_interval(pulls: int, successes: int, alpha: float) -> tuple[float, float]:
    """Return the interval of mean feedbacks that the counts do not reject at level alpha.

    {q : N·d(λ̂, q) ≤ ln(1/α) + S·ln λ̂ + (N − S)·ln(1 − λ̂) − ln B(S + 1, N − S + 1)}: the uniform
    beta mixture over q is a martingale under the truth, so by Ville's inequality the truth is
    *ever* outside with probability at most alpha. Since −ln B(S + 1, N − S + 1) is
    ln(N + 1) + ln C(N, S), the right side is ln(1/α) + ln(N + 1) + ln P(S of N | rate S/N).
    """
    if pulls == 0:
        return 0.0, 1.0
    largest = log_largest_probability(float(pulls), float(successes))
    radius = -math.log(alpha) + math.log1p(pulls) + largest
    budget = radius / pulls
    return lower_end(successes / pulls, budget), upper_end(successes / pulls, budget)
