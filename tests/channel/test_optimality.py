"""For binary rewards symmetric randomised response is the most informative private channel."""

import math
from itertools import pairwise, product

import pytest

from whitelie import RandomizedResponse
from whitelie.kernel.divergence import divergence

EPSILONS = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8]
MEANS = [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98]


def private_channels(epsilon: float, steps: int = 24) -> list[tuple[float, float]]:
    """(P(1|0), P(1|1)) on a grid of the epsilon-private quadrilateral, its edges included."""
    p = 1 / (1 + math.exp(-epsilon))
    corners = [(0.0, 0.0), (p, 1 - p), (1.0, 1.0), (1 - p, p), (0.0, 0.0)]
    edges = [
        (start[0] + (end[0] - start[0]) * i / steps, start[1] + (end[1] - start[1]) * i / steps)
        for start, end in pairwise(corners)
        for i in range(steps + 1)
    ]
    inner = [
        (0.5 + (zero - 0.5) * shrink, 0.5 + (one - 0.5) * shrink)
        for zero, one in edges
        for shrink in (0.25, 0.5, 0.75)
    ]
    return [*edges, *inner]


def is_private(zero: float, one: float, epsilon: float) -> bool:
    most = math.exp(epsilon) * (1 + 1e-9)
    ratios = [(one, zero), (zero, one), (1 - zero, 1 - one), (1 - one, 1 - zero)]
    return all(a <= most * b + 1e-12 for a, b in ratios)


def separation(zero: float, one: float, mean: float, best: float) -> float:
    """d(λ_a, g_a(μ_1)), what Theorem 1 divides by."""
    return divergence(zero + (one - zero) * mean, zero + (one - zero) * best)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_symmetric_randomised_response_separates_best(epsilon: float) -> None:
    symmetric = RandomizedResponse.from_epsilon(epsilon)
    channels = private_channels(epsilon)
    assert all(is_private(zero, one, epsilon) for zero, one in channels)
    for mean, best in product(MEANS, MEANS):
        if mean >= best:
            continue
        achieved = separation(1 - symmetric.p00, symmetric.p11, mean, best)
        rivals = [separation(zero, one, mean, best) for zero, one in channels]
        assert max(rivals) <= achieved * (1 + 1e-6) + 1e-15


def test_a_channel_beyond_the_polytope_separates_better() -> None:
    """Negative control: the comparison is not true of anything."""
    bolder = RandomizedResponse.from_epsilon(1.1)
    symmetric = RandomizedResponse.from_epsilon(1)
    assert not is_private(1 - bolder.p00, bolder.p11, 1)
    assert separation(1 - bolder.p00, bolder.p11, 0.3, 0.5) > separation(
        1 - symmetric.p00, symmetric.p11, 0.3, 0.5
    )
