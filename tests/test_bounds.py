"""The bounds of the paper, against numbers worked out by hand and against each other."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whitelie import IDENTITY, InvalidInput, Monotone, Problem, RandomizedResponse, bounds

NOISY, CLEAR = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
FIRST_EXPERIMENT = Problem([0.9] + [0.8] * 9, [NOISY] + [CLEAR] * 9)
TWO_ARMS = Problem([0.9, 0.6], RandomizedResponse(p00=0.75, p11=0.75))

BOUNDS: dict[str, Callable[[Problem, Any], Any]] = {
    "Theorem 1": bounds.lower_bound,
    "Theorem 2": bounds.finite_time_bound,
    "Corollary 1": bounds.ucb_order,
    "Corollary 2 printed": lambda p, t: bounds.randomized_response_bound(p, t, form="printed"),
    "Corollary 2 tight": lambda p, t: bounds.randomized_response_bound(p, t, form="tight"),
    "Corollary 3 printed": lambda p, t: bounds.local_privacy_bound(p, 1.0, t, form="printed"),
    "Corollary 3 tight": lambda p, t: bounds.local_privacy_bound(p, 1.0, t, form="tight"),
}


def test_the_lower_bound_of_the_first_experiment() -> None:
    assert bounds.lower_bound(FIRST_EXPERIMENT, 100_000) == pytest.approx(527.46, abs=0.005)


def test_the_finite_time_bound_by_hand() -> None:
    # One suboptimal arm: λ = .55, g(μ_1) = .7.
    d = 0.55 * math.log(0.55 / 0.7) + 0.45 * math.log(0.45 / 0.3)
    slope = math.log(0.55 / 0.7) - math.log(0.45 / 0.3)
    log, loglog = math.log(1000), math.log(math.log(1000))
    expected = 0.3 * (
        log / d
        + math.sqrt(2 * math.pi * slope**2 / d**3) * math.sqrt(log + 3 * loglog)
        + (4 * math.e + 3 / d) * loglog
        + 2 * (slope / d) ** 2
        + 4
    )
    assert bounds.finite_time_bound(TWO_ARMS, 1000) == pytest.approx(expected, rel=1e-12)


def test_the_corollaries_by_hand() -> None:
    log = math.log(1000)
    assert bounds.ucb_order(TWO_ARMS, 1000) == pytest.approx(0.3 * log / 0.15**2)
    printed = bounds.randomized_response_bound(TWO_ARMS, 1000, form="printed")
    assert printed == pytest.approx(2 * log / (0.3 * 0.5**2))
    assert printed == pytest.approx(
        4 * bounds.randomized_response_bound(TWO_ARMS, 1000, form="tight")
    )
    local = bounds.local_privacy_bound(TWO_ARMS, math.log(3), 1000, form="printed")
    assert local == pytest.approx(printed)


def test_pinsker_orders_theorem_1_below_the_tight_corollary() -> None:
    for problem in (FIRST_EXPERIMENT, TWO_ARMS):
        lower = bounds.lower_bound(problem, 1000)
        assert lower <= bounds.randomized_response_bound(problem, 1000, form="tight")
        assert lower <= bounds.finite_time_bound(problem, 1000)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_array_of_horizons_gives_an_array_of_numbers(name: str) -> None:
    bound = BOUNDS[name]
    horizons = np.array([[10, 100], [1000, 10_000]])
    values = bound(FIRST_EXPERIMENT, horizons)
    assert values.shape == horizons.shape
    assert isinstance(bound(FIRST_EXPERIMENT, 1000), float)
    assert values[1, 0] == pytest.approx(bound(FIRST_EXPERIMENT, 1000))
    assert np.all(np.diff(values.ravel()) > 0)


@pytest.mark.parametrize("name", BOUNDS)
def test_names_and_order_of_arms_do_not_matter(name: str) -> None:
    turned = Problem([0.8] * 9 + [0.9], [CLEAR] * 9 + [NOISY])
    assert BOUNDS[name](turned, 1000) == pytest.approx(BOUNDS[name](FIRST_EXPERIMENT, 1000))


@pytest.mark.parametrize("bound", [bounds.lower_bound, bounds.finite_time_bound, bounds.ucb_order])
def test_a_mirrored_channel_has_the_same_bounds(bound: Callable[[Problem, int], float]) -> None:
    turned = Problem([0.9, 0.6], RandomizedResponse(p00=0.25, p11=0.25))
    assert bound(turned, 1000) == pytest.approx(bound(TWO_ARMS, 1000))
    table = Monotone(RandomizedResponse(p00=0.25, p11=0.25).mean_feedback)
    assert bound(Problem([0.9, 0.6], table), 1000) == pytest.approx(bound(TWO_ARMS, 1000))


def test_an_arm_that_one_report_rules_out_costs_no_logarithm() -> None:
    certain = Problem([1.0, 0.3], IDENTITY)
    assert bounds.lower_bound(certain, 1000) == 0.0
    nearly = Problem([1 - 1e-12, 0.3], IDENTITY)
    limit = bounds.finite_time_bound(certain, 1000)
    assert limit == pytest.approx(0.7 * (4 * math.e * math.log(math.log(1000)) + 2 / 0.7**2 + 4))
    assert limit < bounds.finite_time_bound(nearly, 1000) < 2 * limit


def test_the_finite_time_bound_is_vacuous_at_the_edge_of_feedback() -> None:
    assert bounds.finite_time_bound(Problem([0.5, 0.0], IDENTITY), 1000) == math.inf


def test_equal_arms_cost_nothing() -> None:
    assert bounds.lower_bound(Problem([0.5, 0.5], NOISY), 1000) == 0.0


def unchecked_form(form: Any) -> float:
    return bounds.randomized_response_bound(TWO_ARMS, 10, form=form)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: bounds.lower_bound(TWO_ARMS, 0), "horizon"),
        (lambda: bounds.finite_time_bound(TWO_ARMS, 2), "horizon"),
        (lambda: bounds.finite_time_bound(TWO_ARMS, np.array([2, 10])), "horizon"),
        (lambda: bounds.local_privacy_bound(TWO_ARMS, 0.0, 10), "epsilon"),
        (lambda: bounds.local_privacy_bound(TWO_ARMS, math.nan, 10), "epsilon"),
        (lambda: BOUNDS["Corollary 2 tight"](Problem([1], Monotone(lambda x: x)), 10), "channels"),
        (lambda: unchecked_form("loose"), "form"),
    ],
)
def test_refusals_name_the_field(call: Callable[[], float], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        call()
    assert refusal.value.field == field
