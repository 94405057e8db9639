"""Verdicts come from numbers: what the paper describes is reproduced, falsified data is not."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

import numpy as np
import pytest
from numpy.typing import NDArray

from whitelie.bounds import local_privacy_bound, lower_constant
from whitelie.paper import claims, experiments, measures, statements
from whitelie.paper.runs import Run, decades
from whitelie.problem import Problem
from whitelie.simulation.intervals import t_interval
from whitelie.simulation.result import Result

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]

SCENARIO = experiments.SCENARIOS[2]
GAP = 0.1
HORIZON = experiments.HORIZON
REPLICATES = 40
NAIVE = [policy.label for policy in experiments.NAIVE]
WRAPPED = [policy.label for policy in experiments.WRAPPED]
CORRECTED = [policy.label for policy in experiments.CORRECTED]
LOCAL = [policy.label for policy in experiments.AGAINST_EPSILON]


def linear(slope: float) -> Curve:
    return lambda t: slope * t


def logarithmic(factor: float) -> Curve:
    return lambda t: factor * np.log1p(t)


def made_up(
    problem: Problem, curves: Mapping[str, Curve], horizon: int = HORIZON, spread: float = 0.02
) -> Result:
    """A result of two arms whose mean regret follows the curves, replicates apart by `spread`."""
    times = Run("", problem, {}, horizon, REPLICATES).checkpoints
    rng = np.random.default_rng(5)
    pulls = np.empty((len(curves), REPLICATES, len(times), 2), dtype=np.int64)
    for place, curve in enumerate(curves.values()):
        factors = 1 + spread * rng.standard_normal((REPLICATES, 1))
        wrong = np.rint(factors * curve(times.astype(float)) / GAP).astype(np.int64)
        pulls[place, :, :, 1] = np.clip(wrong, 0, times)
        pulls[place, :, :, 0] = times - pulls[place, :, :, 1]
    described = {name: {"name": name} for name in curves}
    return Result.from_pulls(
        pulls, problem=problem, policies=described, times=times.tolist(), seed=1, provenance={}
    )


def over_time(naive: Curve, wrapped: Curve, corrected: Curve) -> Result:
    curves = dict.fromkeys(CORRECTED, corrected) | dict.fromkeys(WRAPPED, wrapped)
    return made_up(SCENARIO.unequal_noise, curves | dict.fromkeys(NAIVE, naive))


def against_epsilon(regret: Callable[[float], float]) -> Result:
    """Panel b with a given regret at the horizon for each epsilon."""
    cells = [
        made_up(SCENARIO.private(eps), dict.fromkeys(LOCAL, linear(regret(eps) / HORIZON)))
        for eps in experiments.EPSILONS
    ]
    return Result.stack(cells, "epsilon", experiments.EPSILONS)


def local_and_global(local: float, public: float) -> Result:
    curves = dict.fromkeys(LOCAL, linear(local / HORIZON))
    curves |= dict.fromkeys(experiments.GLOBAL_PRIVACY, linear(public / HORIZON))
    return made_up(SCENARIO.private(1.0), curves)


def long_run(multiple: float) -> Result:
    """Regret whose slope against ln T is a multiple of Theorem 1's constant."""
    problem = SCENARIO.private(2.0)
    curve = logarithmic(multiple * lower_constant(problem))
    return made_up(problem, dict.fromkeys(experiments.OPTIMALITY, curve), 100 * HORIZON)


def tight(epsilon: float) -> float:
    return float(local_privacy_bound(SCENARIO.private(epsilon), epsilon, HORIZON))


def shares_of_bound(multiple: float) -> Result:
    """Panel b with regret that is a multiple of the tight bound, wherever that can be."""
    return against_epsilon(lambda epsilon: multiple * tight(epsilon))


AS_THE_PAPER_SAYS = over_time(linear(0.09), linear(0.02), logarithmic(20))
TURNED_AROUND = over_time(logarithmic(20), logarithmic(20), linear(0.05))
PLATEAU_AT_BOTH_ENDS = against_epsilon(lambda epsilon: 1000 - 100 * np.clip(epsilon, 0.25, 4))

CASES = [
    ("naive-linear", AS_THE_PAPER_SAYS, TURNED_AROUND),
    ("corrected-logarithmic", AS_THE_PAPER_SAYS, TURNED_AROUND),
    ("wrapper-worse", AS_THE_PAPER_SAYS, TURNED_AROUND),
    ("naive-worse", AS_THE_PAPER_SAYS, TURNED_AROUND),
    ("superiority-grows", AS_THE_PAPER_SAYS, TURNED_AROUND),
    (
        "falls-with-epsilon",
        against_epsilon(lambda epsilon: 900 / (1 + epsilon)),
        against_epsilon(lambda epsilon: 100 * (1 + epsilon)),
    ),
    ("plateau-low", PLATEAU_AT_BOTH_ENDS, against_epsilon(lambda epsilon: 100 / epsilon)),
    ("plateau-high", PLATEAU_AT_BOTH_ENDS, against_epsilon(lambda epsilon: 900 / epsilon)),
    (
        "global-lower",
        local_and_global(local=800, public=300),
        local_and_global(local=300, public=800),
    ),
    (
        "global-calibrated-lower",
        local_and_global(local=800, public=300),
        local_and_global(local=300, public=800),
    ),
    ("optimality", long_run(1.05), long_run(3)),
    ("below-printed-bound", shares_of_bound(2), shares_of_bound(6)),
    ("below-tight-bound", shares_of_bound(0.5), shares_of_bound(1.5)),
]


def concluded(rule_id: str, result: Result) -> claims.Claim:
    check = next(check for check in statements.CHECKS if check.id == rule_id)
    return check.conclude([check.examine(check.figures[0], result)])


def verdict(rule_id: str, result: Result) -> str:
    return concluded(rule_id, result).verdict


@pytest.mark.parametrize(("rule_id", "true", "false"), CASES, ids=[case[0] for case in CASES])
def test_a_true_statement_is_reproduced_and_a_falsified_one_is_not(
    rule_id: str, true: Result, false: Result
) -> None:
    assert verdict(rule_id, true) == "reproduced"
    assert verdict(rule_id, false) == "not reproduced"


def test_a_bound_above_all_that_can_be_lost_says_nothing() -> None:
    finding = statements.examine("3b", shares_of_bound(0.5))["below-printed-bound"]
    for each in finding.measurements:
        epsilon = float(each.of.split()[-1])
        assert each.counts is (4 * tight(epsilon) < GAP * HORIZON)
    assert {each.counts for each in finding.measurements} == {True, False}
    assert " –" in finding.measured


def test_every_check_is_tested_here() -> None:
    assert {case[0] for case in CASES} == {check.id for check in statements.CHECKS}


def test_a_plateau_that_the_horizon_makes_does_not_count() -> None:
    flat_at_uniform_play = against_epsilon(lambda epsilon: 4900 if epsilon < 0.3 else 500)
    assert verdict("plateau-low", flat_at_uniform_play) == "not reproduced"


def test_too_few_or_too_different_replicates_leave_it_open() -> None:
    noisy = made_up(
        SCENARIO.private(1.0),
        dict.fromkeys([*LOCAL, *experiments.GLOBAL_PRIVACY], linear(0.005)),
        spread=0.5,
    )
    claim = concluded("global-lower", noisy)
    assert claim.verdict == "not reproduced"
    assert claim.why.startswith("Holds for 0 of 2 measurements, is open for 2.")


def test_what_cannot_be_computed_is_open_and_valid_json() -> None:
    nothing_lost = over_time(linear(0.09), linear(0.02), linear(0))
    finding = statements.examine("3a", nothing_lost)["corrected-logarithmic"]
    assert all(each.value is None and each.holds is None for each in finding.measurements)
    assert "not defined" in finding.measured
    json.dumps(asdict(finding), allow_nan=False)


def test_one_exception_makes_a_caveat() -> None:
    curves = dict.fromkeys(CORRECTED, logarithmic(20)) | dict.fromkeys(WRAPPED, linear(0.02))
    mixed = made_up(
        SCENARIO.unequal_noise,
        curves | dict.fromkeys(NAIVE, linear(0.09)) | {"TS": logarithmic(20)},
    )
    finding = statements.examine("3a", mixed)["naive-linear"]
    assert finding.verdict == "reproduced with a caveat"
    assert [each.holds for each in finding.measurements] == [True, True, False]
    assert "TS: " in finding.measured
    assert finding.measured.endswith("✗")


def test_every_verdict_of_every_check_has_its_reason() -> None:
    verdicts = {"reproduced", "reproduced with a caveat", "not reproduced"}
    for check in statements.CHECKS:
        assert set(check.why) == verdicts
        assert set(check.figures) <= {*experiments.PANELS, *experiments.BEYOND_THE_PAPER}


def test_statements_on_figures_that_were_not_made_have_no_verdict() -> None:
    claims = statements.conclude([statements.examine("3a", AS_THE_PAPER_SAYS)])
    assert {claim.id for claim in claims} == {
        check.id for check in statements.CHECKS if "3a" in check.figures
    }
    assert [finding.title for finding in claims[0].findings] == ["Scenario 2"]
    json.dumps([asdict(claim) for claim in claims])


def test_the_ratio_of_means_has_the_right_interval() -> None:
    """Over many draws the 95 % interval misses the true ratio about one time in twenty."""
    rng = np.random.default_rng(3)
    problem = SCENARIO.unequal_noise
    base = made_up(problem, {"TS": linear(0.01)}).regret.sel(policy="TS")
    _, tenth, last = decades(HORIZON)
    missed = 0
    for _ in range(400):
        below = base.sel(time=tenth).copy(data=rng.gamma(4, 1, REPLICATES))
        above = base.sel(time=last).copy(data=3 * rng.gamma(4, 1, REPLICATES))
        interval = t_interval(measures._ratio(above, below))
        missed += not float(interval["lower"]) <= 3 <= float(interval["upper"])
    assert 8 <= missed <= 40
