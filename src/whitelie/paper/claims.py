"""What the paper says of its experiments, each statement checked by a rule on the numbers.

A rule measures quantities with intervals and says of each whether the statement holds for it:
yes if the whole interval says so, no if the whole interval says the opposite, else it is open. If
all hold, the statement is reproduced; if all fail, it is not; anything between is a caveat. The
intervals of one finding hold together at 95 % (Bonferroni).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from whitelie.bands import t_interval
from whitelie.bounds import Form, local_privacy_bound, lower_constant
from whitelie.paper import settings
from whitelie.paper.runs import decades
from whitelie.problem import Problem
from whitelie.result import Result

Verdict = Literal["reproduced", "reproduced with a caveat", "not reproduced"]

LINEAR = 8.0
"""Regret that grows at least so much when time grows tenfold is called linear: T^0.9 or more."""

LOGARITHMIC = 3.0
"""A decade may add at most so many times what the one before added; √T adds 3.2 times."""

FLAT = 0.5
"""A plateau: regret falls with less than this power of epsilon. Corollary 3 has the power 2."""

SATURATED = 0.8
"""Regret above this share of uniform play's is limited by the horizon."""

OPTIMAL = 0.25
"""The slope against ln T is Theorem 1's constant up to this share."""


@dataclass(frozen=True)
class Measurement:
    """A measured quantity, its interval, and whether the statement holds for it (None: open)."""

    of: str
    value: float
    lower: float
    upper: float
    holds: bool | None

    def __str__(self) -> str:
        low, high = _short(self.lower), _short(self.upper)
        return f"{self.of}: {_short(self.value)} [{low}, {high}]"


@dataclass(frozen=True)
class Finding:
    """What was measured on one problem."""

    title: str
    measurements: tuple[Measurement, ...]
    verdict: Verdict

    @property
    def measured(self) -> str:
        """All measurements in words; those for which the statement fails or is open are marked."""
        marks = {True: "", False: " ✗", None: " ?"}
        return "; ".join(f"{each}{marks[each.holds]}" for each in self.measurements)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, where it stands, what was found and what follows."""

    id: str
    where: str
    says: str
    rule: str
    verdict: Verdict
    why: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Rule:
    """How a statement is checked: on which pictures, by which measurements, and what it means."""

    id: str
    where: str
    says: str
    pictures: tuple[str, ...]
    rule: str
    measure: Callable[[Result], list[Measurement]]
    why: Mapping[Verdict, str]

    def examine(self, picture: str, result: Result) -> Finding:
        """Return what one picture's result says of the statement."""
        measurements = tuple(self.measure(result))
        verdict = combined(each.holds for each in measurements)
        return Finding(title_of(picture), measurements, verdict)

    def conclude(self, findings: Sequence[Finding]) -> Claim:
        """Return the statement with its verdict over all findings."""
        holds = [each.holds for finding in findings for each in finding.measurements]
        verdict = combined(holds)
        why = self.why[verdict]
        return Claim(self.id, self.where, self.says, self.rule, verdict, why, tuple(findings))


def examine(picture: str, result: Result) -> dict[str, Finding]:
    """Return what a picture's result says of each statement that rests on it, by the rule's id."""
    return {rule.id: rule.examine(picture, result) for rule in RULES if picture in rule.pictures}


def conclude(examined: Iterable[Mapping[str, Finding]]) -> list[Claim]:
    """Return all statements of which the examined pictures can speak."""
    every = list(examined)
    claims = []
    for rule in RULES:
        findings = [findings[rule.id] for findings in every if rule.id in findings]
        if findings:
            claims.append(rule.conclude(findings))
    return claims


def combined(holds: Iterable[bool | None]) -> Verdict:
    """Return the verdict on a statement from whether it holds for each of its measurements.

    >>> combined([True, True]), combined([True, None]), combined([False, False])
    ('reproduced', 'reproduced with a caveat', 'not reproduced')
    """
    kinds = set(holds)
    if kinds == {True}:
        return "reproduced"
    return "not reproduced" if kinds == {False} else "reproduced with a caveat"


def title_of(picture: str) -> str:
    """Return the name of the problem that a picture shows."""
    if picture in settings.PANELS:
        return settings.SCENARIOS[int(picture[0]) - 1].title
    return f"{settings.ASYMPTOTIC_SCENARIO.title}, ε = {settings.ASYMPTOTIC_EPSILON:g}"


def linear_growth(result: Result) -> list[Measurement]:
    """Naive policies: regret at T over regret at T/10."""
    _, tenth, last = decades(result.horizon)
    names = _labels(settings.NAIVE)
    ratios = [_ratio(_at(result, name, last), _at(result, name, tenth)) for name in names]
    return _judged(names, ratios, least=LINEAR)


def logarithmic_growth(result: Result) -> list[Measurement]:
    """Corrected policies: what the last decade added over what the one before added."""
    hundredth, tenth, last = decades(result.horizon)
    names = _labels(settings.CORRECTED)
    ratios = [
        _ratio(
            _at(result, name, last) - _at(result, name, tenth),
            _at(result, name, tenth) - _at(result, name, hundredth),
        )
        for name in names
    ]
    return _judged(names, ratios, most=LOGARITHMIC)


def excess(result: Result, others: Sequence[Any]) -> dict[str, tuple[xr.DataArray, xr.DataArray]]:
    """Return the regret of each policy above its corrected kin, at T/10 and at T."""
    _, tenth, last = decades(result.horizon)
    pairs = zip(_labels(others), _labels(settings.CORRECTED), strict=True)
    return {
        f"{other} − {own}": (
            _at(result, other, tenth) - _at(result, own, tenth),
            _at(result, other, last) - _at(result, own, last),
        )
        for other, own in pairs
    }


def wrapped_excess(result: Result) -> list[Measurement]:
    """WRAPPER's regret above that of the corrected policy of the same rule, at T."""
    found = {name: last for name, (_, last) in excess(result, settings.WRAPPED).items()}
    return _judged(found, found.values(), least=0)


def naive_excess(result: Result) -> list[Measurement]:
    """Naive regret above that of the corrected policy of the same rule, at T."""
    found = {name: last for name, (_, last) in excess(result, settings.NAIVE).items()}
    return _judged(found, found.values(), least=0)


def widening(result: Result) -> list[Measurement]:
    """How much the last decade added to those differences."""
    both = excess(result, settings.WRAPPED) | excess(result, settings.NAIVE)
    added = {name: last - tenth for name, (tenth, last) in both.items()}
    return _judged(added, added.values(), least=0)


def fall(result: Result) -> list[Measurement]:
    """Regret at each epsilon minus regret at the next larger one."""
    falls = {}
    for name in _labels(settings.AGAINST_EPSILON):
        regret = _last(result, name)
        for low, high in zip(settings.EPSILONS, settings.EPSILONS[1:], strict=False):
            step = f"{name}, ε {low:g} → {high:g}"
            falls[step] = regret.sel(epsilon=low) - regret.sel(epsilon=high)
    return _judged(falls, falls.values(), least=0)


def plateau(result: Result, low: float, high: float) -> dict[str, xr.DataArray]:
    """Return the power of 1/epsilon with which each policy's regret falls from low to high."""
    powers = {}
    for name in _labels(settings.AGAINST_EPSILON):
        regret = _last(result, name)
        ratio = _log_ratio(regret.sel(epsilon=low), regret.sel(epsilon=high))
        powers[name] = ratio / math.log(high / low)
    return powers


def low_plateau(result: Result) -> list[Measurement]:
    """The power of the fall from the smallest epsilon to the next; open where play is uniform."""
    powers = plateau(result, *settings.EPSILONS[:2])
    found = _judged(powers, powers.values(), most=FLAT)
    uniform = uniform_play(result.problems[0], result.horizon)
    return [
        _open_if(each, _last(result, each.of)[0].mean() > SATURATED * uniform and each.holds)
        for each in found
    ]


def high_plateau(result: Result) -> list[Measurement]:
    """The power of the fall from the second largest epsilon to the largest."""
    powers = plateau(result, *settings.EPSILONS[-2:])
    return _judged(powers, powers.values(), most=FLAT)


def share_of_bound(form: Form) -> Callable[[Result], list[Measurement]]:
    """Regret over Corollary 3's bound; open where the bound is above what any policy can lose."""

    def measure(result: Result) -> list[Measurement]:
        problem, horizon = result.problems[0], result.horizon
        worst = max(problem.gaps) * horizon
        shares, vacuous = {}, []
        for name in _labels(settings.AGAINST_EPSILON):
            for epsilon in settings.EPSILONS:
                bound = local_privacy_bound(problem, epsilon, horizon, form=form)
                shares[f"{name}, ε {epsilon:g}"] = _last(result, name).sel(epsilon=epsilon) / bound
                vacuous.append(bound >= worst)
        found = _judged(shares, shares.values(), most=1)
        return [_open_if(each, none) for each, none in zip(found, vacuous, strict=True)]

    return measure


def local_excess(public: str) -> Callable[[Result], list[Measurement]]:
    """Regret of the locally private policies minus that of a globally private one, at T."""

    def measure(result: Result) -> list[Measurement]:
        found = {
            f"{local} − {public}": _last(result, local) - _last(result, public)
            for local in _labels(settings.AGAINST_EPSILON)
        }
        return _judged(found, found.values(), least=0)

    return measure


def slope(result: Result) -> list[Measurement]:
    """The last decade's slope against ln T, over Theorem 1's constant."""
    _, tenth, last = decades(result.horizon)
    unit = math.log(10) * lower_constant(result.problem)
    slopes = {
        name: (_at(result, name, last) - _at(result, name, tenth)) / unit
        for name in settings.OPTIMALITY
    }
    return _judged(slopes, slopes.values(), least=1 - OPTIMAL, most=1 + OPTIMAL)


def uniform_play(problem: Problem, horizon: int) -> float:
    """Return the regret of pulling all arms equally often."""
    return float(np.mean(problem.gaps)) * horizon


def _panels(letter: str) -> tuple[str, ...]:
    return tuple(f"{scenario.figure}{letter}" for scenario in settings.SCENARIOS)


RULES = (
    Rule(
        id="naive-linear",
        where="section 6.1",
        says="Traditional bandit algorithms are unable to solve the corrupt bandit problem.",
        pictures=_panels("a"),
        rule=f"R(T)/R(T/10) of naive kl-UCB, UCB1 and TS is at least {LINEAR:g}: linear regret",
        measure=linear_growth,
        why={
            "reproduced": "The regret of every naive policy grows linearly: they settle on arms "
            "that look best through the noise. In scenario 1 the two arms look exactly alike "
            "(mean feedback .58), so that naive policies choose blindly.",
            "reproduced with a caveat": "The regret of naive policies grows linearly, but not "
            "for all of them, or too few replicates were run to tell.",
            "not reproduced": "The regret of no naive policy grows linearly.",
        },
    ),
    Rule(
        id="corrected-logarithmic",
        where="Theorems 2 and 3, Corollary 1, seen in section 6.1",
        says="The regret of kl-UCB-CF, UCB-CF and TS-CF is logarithmic.",
        pictures=_panels("a"),
        rule="the last decade of time adds at most "
        f"{LOGARITHMIC:g} times what the decade before added (linear regret adds 10 times)",
        measure=logarithmic_growth,
        why={
            "reproduced": "Each decade of time adds about as much as the one before.",
            "reproduced with a caveat": "No curve is near linear, but on some problems the last "
            "decade adds more, or the interval leaves it open. kl-UCB-CF and UCB-CF first pull the "
            "noisiest arm, which is the best, and so begin to lose late; single runs of TS-CF "
            "lose much after a bad start, so that its mean is known less well.",
            "not reproduced": "Every decade of time adds several times what the one before added.",
        },
    ),
    Rule(
        id="wrapper-worse",
        where="section 6",
        says="WRAPPER performs worse than the proposed algorithms, even with linear corruption.",
        pictures=_panels("a"),
        rule="at T, WR's regret minus that of the corrected policy of the same rule is above 0",
        measure=wrapped_excess,
        why={
            "reproduced": "WRAPPER finds the best arm, but pays for treating a wide range of "
            "inverted bits as if it were a reward's own. UCB-CF and WR(UCB1) are compared too.",
            "reproduced with a caveat": "WRAPPER is worse in most comparisons, not in all.",
            "not reproduced": "WRAPPER is nowhere worse.",
        },
    ),
    Rule(
        id="naive-worse",
        where="section 6.1",
        says="The proposed algorithms have lower regret than algorithms that ignore corruption.",
        pictures=_panels("a"),
        rule="at T, naive regret minus that of the corrected policy of the same rule is above 0",
        measure=naive_excess,
        why={
            "reproduced": "By one to three orders of magnitude.",
            "reproduced with a caveat": "Naive policies are worse in most comparisons, not in all.",
            "not reproduced": "Naive policies are nowhere worse.",
        },
    ),
    Rule(
        id="superiority-grows",
        where="section 6.1",
        says="The superiority of the proposed algorithms is more pronounced as time increases.",
        pictures=_panels("a"),
        rule="those differences are larger at T than at T/10",
        measure=widening,
        why={
            "reproduced": "All differences are still growing at T.",
            "reproduced with a caveat": "Most differences are still growing at T, not all surely.",
            "not reproduced": "No difference grows.",
        },
    ),
    Rule(
        id="falls-with-epsilon",
        where="section 6.2",
        says="The regret of kl-UCB-CF and TS-CF decreases with increasing ε.",
        pictures=_panels("b"),
        rule="regret at each ε minus regret at the next larger one is above 0",
        measure=fall,
        why={
            "reproduced": "At every step, in every problem.",
            "reproduced with a caveat": "It falls from step to step; where the interval leaves it "
            "open, the step is small: there is hardly any noise left to lose.",
            "not reproduced": "Regret does not fall anywhere.",
        },
    ),
    Rule(
        id="plateau-low",
        where="section 6.2",
        says="For ε < 1/4 the regret tends to plateau, as a change in ε changes privacy little.",
        pictures=_panels("b"),
        rule=f"from ε = 1/8 to 1/4 regret falls with a power of 1/ε below {FLAT:g} (theory: 2); "
        f"open if regret is above {SATURATED:.0%} of uniform play's, the most a horizon allows",
        measure=low_plateau,
        why={
            "reproduced": "Regret is flat at small ε, away from what the horizon allows.",
            "reproduced with a caveat": "Where there is a plateau it is the horizon's: at ε = 1/8 "
            "the policies still play almost uniformly at T, and regret cannot exceed that. It is "
            "no property of privacy: the constant of ln T goes on growing as 1/ε², and problems "
            "that can be learned within the horizon show no plateau.",
            "not reproduced": "Regret goes on falling with ε at the low end; there is no plateau.",
        },
    ),
    Rule(
        id="plateau-high",
        where="section 6.2",
        says="For ε > 4 the regret tends to plateau.",
        pictures=_panels("b"),
        rule=f"from ε = 4 to 8 regret falls with a power of 1/ε below {FLAT:g}",
        measure=high_plateau,
        why={
            "reproduced": "This plateau is real: at ε = 4 an answer is truthful with probability "
            ".982, and more truth can hardly help.",
            "reproduced with a caveat": "Regret flattens, but not for all policies and problems, "
            "or too few replicates were run to tell.",
            "not reproduced": "Regret is still falling steeply.",
        },
    ),
    Rule(
        id="below-printed-bound",
        where="section 6.2, Corollary 3",
        says="The regret lies below the upper bound UB (2·ln T/(Δ·slope²), as printed).",
        pictures=_panels("b"),
        rule="regret over the bound is below 1; open where the bound exceeds Δ·T, what the worst "
        "arm alone would cost",
        measure=share_of_bound("printed"),
        why={
            "reproduced": "Everywhere, with room to spare.",
            "reproduced with a caveat": "It is never above the bound; but at small ε the printed "
            "bound exceeds what any policy can lose, and says nothing.",
            "not reproduced": "Regret exceeds the bound.",
        },
    ),
    Rule(
        id="below-tight-bound",
        where="Corollary 3, with the constant that Pinsker's inequality gives",
        says="(Ours.) Pinsker's inequality gives ln T/(2·Δ·slope²), a quarter of what is printed.",
        pictures=_panels("b"),
        rule="as for the printed bound",
        measure=share_of_bound("tight"),
        why={
            "reproduced": "Regret is below the tight leading term too.",
            "reproduced with a caveat": "Regret is below the tight leading term nearly everywhere; "
            "where it is not, or is open, remember that terms of lower order are left out of it, "
            "and that at small ε it exceeds what any policy can lose.",
            "not reproduced": "Regret exceeds the tight leading term.",
        },
    ),
    Rule(
        id="global-lower",
        where="section 6.3",
        says="Lower regret for achieving global privacy is to be expected.",
        pictures=_panels("c"),
        rule="at T, regret of kl-UCB-CF and TS-CF at ε = 1 minus that of DP-UCB-INT with input "
        "ε = 1 is above 0",
        measure=local_excess("DP-UCB-INT"),
        why={
            "reproduced": "DP-UCB-INT, which sees true rewards, loses less.",
            "reproduced with a caveat": "DP-UCB-INT, which sees true rewards, loses less in some "
            "comparisons only, or too few replicates were run to tell.",
            "not reproduced": "DP-UCB-INT, though it sees true rewards, loses more than the local "
            "algorithms, which see randomised answers: now and then its noise hides the best arm "
            "for the whole run. Its true guarantee is far weaker than its input ε = 1 suggests.",
        },
    ),
    Rule(
        id="global-calibrated-lower",
        where="section 6.3, with a total privacy of ε = 1",
        says="(Ours.) DP-UCB-INT, calibrated so that its total is ε = 1, has lower regret.",
        pictures=_panels("c"),
        rule="as for DP-UCB-INT as published",
        measure=local_excess("DP-UCB-INT, calibrated"),
        why={
            "reproduced": "Seeing true rewards pays: it loses less than both local algorithms.",
            "reproduced with a caveat": "Neither side wins everywhere: it depends on the problem, "
            "and on which local algorithm is compared.",
            "not reproduced": "It loses more than both local algorithms.",
        },
    ),
    Rule(
        id="optimality",
        where="Theorems 1, 2 and 3",
        says="kl-UCB-CF and TS-CF are asymptotically optimal: R(T)/ln T tends to Theorem 1's "
        "constant.",
        pictures=("optimality",),
        rule="the slope against ln T over the last decade, divided by the constant, lies within "
        f"{OPTIMAL:.0%} of 1",
        measure=slope,
        why={
            "reproduced": "The slope has come near the constant. The c·ln ln T of kl-UCB-CF "
            "vanishes slowly against ln T.",
            "reproduced with a caveat": "The slope comes near the constant, but not as near for "
            "all: with Theorem 2's c = 3 the term c·ln ln T vanishes slowly against ln T.",
            "not reproduced": "The slope is far from the constant even after so long a time.",
        },
    ),
)


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
    return math.log(top / bottom) + above / top - below / bottom


def _judged(
    names: Iterable[str],
    replicates: Iterable[xr.DataArray],
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> list[Measurement]:
    """Return the means with intervals; a statement holds for those between least and most."""
    every = dict(zip(names, replicates, strict=True))
    judged = []
    for name, values in every.items():
        found = t_interval(values, statements=len(every))
        value, lower, upper = (float(found[key]) for key in ("mean", "lower", "upper"))
        holds = None
        if lower >= least and upper <= most:
            holds = True
        elif upper < least or lower > most:
            holds = False
        judged.append(Measurement(name, value, lower, upper, holds))
    return judged


def _open_if(measurement: Measurement, condition: Any) -> Measurement:
    if not bool(condition):
        return measurement
    return Measurement(**{**vars(measurement), "holds": None})


def _short(value: float) -> str:
    """Return the number with three digits, or whole.

    >>> _short(0.12345), _short(12.345), _short(12345.6)
    ('0.123', '12.3', '12,346')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
