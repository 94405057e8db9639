"""The interval holds however often one looks."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from whitelie.kernel.arms import Array
from whitelie.kernel.divergence import lower_end, upper_end
from whitelie.kernel.interval import feedback_interval

PATHS = 10_000
REPORTS = 10_000
ALPHA = 0.05

Interval = Callable[[int, int], tuple[float, float]]


def anytime(pulls: int, successes: int) -> tuple[float, float]:
    return feedback_interval(pulls, successes, ALPHA)


def fixed_time(pulls: int, successes: int) -> tuple[float, float]:
    """Chernoff's interval at 1 − ALPHA, right at any one time that was fixed beforehand."""
    budget = np.log(2 / ALPHA) / pulls
    return lower_end(successes / pulls, budget), upper_end(successes / pulls, budget)


def end_at(interval: Interval, pulls: int, side: int, successes: int) -> float:
    return interval(pulls, successes)[side]


def accepted_counts(interval: Interval, truth: float) -> tuple[Array, Array]:
    """For each number of reports, the least and the largest count whose interval holds the truth.

    Both ends grow with the count, so bisection finds where they pass the truth.
    """
    least, largest = np.empty(REPORTS, dtype=int), np.empty(REPORTS, dtype=int)
    for n in range(1, REPORTS + 1):
        lower, upper = (partial(end_at, interval, n, side) for side in (0, 1))
        least[n - 1] = bisect_left(range(n + 1), truth, key=upper)
        largest[n - 1] = bisect_right(range(n + 1), truth, key=lower) - 1
    return least, largest


def share_ever_missed(interval: Interval, truth: float) -> float:
    """The share of paths whose interval excludes the truth at any of the looks."""
    least, largest = accepted_counts(interval, truth)
    source = np.random.default_rng(17)
    missed = 0
    for _ in range(0, PATHS, 500):
        counts = np.cumsum(source.random((500, REPORTS)) < truth, axis=1, dtype=np.int32)
        missed += int(np.any((counts < least) | (counts > largest), axis=1).sum())
    return missed / PATHS


@pytest.mark.parametrize("truth", [0.03, 0.5, 0.73])
@pytest.mark.promise("The interval")
def test_continuous_looking_misses_at_most_five_in_a_hundred(truth: float) -> None:
    # 3.8 standard deviations of a binomial share: one false alarm in 10^4.
    noise = 3.8 * np.sqrt(ALPHA * (1 - ALPHA) / PATHS)
    share = share_ever_missed(anytime, truth)
    assert share <= ALPHA + noise
    assert share > 0.005, "an interval that never misses says too little"


def test_a_fixed_time_interval_misses_far_more_often() -> None:
    """Negative control: the same looks, an interval made for a single one."""
    assert share_ever_missed(fixed_time, 0.5) > 3 * ALPHA


def test_without_feedback_everything_is_possible() -> None:
    assert feedback_interval(0, 0, ALPHA) == (0.0, 1.0)


@pytest.mark.parametrize("pulls", [1, 2, 10, 1000, 10**9])
def test_extreme_counts_keep_their_end(pulls: int) -> None:
    assert feedback_interval(pulls, 0, ALPHA)[0] == 0.0
    assert feedback_interval(pulls, pulls, ALPHA)[1] == 1.0
    assert feedback_interval(pulls, 0, ALPHA)[1] < 1.0
