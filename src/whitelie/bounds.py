"""Bounds on regret, one function per theorem and corollary of the paper, and on time.

Each bound on regret takes a problem and a horizon, and returns a number, or an array for an array
of horizons; `identification_time` takes a problem and a probability of error.
Arm 1 of the paper is the best arm; λ_a is the mean feedback of arm a, Δ_a its gap, and
D_a = d(λ_a, g_a(μ_1)) tells how well feedback separates arm a from an arm as good as the best.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from whitelie.channel import Channel, Monotone, RandomizedResponse, of_bits
from whitelie.errors import InvalidInput, real_number
from whitelie.kernel.cells import cell_divergence, cell_steepness, has_cells
from whitelie.kernel.divergence import divergence
from whitelie.problem import Problem

Horizon = TypeVar("Horizon", float, NDArray[Any])
"""A number of steps, or an array of them; the bound is of the same shape."""

Form = Literal["printed", "tight"]
"""The corollaries as printed, 2·ln T/(Δ·slope²), or as Pinsker gives them, ln T/(2·Δ·slope²)."""

_PINSKER = {"printed": 2.0, "tight": 0.5}

_HALVINGS = 50
"""Of an interval halved so often 1e-15 is left."""


def lower_constant(problem: Problem) -> float:
    """Return Theorem 1's constant Σ Δ_a / d(λ_a, g_a(μ_1)), the least regret per unit of ln T.

    Where people choose among mechanisms, d is its mean over them: Σ_j w_j·d(g_j(μ_a), g_j(μ_1)),
    with w_j the share of those who choose mechanism j. Several outputs have the divergence of their
    distributions.

    >>> noisy, clear = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
    >>> problem = Problem([0.9] + [0.8] * 9, [noisy] + [clear] * 9)
    >>> round(lower_constant(problem), 3)
    45.815
    """
    if has_cells(problem.channels):
        separations = [
            (gap, cell_divergence(channel, mean, max(problem.means)))
            for gap, mean, channel in zip(
                problem.gaps, problem.means, problem.channels, strict=True
            )
        ]
        return math.fsum(_ratio(gap, separation) for gap, separation in separations if gap > 0)
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


@dataclass(frozen=True, kw_only=True)
class Identification:
    """How long it takes to name the best arm, at the least.

    `reports` bounds the expected number of reports from below; `constant` is T*, the same per unit
    of kl(δ, 1 − δ); `shares` has the share of the reports that each arm gets where T* is attained.
    """

    reports: float
    constant: float
    shares: dict[Hashable, float]


def identification_time(problem: Problem, delta: float = 0.05) -> Identification:
    """Return the least expected number of reports until the best arm is named.

    A rule may show arms and stop as it likes, but must err with probability at most δ on every
    problem with these channels. It needs at least T*·kl(δ, 1 − δ) reports on this problem, where

        1/T* = max over shares w of min over arms b ≠ 1 of min over x in [μ_b, μ_1] of
               w_1·d(λ_1, g_1(x)) + w_b·d(λ_b, g_b(x)),

    by Theorem 1 of Garivier and Kaufmann (*Optimal Best Arm Identification with Fixed Confidence*,
    COLT 2016), applied to feedback. It holds at every δ. For one arm of 6 % and four of 5 %, at
    epsilon = 1:

    >>> channel = RandomizedResponse.from_epsilon(1)
    >>> time = identification_time(Problem([0.06, 0.05, 0.05, 0.05, 0.05], channel))
    >>> round(time.reports), round(time.constant)
    (464184, 175164)
    >>> [round(share, 4) for share in time.shares.values()]
    [0.333, 0.1668, 0.1668, 0.1668, 0.1668]

    Channels may differ, decrease and be tables; the minimum over x is the global one. The relative
    error of T* is below 1e-9 where mean feedbacks differ by 1e-6 or more. With tables, several
    shares may attain T*; these are some of them.

    If two arms share the largest mean, or mean feedbacks differ by less than a double can tell, no
    number of reports is enough: `reports` and `constant` are infinite and the shares NaN, as none
    are better than others. At δ = ½ a guess between two arms will do, and `reports` is 0.
    """
    reason = "a probability of error must be above 0, and at most 0.5, where a guess will do"
    error = real_number("delta", delta, reason, least=5e-324, most=0.5)
    if len(problem.names) < 2:
        raise InvalidInput("problem", problem, "a single arm is the best one: give two or more")
    evidence = (1 - 2 * error) * (math.log1p(-error) - math.log(error))
    reports_by_arm = _least_reports(problem)
    constant = math.fsum(reports_by_arm)
    return Identification(
        reports=constant * evidence if evidence > 0 else 0.0,
        constant=constant,
        shares={
            name: reports / constant if constant < math.inf else math.nan
            for name, reports in zip(problem.names, reports_by_arm, strict=True)
        },
    )


def _least_reports(problem: Problem) -> list[float]:
    """Return n_a = T*·w_a by arm, or infinities.

    They minimise Σ n_a subject to n_1·d_1(x) + n_b·d_b(x) ≥ 1 for all b and x, where d_a(x) is
    d(λ_a, g_a(x)). Given n_1, arm b needs n_b = max over x of (1 − n_1·d_1(x))/d_b(x), at x_b say.
    This is a maximum of affine functions of n_1, so it is convex, with slope −d_1(x_b)/d_b(x_b):
    n_1 is best where these slopes add up to −1.
    """
    arms, best = len(problem.names), problem.gaps.index(0.0)
    kind = _CellPair if has_cells(problem.channels) else _Pair
    pairs = [kind(problem, best, rival) for rival in range(arms) if rival != best]
    # At x = μ_b only the best arm tells, which bounds n_1 from below. If all arms get the same n,
    # then at any x one of the two tells at least what it tells in the middle: a bound from above,
    # infinite where two arms share the largest mean.
    low = max(_ratio(1.0, pair.from_best_at_rival) for pair in pairs)
    high = arms * max(_ratio(1.0, pair.least_at_middle) for pair in pairs)
    if high == math.inf:
        return [math.inf] * arms
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if math.fsum(pair.reports(middle)[1] for pair in pairs) > 1:
            low = middle
        else:
            high = middle
    needed = [pair.reports(high)[0] for pair in pairs]
    return [*needed[:best], high, *needed[best:]]


class _Pair:
    """The best arm and a rival b, at points x from μ_b to μ_1 between which both g are affine.

    `feedback` and `divergences` hold g(x) and d(x), a row for each of the two. Between two points
    d_1 and d_b are convex, so (1 − n_1·d_1)/d_b rises up to one maximum and then falls.
    """

    def __init__(self, problem: Problem, best: int, rival: int) -> None:
        channels = of_bits(problem.channels)
        tables = [_table(channels[k]) for k in (best, rival)]
        lowest, highest = problem.means[rival], problem.means[best]
        knots = np.concatenate([xs for xs, _ in tables])
        within = knots[(lowest < knots) & (knots < highest)]
        points = np.unique(np.concatenate([[lowest, highest], within]))
        self.feedback = np.array([np.interp(points, xs, ys) for xs, ys in tables])
        self.means = float(self.feedback[0, -1]), float(self.feedback[1, 0])
        self.divergences = np.array(
            [
                [divergence(mean, level) for level in row]
                for mean, row in zip(self.means, self.feedback.tolist(), strict=True)
            ]
        )
        self.from_best_at_rival = float(self.divergences[0, 0])
        middle = (lowest + highest) / 2
        self.least_at_middle = min(
            divergence(mean, float(np.interp(middle, xs, ys)))
            for mean, (xs, ys) in zip(self.means, tables, strict=True)
        )

    def reports(self, on_best: float) -> tuple[float, float]:
        """Return n_b = max over x of (1 − n_1·d_1(x))/d_b(x), and d_1(x)/d_b(x) there."""
        d_best, d_rival = self.divergences
        steps = np.diff(self.feedback)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(d_rival > 0, (1 - on_best * d_best) / d_rival, -math.inf)
            rises = self._rises(on_best, self.feedback[:, :-1], self.divergences[:, :-1], steps)
            falls = ~self._rises(on_best, self.feedback[:, 1:], self.divergences[:, 1:], steps)
            inner = [self._inner_top(on_best, k) for k in np.flatnonzero(rises & falls).tolist()]
        top = int(np.argmax(values))
        return max([(float(values[top]), _ratio(d_best[top], d_rival[top])), *inner])

    def _inner_top(self, on_best: float, piece: int) -> tuple[float, float]:
        """The same on the piece from this point to the next, by bisection."""
        start, end = self.feedback[:, piece], self.feedback[:, piece + 1]
        left, right = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            levels = start + middle * (end - start)
            d_best, d_rival = map(divergence, self.means, levels)
            if self._rises(on_best, levels, (d_best, d_rival), end - start):
                left = middle
            else:
                right = middle
        return _ratio(1 - on_best * d_best, d_rival), _ratio(d_best, d_rival)

    def _rises(self, on_best: float, levels: Any, divergences: Any, steps: Any) -> Any:
        """Whether (1 − n_1·d_1)/d_b increases with x, from d' = (g − λ)·g'/(g·(1 − g)).

        The comparison is false where it meets a NaN: at the end at which d_b is infinite, where the
        ratio has fallen to 0, and at x = μ_1 for λ_1 of 0 or 1, a point that `reports` looks at.
        """
        mean_best, mean_rival = self.means
        (g_best, g_rival), (d_best, d_rival) = levels, divergences
        rest = 1 - on_best * d_best
        gain = on_best * d_rival * ((mean_best - g_best) / (g_best * (1 - g_best)) * steps[0])
        loss = rest * ((g_rival - mean_rival) / (g_rival * (1 - g_rival)) * steps[1])
        return (rest <= 0) | (gain > loss)


class _CellPair:
    """The best arm and a rival b whose reports fall into cells; d is smooth and convex."""

    def __init__(self, problem: Problem, best: int, rival: int) -> None:
        self._two = [(problem.channels[k], problem.means[k]) for k in (best, rival)]
        self._span = problem.means[rival], problem.means[best]
        self.from_best_at_rival = cell_divergence(*self._two[0], self._span[0])
        middle = sum(self._span) / 2
        self.least_at_middle = min(cell_divergence(*one, middle) for one in self._two)

    def reports(self, on_best: float) -> tuple[float, float]:
        """Return n_b = max over x of (1 − n_1·d_1(x))/d_b(x), and d_1(x)/d_b(x) there."""
        low, high = self._span
        for _ in range(_HALVINGS):
            x = (low + high) / 2
            d_best, d_rival = (cell_divergence(*one, x) for one in self._two)
            steep_best, steep_rival = (cell_steepness(*one, x) for one in self._two)
            rest = 1 - on_best * d_best
            if rest <= 0 or -on_best * steep_best * d_rival > rest * steep_rival:
                low = x
            else:
                high = x
        return _ratio(1 - on_best * d_best, d_rival), _ratio(d_best, d_rival)


def _table(channel: Channel) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The points between which the channel is affine."""
    if isinstance(channel, Monotone):
        return channel.xs, channel.ys
    return (0.0, 1.0), (channel.mean_feedback(0.0), channel.mean_feedback(1.0))


def _gaps_and_feedback(problem: Problem) -> list[tuple[float, float, float]]:
    """Per suboptimal arm: Δ_a, λ_a, g_a(μ_1)."""
    best = max(problem.means)
    arms = zip(problem.gaps, problem.feedback_means, of_bits(problem.channels), strict=True)
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
