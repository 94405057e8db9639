"""Estimates: corrected, clipped where stated, and probabilities that match the draws."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import betaln

from helpers import policy_cases
from whitelie import IDENTITY, Bandit, Channel, Monotone, RandomizedResponse
from whitelie.estimate import probabilities_best, reward_interval
from whitelie.kernel.interval import feedback_interval

NOISY = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)
TABLE = Monotone(lambda mu: 0.9 - 0.6 * mu**2)


def exact_probability_two_arms(a: tuple[int, int], b: tuple[int, int]) -> float:
    """P(θ_b > θ_a) for independent Beta posteriors, as a finite sum (Miller, 2015)."""
    alpha_a, beta_a = a[1] + 1, a[0] - a[1] + 1
    alpha_b, beta_b = b[1] + 1, b[0] - b[1] + 1
    return sum(
        math.exp(
            betaln(alpha_a + i, beta_b + beta_a)
            - math.log(beta_b + i)
            - betaln(1 + i, beta_b)
            - betaln(alpha_a, beta_a)
        )
        for i in range(alpha_b)
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 0), (0, 0)), ((1, 1), (1, 0)), ((10, 3), (10, 4)), ((500, 200), (40, 18)),
     ((5000, 5), (100, 0)), ((1000, 990), (3, 3)), ((20_000, 9_000), (20_000, 9_200))],
)  # fmt: skip
@pytest.mark.promise("Chance of being best")
def test_the_probability_of_being_best_against_the_exact_sum(
    a: tuple[int, int], b: tuple[int, int]
) -> None:
    pulls, successes = np.array([a[0], b[0]]), np.array([a[1], b[1]])
    best = probabilities_best([IDENTITY, IDENTITY], pulls, successes)
    assert best.sum() == pytest.approx(1, abs=1e-12)
    assert best[1] == pytest.approx(exact_probability_two_arms(a, b), abs=2e-4)


@pytest.mark.parametrize(
    "channels",
    [
        [IDENTITY, NOISY, TURNED],
        [TABLE, NOISY, IDENTITY],
        [Monotone.from_points([(0, 0.49), (1, 0.51)])] * 4,
    ],
    ids=["affine", "mixed", "narrow tables, where most draws end at 0 or 1"],
)
def test_probabilities_are_thompson_samplings_choice_frequencies(channels: list[Channel]) -> None:
    counts = dict(enumerate([(40, 22), (60, 28), (25, 13), (1000, 510)][: len(channels)]))
    bandit = Bandit(range(len(channels)), channels, seed=3, counts=counts)
    draws = 200_000
    chosen = Counter(bandit.choose(draws))
    for arm, estimate in bandit.estimates().items():
        p = estimate.probability_best
        assert abs(chosen[arm] / draws - p) < 4 * math.sqrt(p * (1 - p) / draws) + 1e-4


def test_many_arms_share_the_probability() -> None:
    size = 300
    pulls = np.full(size, 10)
    best = probabilities_best([NOISY] * size, pulls, pulls // 2)
    assert best == pytest.approx(np.full(size, 1 / size), rel=1e-6)


@pytest.mark.parametrize("channel", [IDENTITY, NOISY, TURNED, TABLE], ids=policy_cases.name)
def test_estimates_are_corrected_and_clipped(channel: Channel) -> None:
    bandit = Bandit(["a"], channel, seed=1)
    for pulls, successes in ((0, 0), (50, 0), (50, 20), (0, 0), (200, 170)):
        bandit.update_counts({"a": (pulls, successes)})
        seen, ones = bandit.counts["a"]
        estimate = bandit.estimates()["a"]
        assert (estimate.pulls, estimate.successes) == (seen, ones)
        assert 0 <= estimate.lower <= estimate.upper <= 1
        if seen == 0:
            assert estimate.rate is None
            assert estimate.estimate is None
            assert (estimate.lower, estimate.upper) == (0, 1)
        else:
            assert estimate.rate == ones / seen
            corrected = min(max(channel.mean_reward(ones / seen), 0), 1)
            assert estimate.estimate == corrected
            assert estimate.lower <= corrected <= estimate.upper


def test_the_interval_of_a_decreasing_channel_swaps_its_ends() -> None:
    lower, upper = feedback_interval(400, 100, 0.05)
    expected = (TURNED.mean_reward(upper), TURNED.mean_reward(lower))
    assert reward_interval(TURNED, 400, 100) == pytest.approx(
        tuple(min(max(end, 0), 1) for end in expected)
    )


@pytest.mark.promise("Misspecified")
def test_feedback_that_the_channel_cannot_produce_is_flagged() -> None:
    # At epsilon = 1 the mean feedback lies in [.269, .731].
    counts = {"possible": (2000, 1000), "high": (2000, 1700), "low": (2000, 300), "few": (3, 3)}
    bandit = Bandit(list(counts), NOISY, seed=1, counts=counts)
    flags = {name: row.misspecified for name, row in bandit.estimates().items()}
    assert flags == {"possible": False, "high": True, "low": True, "few": False}
    assert bandit.estimates()["high"].lower == 0, "impossible feedback says nothing about rewards"
    assert bandit.estimates()["high"].upper == 1


def test_the_flag_waits_for_999_in_a_thousand() -> None:
    """Feedback that the 95 % interval excludes, but not the 99.9 % one, is not yet flagged."""
    edge = NOISY.mean_feedback(1.0)
    between = [
        ones
        for ones in range(700, 850)
        if feedback_interval(1000, ones, 0.05)[0] > edge
        and feedback_interval(1000, ones, 0.001)[0] <= edge
    ]
    assert len(between) > 5
    for ones in between:
        row = Bandit(["a"], NOISY, seed=1, counts={"a": (1000, ones)}).estimates()["a"]
        assert not row.misspecified
        assert (row.lower, row.upper) == (1, 1), "the nearest end, not everything"


def test_an_honest_channel_at_its_edge_is_rarely_flagged() -> None:
    """Mean reward 1 sits at the end of the image; the flag may be wrong once in a thousand."""
    source = np.random.default_rng(6)
    edge = NOISY.mean_feedback(1.0)
    flagged = sum(
        Bandit(["a"], NOISY, seed=1, counts={"a": (500, int(ones))}).estimates()["a"].misspecified
        for ones in source.binomial(500, edge, size=400)
    )
    assert flagged <= 3
