"""Two budgets: what a report may reveal of a reward of 0, and of a reward of 1."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.test_coin import exponential_lower_bound
from channel.test_optimality import MEANS, separation
from whitelie import IDENTITY, InvalidInput, RandomizedResponse
from whitelie.channel import coin

budgets = st.floats(1e-6, 30) | st.sampled_from([0.125, 1.0, 36.0, 709.0, 710.0, 1e308, math.inf])


def of(epsilon0: Any, epsilon1: Any) -> RandomizedResponse:
    return RandomizedResponse.from_epsilons(epsilon0=epsilon0, epsilon1=epsilon1)


def at_most(numerator: int, denominator: int, epsilon: float) -> bool:
    """Whether numerator/denominator ≤ e^epsilon exactly, through a rational below e^epsilon."""
    if epsilon == math.inf:
        return True
    most = exponential_lower_bound(Fraction(min(epsilon, 50.0)))
    return denominator > 0 and Fraction(numerator, denominator) <= most * (1 + Fraction(1, 10**50))


@given(budgets, budgets)
def test_the_coins_integers_keep_both_budgets(epsilon0: float, epsilon1: float) -> None:
    channel = of(epsilon0, epsilon1)
    zero, one = channel.thresholds
    assert zero < one
    assert at_most(one, zero, epsilon1)
    assert at_most(coin.ONE - zero, coin.ONE - one, epsilon0)
    assert channel.epsilon0 <= epsilon0
    assert channel.epsilon1 <= epsilon1
    assert channel.epsilon == max(channel.epsilon0, channel.epsilon1)


@given(st.floats(1e-3, 8), st.floats(1e-3, 8))
def test_the_formula_is_met_without_needless_rounding(epsilon0: float, epsilon1: float) -> None:
    channel = of(epsilon0, epsilon1)
    lie = math.expm1(epsilon0) / math.expm1(epsilon0 + epsilon1)
    assert 1 - channel.p00 == pytest.approx(lie, rel=1e-9)
    assert channel.p11 == pytest.approx(math.exp(epsilon1) * lie, rel=1e-9)
    assert channel.epsilon0 == pytest.approx(epsilon0, rel=1e-9)
    assert channel.epsilon1 == pytest.approx(epsilon1, rel=1e-9)


@given(st.floats(1e-6, 1e3) | st.just(math.inf))
def test_equal_budgets_are_one_budget(epsilon: float) -> None:
    assert of(epsilon, epsilon) == RandomizedResponse.from_epsilon(epsilon)


def test_an_infinite_budget_makes_the_channel_one_sided() -> None:
    only_yes, only_no = of(math.inf, 2), of(2, math.inf)
    assert (only_yes.p00, only_yes.p11) == pytest.approx((1 - math.exp(-2), 1))
    assert (only_no.p00, only_no.p11) == (only_yes.p11, only_yes.p00)
    assert only_yes.epsilon0 == only_yes.epsilon == math.inf
    assert only_yes.epsilon1 == pytest.approx(2, rel=1e-15)
    assert IDENTITY.epsilon0 == IDENTITY.epsilon1 == math.inf


@given(st.integers(1, 63), st.integers(1, 63))
def test_the_budgets_belong_to_rewards_not_to_the_names_of_reports(zero: int, one: int) -> None:
    if zero == one:
        return
    channel = RandomizedResponse(p00=1 - zero / 64, p11=one / 64)
    turned = RandomizedResponse(p00=zero / 64, p11=1 - one / 64)
    assert (turned.epsilon0, turned.epsilon1) == (channel.epsilon0, channel.epsilon1)
    raised = max(one / zero, (64 - one) / (64 - zero))
    assert channel.epsilon1 == pytest.approx(math.log(raised), rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon0", "epsilon1"), [(0.25, 2.0), (2.0, 0.25), (4.0, 1.0), (math.inf, 1.0)]
)
def test_no_channel_within_both_budgets_separates_better(epsilon0: float, epsilon1: float) -> None:
    """A grid of all channels, increasing and decreasing, its boundary included."""
    best = of(epsilon0, epsilon1)
    u, v = math.exp(epsilon1), math.exp(epsilon0)
    rivals = []
    for i in range(201):
        zero = i / 200
        tops = [min(u * zero, 1 - (1 - zero) / v, 1.0), max(1 - u * (1 - zero), zero / v)]
        for top, share in product(tops, (0.0, 0.5, 0.9, 1.0)):
            one = zero + share * (top - zero)
            rivals.append((zero, min(max(one, 0.0), 1.0)))
    for mean, other in product(MEANS, MEANS):
        achieved = separation(1 - best.p00, best.p11, mean, other)
        largest = max(separation(zero, one, mean, other) for zero, one in rivals)
        assert largest <= achieved * (1 + 1e-6) + 1e-12
        if mean != other and epsilon0 < math.inf:
            bolder = of(1.1 * epsilon0, 1.1 * epsilon1)
            assert separation(1 - bolder.p00, bolder.p11, mean, other) > achieved


@pytest.mark.parametrize(
    ("epsilon0", "epsilon1", "field"),
    [
        (0, 1, "epsilon0"),
        (1, 0, "epsilon1"),
        (-1, 1, "epsilon0"),
        (math.nan, 1, "epsilon0"),
        (1, "2", "epsilon1"),
        (None, 1, "epsilon0"),
        (1, 1e-30, "epsilon1"),
        (5e-324, math.inf, "epsilon0"),
    ],
)
def test_budgets_that_are_none_are_refused(epsilon0: Any, epsilon1: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        of(epsilon0, epsilon1)
    assert refusal.value.field == field
