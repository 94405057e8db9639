"""The least cost of a pair of arms, against a dense search by the definition."""

import math
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest

from helpers import naive
from helpers.naive import Arm
from policy.test_oracle import compiled_state, opposite, random_affine, random_arm, random_table
from whitelie import IDENTITY, Channel, Monotone, RandomizedResponse
from whitelie.kernel.arms import Array, pack
from whitelie.kernel.transport import (
    CELL_TOLERANCE,
    TRANSPORT,
    Least,
    Weights,
    costs_at,
    least,
    pair_of,
)

PRIVATE = RandomizedResponse.from_epsilon(1)
FALLING = RandomizedResponse(p00=0.2, p11=0.3)
BILLION = 10**9

Two = tuple[Channel, Channel]
KINDS: dict[str, Callable[[Random], Two]] = {
    "one channel": lambda random: (channel := random_affine(random), channel),
    "unequal": lambda random: (random_affine(random), random_affine(random)),
    "mirrored": lambda random: (channel := random_affine(random), opposite(channel)),
    "tables": lambda random: (random_table(random), random_table(random)),
    "a table and a line": lambda random: (random_table(random), random_affine(random)),
}
TOLERANCES = (0.0, 0.0, 0.01, 0.3)


def kernel(a: Arm, b: Arm, tolerance: float, weights: Weights = TRANSPORT) -> Least:
    packed, state = pack("corrected", [a.channel, b.channel]), compiled_state([a, b])
    return least(packed, pair_of(packed, state, 0, 1, tolerance), weights)


def random_pairs(kind: str, number: int = 60) -> Iterator[tuple[Arm, Arm, float]]:
    """Pairs of which the first reads better: the others have no cost."""
    random = Random(f"transport {kind}")
    while number:
        one, two = KINDS[kind](random)
        a, b = random_arm(random, one), random_arm(random, two)
        tolerance = random.choice(TOLERANCES)
        readable = tolerance > 0 or not is_at_an_end(a, b)
        if naive.estimate(a) > naive.estimate(b) - tolerance and readable:
            number -= 1
            yield a, b, tolerance


def is_met(computed: float, expected: float, allowed: float) -> bool:
    """Never above the least value, and not below it by more than is allowed."""
    rounding = 1e-9 * max(1.0, abs(expected))
    return expected - allowed - rounding <= computed <= expected + rounding


def allowed_below(kind: str, expected: float) -> float:
    """How far the kernel may stay below; on tables it gives up early where all is decided."""
    if "table" not in kind:
        return 1e-6
    return CELL_TOLERANCE + 1e-6 if expected < 100 else 0.1 * expected


def is_at_an_end(a: Arm, b: Arm) -> bool:
    """Whether an affine g allows one x alone: a's feedback is all low, or b's is all high.

    Without a tolerance the kernel then knows no more than that there is no evidence below 0.
    """
    return any(
        isinstance(arm.channel, RandomizedResponse)
        and arm.pulls > 0
        and arm.successes == (arm.pulls if arm.channel.increasing == high else 0)
        for arm, high in ((a, False), (b, True))
    )


def mixed(weights: Weights) -> Callable[[Array, Array], Array]:
    def value(cost_a: Array, cost_b: Array) -> Array:
        terms = [weights.both + cost_a + cost_b, weights.only_a + cost_a, weights.only_b + cost_b]
        return np.asarray(np.logaddexp.reduce(terms))

    return value


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_is_the_least_on_a_dense_grid(kind: str) -> None:
    positive = 0
    for a, b, tolerance in random_pairs(kind):
        expected, _ = naive.transport(a, b, tolerance)
        computed = kernel(a, b, tolerance).value
        assert is_met(computed, expected, allowed_below(kind, expected)), (
            a,
            b,
            tolerance,
            computed,
            expected,
        )
        positive += 0.01 < expected < 100
    assert positive > 20


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_mixture_is_that_on_a_dense_grid(kind: str) -> None:
    random = Random(5)
    for a, b, tolerance in random_pairs(kind):
        weights = Weights(*(-random.uniform(0, 20) for _ in range(3)))
        expected, _ = naive.least_on_grid(a, b, tolerance, mixed(weights))
        computed = kernel(a, b, tolerance, weights).value
        assert is_met(computed, expected, allowed_below(kind, expected)), (a, b, tolerance, weights)


def test_another_weight_would_be_noticed() -> None:
    """Negative control."""
    noticed = 0
    for a, b, tolerance in random_pairs("unequal"):
        weights = Weights(-1.0, -2.0, -3.0)
        expected, _ = naive.least_on_grid(a, b, tolerance, mixed(Weights(-1.0, -2.0, -2.99)))
        noticed += not is_met(kernel(a, b, tolerance, weights).value, expected, 1e-6)
    assert noticed > 20


def test_where_one_reward_alone_is_possible_there_is_no_more_evidence_than_its_own() -> None:
    random = Random(9)
    seen = 0
    while seen < 100:
        one, two = KINDS[random.choice(list(KINDS))](random)
        a, b = random_arm(random, one), random_arm(random, two)
        if naive.estimate(a) > naive.estimate(b) and is_at_an_end(a, b):
            expected, _ = naive.transport(a, b, 0.0)
            assert kernel(a, b, 0.0).value <= expected * (1 + 1e-9) + 1e-9
            seen += 1


@pytest.mark.parametrize("tolerance", [0.0, 1e-6, 0.01])
@pytest.mark.parametrize("two", [(PRIVATE, PRIVATE), (IDENTITY, PRIVATE), (PRIVATE, FALLING)])
def test_a_billion_reports(two: Two, tolerance: float) -> None:
    """Differences of 10^-4 and less of means are all there is, and digits must not cancel."""
    rates = [
        channel.mean_feedback(0.3 + shift) for channel, shift in zip(two, (1e-4, 0), strict=True)
    ]
    arms = [Arm(g, BILLION, round(rate * BILLION)) for g, rate in zip(two, rates, strict=True)]
    expected, x = naive.transport(arms[0], arms[1], tolerance)
    computed = kernel(arms[0], arms[1], tolerance)
    assert computed.value == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert computed.value <= expected + 1e-6
    assert computed.x == pytest.approx(x, abs=1e-6)


def test_several_dips_of_tables_are_all_looked_at() -> None:
    """Staircases: the cost has many local minima, and the grid says which is the least."""
    steps = [k / 12 for k in range(13)]
    one = Monotone.from_points(
        (x, 0.1 + 0.8 * (x + 0.07 * math.sin(6 * math.pi * x))) for x in steps
    )
    two = Monotone.from_points(
        (x, 0.2 + 0.6 * (x - 0.07 * math.sin(6 * math.pi * x))) for x in steps
    )
    random = Random(3)
    for _ in range(40):
        n_a, n_b = random.randint(50, 2000), random.randint(50, 2000)
        a = Arm(one, n_a, round(random.uniform(0.45, 0.9) * n_a))
        b = Arm(two, n_b, round(random.uniform(0.2, 0.45) * n_b))
        if naive.estimate(a) > naive.estimate(b):
            expected, _ = naive.transport(a, b)
            assert is_met(kernel(a, b, 0.0).value, expected, allowed_below("tables", expected))


@pytest.mark.parametrize("kind", KINDS)
def test_the_costs_at_the_least_add_up_to_it(kind: str) -> None:
    """Top-two sampling splits the cost there; on tables it is a little above the bound."""
    for a, b, tolerance in random_pairs(kind):
        packed, state = pack("corrected", [a.channel, b.channel]), compiled_state([a, b])
        pair = pair_of(packed, state, 0, 1, tolerance)
        value, x = least(packed, pair, TRANSPORT)
        total = sum(costs_at(packed, pair, x))
        assert is_met(value, total, allowed_below(kind, total))


def test_there_is_no_cost_where_the_arm_does_not_read_better() -> None:
    better, worse = Arm(PRIVATE, 100, 60), Arm(PRIVATE, 100, 40)
    assert kernel(worse, better, 0.0).value == -math.inf
    assert kernel(better, better, 0.0).value == -math.inf
    assert kernel(better, better, 0.1).value > 0
    assert kernel(worse, better, 0.5).value > 0 > kernel(worse, better, 0.3).value
    assert kernel(better, Arm(PRIVATE, 0, 0), 0.0).value == -math.inf
