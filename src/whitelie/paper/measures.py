"""What the checks measure: growth, differences, plateaus, shares of bounds, slopes.

Each takes a figure's result and returns its measurements, judged by the constants here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from whitelie.bounds import Form, lower_constant, randomized_response_bound
from whitelie.paper import experiments
from whitelie.paper.claims import Measurement
from whitelie.paper.runs import decades
from whitelie.problem import Problem
from whitelie.simulation.intervals import t_interval
from whitelie.simulation.result import Result

LEAST_LINEAR_GROWTH = 8.0
"""Regret is called linear if it grows by this factor when time grows tenfold: T^0.9 or more."""

MOST_LOGARITHMIC_GROWTH = 3.0
"""A decade may add at most so many times what the decade before added; √T adds 3.2 times."""

MOST_PLATEAU_POWER = 0.25
"""On a plateau regret falls with less than this power of 1/epsilon; Corollary 3 has power 2."""

SATURATED_SHARE = 0.8
"""Regret above this share of uniform play's is limited by the horizon."""

OPTIMAL_TOLERANCE = 0.25
"""An optimal policy's slope against ln T differs from Theorem 1's constant by less."""


def linear_growth(result: Result) -> list[Measurement]:
    """Naive policies: regret at T over regret at T/10."""
    _, tenth, last = decades(result.horizon)
    names = _labels(experiments.NAIVE)
    ratios = [_ratio(_at(result, name, last), _at(result, name, tenth)) for name in names]
    return _judged(names, ratios, least=LEAST_LINEAR_GROWTH)


def logarithmic_growth(result: Result) -> list[Measurement]:
    """Corrected policies: what the last decade added over what the one before added."""
    hundredth, tenth, last = decades(result.horizon)
    names = _labels(experiments.CORRECTED)
    ratios = [
        _ratio(
            _at(result, name, last) - _at(result, name, tenth),
            _at(result, name, tenth) - _at(result, name, hundredth),
        )
        for name in names
    ]
    return _judged(names, ratios, most=MOST_LOGARITHMIC_GROWTH)


def excess(result: Result, others: Sequence[Any]) -> dict[str, tuple[xr.DataArray, xr.DataArray]]:
    """Return the regret of each policy above its corrected kin, at T/10 and at T."""
    _, tenth, last = decades(result.horizon)
    pairs = zip(_labels(others), _labels(experiments.CORRECTED), strict=True)
    return {
        f"{other} − {own}": (
            _at(result, other, tenth) - _at(result, own, tenth),
            _at(result, other, last) - _at(result, own, last),
        )
        for other, own in pairs
    }


def wrapped_excess(result: Result) -> list[Measurement]:
    """WRAPPER's regret above that of the corrected policy of the same rule, at T."""
    at_end = {name: last for name, (_, last) in excess(result, experiments.WRAPPED).items()}
    return _judged(at_end, at_end.values(), least=0)


def naive_excess(result: Result) -> list[Measurement]:
    """Naive regret above that of the corrected policy of the same rule, at T."""
    at_end = {name: last for name, (_, last) in excess(result, experiments.NAIVE).items()}
    return _judged(at_end, at_end.values(), least=0)


def widening(result: Result) -> list[Measurement]:
    """How much the last decade added to those differences."""
    both = excess(result, experiments.WRAPPED) | excess(result, experiments.NAIVE)
    added = {name: last - tenth for name, (tenth, last) in both.items()}
    return _judged(added, added.values(), least=0)


def fall(result: Result) -> list[Measurement]:
    """Regret at each epsilon minus regret at the next larger one."""
    falls = {}
    for name in _labels(experiments.AGAINST_EPSILON):
        regret = _last(result, name)
        for low, high in zip(experiments.EPSILONS, experiments.EPSILONS[1:], strict=False):
            step = f"{name}, ε {low:g} → {high:g}"
            falls[step] = regret.sel(epsilon=low) - regret.sel(epsilon=high)
    return _judged(falls, falls.values(), least=0)


def plateau(result: Result, low: float, high: float) -> dict[str, xr.DataArray]:
    """Return the power of 1/epsilon with which each policy's regret falls from low to high."""
    powers = {}
    for name in _labels(experiments.AGAINST_EPSILON):
        regret = _last(result, name)
        ratio = _log_ratio(regret.sel(epsilon=low), regret.sel(epsilon=high))
        powers[name] = ratio / math.log(high / low)
    return powers


def low_plateau(result: Result) -> list[Measurement]:
    """The power of the fall from the smallest epsilon to the next, unless play is uniform there."""
    powers = plateau(result, *experiments.EPSILONS[:2])
    measured = _judged(powers, powers.values(), most=MOST_PLATEAU_POWER)
    uniform = uniform_play(result.problems[0], result.horizon)
    return [
        replace(each, counts=not (each.holds and _saturated(result, each.of, uniform)))
        for each in measured
    ]


def _saturated(result: Result, policy: str, uniform: float) -> bool:
    return bool(_last(result, policy)[0].mean() > SATURATED_SHARE * uniform)


def high_plateau(result: Result) -> list[Measurement]:
    """The power of the fall from the second largest epsilon to the largest."""
    powers = plateau(result, *experiments.EPSILONS[-2:])
    return _judged(powers, powers.values(), most=MOST_PLATEAU_POWER)


def share_of_bound(form: Form) -> Callable[[Result], list[Measurement]]:
    """Regret over Corollary 3's bound, which says nothing above what any policy can lose."""

    def measure(result: Result) -> list[Measurement]:
        problem, horizon = result.problems[0], result.horizon
        worst = max(problem.gaps) * horizon
        shares, vacuous = {}, []
        for name in _labels(experiments.AGAINST_EPSILON):
            for epsilon, private in zip(experiments.EPSILONS, result.problems, strict=True):
                bound = randomized_response_bound(private, float(horizon), form=form)
                shares[f"{name}, ε {epsilon:g}"] = _last(result, name).sel(epsilon=epsilon) / bound
                vacuous.append(bound >= worst)
        judged = _judged(shares, shares.values(), most=1)
        pairs = zip(judged, vacuous, strict=True)
        return [replace(each, counts=not says_nothing) for each, says_nothing in pairs]

    return measure


def local_excess(public: str) -> Callable[[Result], list[Measurement]]:
    """Regret of the locally private policies minus that of a globally private one, at T."""

    def measure(result: Result) -> list[Measurement]:
        differences = {
            f"{local} − {public}": _last(result, local) - _last(result, public)
            for local in _labels(experiments.AGAINST_EPSILON)
        }
        return _judged(differences, differences.values(), least=0)

    return measure


def slopes(result: Result) -> dict[str, xr.DataArray]:
    """Return each policy's slope against ln T over the last decade, over Theorem 1's constant."""
    _, tenth, last = decades(result.horizon)
    unit = math.log(last / tenth) * lower_constant(result.problem)
    return {
        name: (_at(result, name, last) - _at(result, name, tenth)) / unit
        for name in result.policies
    }


def slope(result: Result) -> list[Measurement]:
    """The slopes of the policies that the theorems are about."""
    chosen = {name: slopes(result)[name] for name in ("kl-UCB-CF", "TS-CF")}
    return _judged(chosen, chosen.values(), least=1 - OPTIMAL_TOLERANCE, most=1 + OPTIMAL_TOLERANCE)


def uniform_play(problem: Problem, horizon: int) -> float:
    """Return the regret of pulling all arms equally often."""
    return float(np.mean(problem.gaps)) * horizon


def _labels(policies: Sequence[Any]) -> list[str]:
    return [policy.label for policy in policies]


def _at(result: Result, policy: str, time: int) -> xr.DataArray:
    return result.regret.sel(policy=policy, time=time, drop=True)


def _last(result: Result, policy: str) -> xr.DataArray:
    return _at(result, policy, result.horizon)


def _ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    """Return replicates whose mean and spread are those of the ratio of means (delta method)."""
    ratio = above.mean("replicate") / below.mean("replicate")
    return ratio + (above - ratio * below) / below.mean("replicate")


def _log_ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    """Return replicates whose mean and spread are those of the log of the ratio of means."""
    top, bottom = above.mean("replicate"), below.mean("replicate")
    log_ratio: xr.DataArray = xr.ufuncs.log(top) - xr.ufuncs.log(bottom)
    return log_ratio + above / top - below / bottom


def _judged(
    names: Iterable[str],
    replicates: Iterable[xr.DataArray],
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> list[Measurement]:
    """Return the means with intervals; a statement holds for those between least and most."""
    every = dict(zip(names, replicates, strict=True))
    statements = len(every) * len(experiments.SCENARIOS)
    judged = []
    for name, values in every.items():
        interval = t_interval(values, statements=statements)
        value, lower, upper = (float(interval[key]) for key in ("mean", "lower", "upper"))
        if not math.isfinite(value + lower + upper):
            judged.append(Measurement(name, None, None, None, None))
            continue
        holds = None
        if lower >= least and upper <= most:
            holds = True
        elif upper < least or lower > most:
            holds = False
        judged.append(Measurement(name, value, lower, upper, holds))
    return judged
