"""What theory promises: one function per theorem and corollary of the paper.

Each takes a problem and a horizon, and returns a number, or an array for an array of horizons.
Arm 1 of the paper is the best arm; λ_a is the mean feedback of arm a, Δ_a its gap, and
D_a = d(λ_a, g_a(μ_1)) tells how well feedback separates arm a from an arm as good as the best.
"""

import math
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput, real_number
from whitelie.kernel.divergence import divergence
from whitelie.problem import Problem

Horizon = TypeVar("Horizon", float, NDArray[Any])
"""A number of steps, or an array of them; the bound is of the same shape."""

Form = Literal["printed", "tight"]
"""The corollaries as printed, 2·ln T/(Δ·slope²), or as Pinsker gives them, ln T/(2·Δ·slope²)."""

_PINSKER = {"printed": 2.0, "tight": 0.5}


def lower_constant(problem: Problem) -> float:
    """Return Theorem 1's constant Σ Δ_a / d(λ_a, g_a(μ_1)), the least regret per unit of ln T.

    >>> noisy, clear = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
    >>> problem = Problem([0.9] + [0.8] * 9, [noisy] + [clear] * 9)
    >>> round(lower_constant(problem), 3)
    45.815
    """
    return math.fsum(_ratio(gap, separation) for gap, separation, _ in _suboptimal(problem))


def lower_bound(problem: Problem, horizon: Horizon) -> Horizon:
    """Return Theorem 1: Σ Δ_a·ln T / d(λ_a, g_a(μ_1)), an asymptotic lower bound on regret.

    Regret below it at a finite horizon is normal. For the paper's first experiment:

    >>> noisy, clear = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
    >>> problem = Problem([0.9] + [0.8] * 9, [noisy] + [clear] * 9)
    >>> round(lower_bound(problem, 100_000), 2)
    527.46
    """
    return _like(horizon, lower_constant(problem) * _log(horizon, least=1))


def finite_time_bound(problem: Problem, horizon: Horizon) -> Horizon:
    """Return Theorem 2's explicit bound on the regret of kl-UCB-CF with c = 3 (Appendix I), T ≥ 3.

    Σ Δ_a·[ln T/D + sqrt(2π·D'²/D³)·sqrt(ln T + 3·ln ln T) + (4e + 3/D)·ln ln T + 2·(D'/D)² + 4],
    with D' the derivative of d in its first argument at (λ_a, g_a(μ_1)). As printed; its additive
    constants are off by about 1, and it is infinite when λ_a is 0 or 1.
    """
    log = _log(horizon, least=3)
    loglog = np.log(log)
    bound = np.zeros_like(log)
    for gap, separation, ratio in _suboptimal(problem):
        bound += gap * (
            _ratio(1.0, separation) * log
            + math.sqrt(_ratio(2 * math.pi, separation)) * ratio * np.sqrt(log + 3 * loglog)
            + (4 * math.e + _ratio(3.0, separation)) * loglog
            + 2 * ratio**2
            + 4
        )
    return _like(horizon, bound)


def ucb_order(problem: Problem, horizon: Horizon) -> Horizon:
    """Return Corollary 1's order for UCB-CF, Σ Δ_a·ln T / (λ_a − g_a(μ_1))², up to a constant."""
    constant = math.fsum(
        _ratio(gap, (feedback - confused) ** 2)
        for gap, feedback, confused in _gaps_and_feedback(problem)
    )
    return _like(horizon, constant * _log(horizon, least=1))


def randomized_response_bound(
    problem: Problem, horizon: Horizon, *, form: Form = "tight"
) -> Horizon:
    """Return Corollary 2's leading term for kl-UCB-CF and TS-CF, from Pinsker's inequality.

    Σ C·ln T / (Δ_a·(p00(a) + p11(a) − 1)²), with C = 2 as printed and C = ½ tight. A remainder of
    order sqrt(ln T) is left out: this is the growth, not a bound at a given T.
    """
    constant = 0.0
    for gap, channel in zip(problem.gaps, problem.channels, strict=True):
        if not isinstance(channel, RandomizedResponse):
            raise InvalidInput("channels", channel, "the corollary needs randomised response")
        if gap > 0:
            constant += _ratio(_pinsker(form), gap * channel.slope**2)
    return _like(horizon, constant * _log(horizon, least=1))


def local_privacy_bound(
    problem: Problem, epsilon: float, horizon: Horizon, *, form: Form = "tight"
) -> Horizon:
    """Return Corollary 3's leading term: the gaps of the problem under epsilon-private feedback.

    Σ C·ln T / (Δ_a·((e^ε − 1)/(e^ε + 1))²), with C as in `randomized_response_bound`; the problem's
    own channels do not enter.
    """
    level = real_number("epsilon", epsilon, "it must be above 0", least=5e-324, most=math.inf)
    slope = math.tanh(level / 2)
    constant = math.fsum(_ratio(_pinsker(form), gap * slope**2) for gap in problem.gaps if gap > 0)
    return _like(horizon, constant * _log(horizon, least=1))


def _gaps_and_feedback(problem: Problem) -> list[tuple[float, float, float]]:
    """Per suboptimal arm: Δ_a, λ_a, g_a(μ_1)."""
    best = max(problem.means)
    arms = zip(problem.gaps, problem.feedback_means, problem.channels, strict=True)
    return [(gap, lam, channel.mean_feedback(best)) for gap, lam, channel in arms if gap > 0]


def _suboptimal(problem: Problem) -> list[tuple[float, float, float]]:
    """Per suboptimal arm: Δ_a, D_a and |D'_a| / D_a."""
    return [
        (gap, divergence(lam, confused), _relative_steepness(lam, confused))
        for gap, lam, confused in _gaps_and_feedback(problem)
    ]


def _relative_steepness(lam: float, confused: float) -> float:
    """|∂d/∂λ| / d at (λ, y); for y at 0 or 1, where both are infinite, the limit of the ratio."""
    if lam in (0, 1):
        return math.inf
    if confused in (0, 1):
        return 1 / abs(confused - lam)
    odds = math.log(lam / confused) - math.log((1 - lam) / (1 - confused))
    return _ratio(abs(odds), divergence(lam, confused))


def _ratio(numerator: float, denominator: float) -> float:
    """Arms whose feedback differs by less than a double can tell cost without limit."""
    return numerator / denominator if denominator > 0 else math.inf


def _pinsker(form: Form) -> float:
    if not isinstance(form, str) or form not in _PINSKER:
        raise InvalidInput("form", form, 'choose "printed" or "tight"')
    return _PINSKER[form]


def _log(horizon: float | NDArray[Any], *, least: int) -> NDArray[np.float64]:
    try:
        horizons = np.asarray(horizon, dtype=float)
    except (TypeError, ValueError):
        horizons = np.array(-1.0)
    if not np.all(horizons >= least):
        raise InvalidInput("horizon", horizon, f"this bound is defined from T = {least} on")
    return np.asarray(np.log(horizons))


def _like(horizon: Horizon, bound: NDArray[np.float64]) -> Horizon:
    result: Any = float(bound) if np.ndim(horizon) == 0 else bound
    return cast(Horizon, result)
