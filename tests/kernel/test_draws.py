"""Random words and Beta draws have the distributions they claim."""

import numpy as np
import pytest
from scipy import stats

from whitelie.kernel.arms import Array
from whitelie.kernel.beta import beta
from whitelie.kernel.words import uniform, word

# One false alarm in 10^4 per test.
LEVEL = 1e-4


def draws(a: float, b: float, size: int = 20_000) -> Array:
    key = np.uint64(12345)
    return np.array([beta(a, b, np.uint64(word(key, i))) for i in range(size)])


def test_words_are_splitmix64() -> None:
    """The generator's published first outputs from state 0."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [word(np.uint64(0), i) for i in range(3)] == expected


def test_words_under_nested_keys_are_uniform_and_uncorrelated() -> None:
    keys = [np.uint64(word(np.uint64(7), i)) for i in range(200)]
    table = np.array([[uniform(np.uint64(word(key, j))) for j in range(200)] for key in keys])
    assert stats.kstest(table.ravel(), "uniform").pvalue > LEVEL
    for shifted in (table[1:, :], np.roll(table, 1, axis=1)[1:, :]):
        correlation = np.corrcoef(table[:-1].ravel(), shifted.ravel())[0, 1]
        assert abs(correlation) * np.sqrt(shifted.size) < 3.9


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1), (1, 30), (30, 1), (2, 2), (2, 50), (700, 300), (3e5, 5e5)]
)
def test_beta_draws_follow_the_beta_distribution(a: float, b: float) -> None:
    assert stats.kstest(draws(a, b), stats.beta(a, b).cdf).pvalue > LEVEL


@pytest.mark.parametrize(("a", "b"), [(1, 30), (2, 50), (700, 300)])
def test_the_check_catches_one_success_too_many(a: float, b: float) -> None:
    """Negative control: the posterior with one more success than was seen."""
    sample = draws(a + 1, b, 20_000 if a < 100 else 200_000)
    assert stats.kstest(sample, stats.beta(a, b).cdf).pvalue < LEVEL


def test_a_draw_is_a_function_of_its_word() -> None:
    assert beta(5.0, 7.0, np.uint64(99)) == beta(5.0, 7.0, np.uint64(99))
    assert beta(5.0, 7.0, np.uint64(99)) != beta(5.0, 7.0, np.uint64(98))
