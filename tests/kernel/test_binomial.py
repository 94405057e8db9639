"""Binomial and multinomial draws follow their distributions."""

import numpy as np
import pytest
from scipy import stats

from whitelie.kernel.arms import Array
from whitelie.kernel.binomial import binomial, multinomial
from whitelie.kernel.words import word

DRAWS = 20_000
CASES = [(1, 0.5), (7, 0.3), (30, 0.97), (40, 0.3), (1000, 0.012), (5000, 0.41), (10**6, 0.0601)]


def draws(n: int, p: float) -> Array:
    seeds = [np.uint64(word(np.uint64(n), i)) for i in range(DRAWS)]
    return np.array([binomial(n, p, seed) for seed in seeds])


def p_value(seen: Array, n: int, p: float) -> float:
    """Chi-squared over about twenty cells of equal probability."""
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 21)[1:-1], n, p))
    cuts = np.concatenate([[-1], edges, [n]])
    expected = np.diff(stats.binom.cdf(cuts, n, p)) * len(seen)
    counts = np.histogram(seen, cuts + 0.5)[0]
    kept = expected > 0
    return float(stats.chisquare(counts[kept], expected[kept] / expected.sum() * len(seen)).pvalue)


@pytest.mark.parametrize(("n", "p"), CASES)
def test_draws_are_binomial(n: int, p: float) -> None:
    seen = draws(n, p)
    assert seen.min() >= 0
    assert seen.max() <= n
    assert p_value(seen, n, p) > 1e-3


def test_the_comparison_notices_a_slightly_wrong_rate() -> None:
    assert p_value(draws(5000, 0.41), 5000, 0.4105) < 1e-6


def test_the_ends_are_certain() -> None:
    seed = np.uint64(3)
    assert binomial(10, 0.0, seed) == 0
    assert binomial(10, 1.0, seed) == 10
    assert binomial(0, 0.3, seed) == 0


def test_billions_keep_their_mean_and_deviation() -> None:
    n, p = 3 * 10**9, 0.3
    seen = np.array([binomial(n, p, np.uint64(word(np.uint64(9), i))) for i in range(4000)])
    z = (seen - n * p) / np.sqrt(n * p * (1 - p))
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_multinomial_counts_have_the_right_means_and_sum() -> None:
    shares, counts = np.array([0.5, 0.0, 0.3, 0.2]), np.zeros(4, dtype=np.int64)
    total = np.zeros(4)
    for i in range(4000):
        multinomial(50, shares, np.uint64(word(np.uint64(4), i)), counts)
        assert counts.sum() == 50
        total += counts
    assert total[1] == 0
    assert total / 200_000 == pytest.approx(shares, abs=5 * np.sqrt(0.25 / 200_000))
