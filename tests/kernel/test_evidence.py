"""Evidence of pairs: the martingale by enumeration, Z against a dense search, symmetries."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.special import logsumexp

from helpers import naive
from helpers.naive import Arm
from kernel.test_transport import KINDS, allowed_below, is_at_an_end, is_met, mixed
from policy.test_oracle import compiled_state, opposite, random_arm
from whitelie import IDENTITY, Channel, Monotone, RandomizedResponse
from whitelie.certificate import Certificate, Expect, packed, priors
from whitelie.kernel.arms import Array
from whitelie.kernel.evidence import (
    LOG_BOTH,
    LOG_ONLY,
    Priors,
    certified_arm,
    evidence_against_all,
    fill_penalties,
    leader_among,
    log_mean,
    log_peak,
    penalty,
)
from whitelie.kernel.evidence import Test as Asked
from whitelie.kernel.state import State
from whitelie.kernel.transport import Pair, Weights, combined, costs_at, pair_of

PRIVATE = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)
LOPSIDED = RandomizedResponse(p00=0.9, p11=0.6)
BENT = Monotone.from_points([(0, 0.1), (0.4, 0.7), (1, 0.9)])
FALLING = Monotone.from_points([(0, 0.8), (0.5, 0.3), (1, 0.05)])
EXPECT = Expect(rate=0.2, difference=0.05)


# One arm's penalty


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1), (0.3, 7.5), (120.5, 2.25), (2e4, 3.1e4), (9e7, 1e7), (0.02, 1.98)]
)
@pytest.mark.parametrize("n", [1, 2, 17, 1000, 10**6, 10**9])
def test_the_penalty_has_its_formula_in_forty_digits(n: int, a: float, b: float) -> None:
    for ones in {0, 1, n // 3, n - 1, n}:
        expected = naive.penalty(n, ones, a, b)
        computed = penalty(float(n), float(ones), a, b, log_peak(a, b))
        assert computed == pytest.approx(expected, rel=1e-9, abs=2e-9)
        assert computed >= -2e-9, "a mixture is never likelier than the likeliest rate"


def test_another_prior_has_another_penalty() -> None:
    """Negative control."""
    computed = penalty(1000.0, 300.0, 1.0, 1.0, log_peak(1.0, 1.0))
    assert computed != pytest.approx(naive.penalty(1000, 300, 1, 1.001), rel=1e-6)


# The martingale


Rule = Callable[[Array, Array], int]


def sample_the_worse(pulls: Array, ones: Array) -> int:
    """An adaptive rule that starves: the arm of fewer ones, the second in a tie."""
    return int(ones[0] < ones[1])


def sample_by_parity(pulls: Array, ones: Array) -> int:
    """A rule that depends on all counts, and on the last bit."""
    return int((ones[0] + pulls[1] + pulls.sum() // 2) % 2)


def log_e(
    channels: tuple[Channel, ...], state: State, means: tuple[float, float], mixture: Priors
) -> float:
    """ln E(μ_a, μ_b), from the kernel's own parts."""
    arms = packed(channels)
    of_a, of_b = np.empty(len(mixture.log_weight)), np.empty(len(mixture.log_weight))
    fill_penalties(mixture, arms, state, 0, of_a)
    fill_penalties(mixture, arms, state, 1, of_b)
    weights = Weights(
        LOG_BOTH + log_mean(mixture.log_weight, of_a + of_b),
        LOG_ONLY + log_mean(mixture.log_weight, of_a),
        LOG_ONLY + log_mean(mixture.log_weight, of_b),
    )
    pair: Pair = pair_of(arms, state, 0, 1, means[1] - means[0])
    return combined(*costs_at(arms, pair, means[0]), weights)


def paths(
    channels: tuple[Channel, ...], means: tuple[float, float], rule: Rule, length: int
) -> Iterator[tuple[float, State]]:
    """Every sequence of bits: its exact probability under the truth, and the counts at its end."""
    levels = [channel.mean_feedback(mean) for channel, mean in zip(channels, means, strict=True)]
    for bits in product((0, 1), repeat=length):
        pulls, ones = np.zeros((2, 2), dtype=np.int64)
        chance = 1.0
        for bit in bits:
            k = rule(pulls, ones)
            chance *= levels[k] if bit else 1 - levels[k]
            pulls[k] += 1
            ones[k] += bit
        yield chance, State(pulls, ones, np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))


CASES: list[tuple[tuple[Channel, Channel], tuple[float, float]]] = [
    ((IDENTITY, IDENTITY), (0.3, 0.3)),
    ((PRIVATE, PRIVATE), (0.1, 0.6)),
    ((LOPSIDED, TURNED), (0.4, 0.4)),
    ((BENT, FALLING), (0.2, 0.7)),
    ((TURNED, BENT), (0.05, 0.1)),
]


@pytest.mark.parametrize("expect", [None, EXPECT])
@pytest.mark.parametrize("rule", [sample_the_worse, sample_by_parity])
@pytest.mark.parametrize(("channels", "means"), CASES)
def test_the_mean_of_e_is_one_under_every_sampling_rule(
    channels: tuple[Channel, Channel], means: tuple[float, float], rule: Rule, expect: Expect | None
) -> None:
    mixture = priors(channels, expect)
    total = sum(
        chance * math.exp(log_e(channels, state, means, mixture))
        for chance, state in paths(channels, means, rule, 9)
    )
    assert total == pytest.approx(1, abs=1e-12)


def test_a_wrong_penalty_or_a_wrong_truth_has_another_mean() -> None:
    """Negative controls."""
    channels, means = CASES[0]
    mixture = priors(channels, None)
    other = mixture._replace(a=mixture.a * 1.1)  # the peaks are of the former priors
    for truth, used in ((means, other), ((0.3, 0.32), mixture)):
        total = sum(
            chance * math.exp(log_e(channels, state, truth, used))
            for chance, state in paths(channels, means, sample_by_parity, 9)
        )
        assert abs(total - 1) > 1e-3


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize(("channels", "means"), CASES)
def test_z_never_exceeds_e_at_a_truth_where_the_other_is_better(
    channels: tuple[Channel, Channel], means: tuple[float, float], tolerance: float
) -> None:
    """The step of the proof: whatever the counts, ln E at the true means is not below Z."""
    draws = np.random.default_rng(8)
    truth = (means[0], max(means[1], means[0] + tolerance))
    test = asked(channels, tolerance)
    positive = 0
    for _ in range(300):
        pulls = draws.integers(1, 400, 2)
        ones = draws.binomial(pulls, draws.uniform(0, 1, 2))
        state = State(pulls, ones, np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
        computed = evidence_of(channels, state, test, (0, 1))
        assert computed <= log_e(channels, state, truth, test.priors) + 1e-9
        positive += computed > 0
    assert positive > 30


# Z


def asked(
    channels: tuple[Channel, ...], tolerance: float = 0.0, expect: Expect | None = None
) -> Asked:
    nobody = np.zeros(len(channels), dtype=bool)
    return Certificate(0.05, tolerance, expect).test(channels, nobody)


def evidence_of(
    channels: tuple[Channel, ...], state: State, test: Asked, two: tuple[int, int]
) -> float:
    rows = evidence_against_all(packed(channels), state, test, two[0])
    return float(rows[two[1], 0])


def random_cases(kind: str, number: int = 30) -> Iterator[tuple[Arm, Arm, float, Expect | None]]:
    random = Random(f"evidence {kind}")
    while number:
        one, two = KINDS[kind](random)
        a, b = random_arm(random, one), random_arm(random, two)
        a, b = Arm(one, max(a.pulls, 1), a.successes), Arm(two, max(b.pulls, 1), b.successes)
        tolerance = random.choice((0.0, 0.0, 0.02, 0.3))
        if naive.estimate(a) > naive.estimate(b) - tolerance and (
            tolerance > 0 or not is_at_an_end(a, b)
        ):
            number -= 1
            yield a, b, tolerance, random.choice((None, EXPECT))


def z_on_grid(a: Arm, b: Arm, tolerance: float, mixture: Priors) -> float:
    """min ln E(x, x + tolerance), with penalties in forty digits."""
    penalties = []
    for k, arm in enumerate((a, b)):
        ones = arm.successes if arm.channel.increasing else arm.pulls - arm.successes
        rows = zip(mixture.a[k], mixture.b[k], strict=True)
        penalties.append([naive.penalty(arm.pulls, ones, x, y) for x, y in rows])
    of_a, of_b = map(np.array, penalties)
    logs = [logsumexp(mixture.log_weight - row) for row in (of_a + of_b, of_a, of_b)]
    weights = (share + log for share, log in zip(np.log([0.8, 0.1, 0.1]), logs, strict=True))
    return naive.least_on_grid(a, b, tolerance, mixed(Weights(*weights)))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_z_is_the_least_on_a_dense_grid(kind: str) -> None:
    relevant = 0
    for a, b, tolerance, expect in random_cases(kind):
        channels = a.channel, b.channel
        test = asked(channels, tolerance, expect)
        computed = evidence_of(channels, compiled_state([a, b]), test, (0, 1))
        expected = z_on_grid(a, b, tolerance, test.priors)
        assert is_met(computed, expected, allowed_below(kind, expected)), (a, b, tolerance, expect)
        relevant += -5 < expected < 100
    assert relevant > 10


def test_another_weight_of_single_terms_would_be_noticed() -> None:
    """Negative control: where one arm is starved, they are most of the evidence."""
    a, b = Arm(IDENTITY, 10**6, 500_000), Arm(IDENTITY, 12, 0)
    channels = a.channel, b.channel
    test = asked(channels)
    computed = evidence_of(channels, compiled_state([a, b]), test, (0, 1))
    shifted = test.priors._replace(log_weight=test.priors.log_weight + 1e-3)
    assert abs(computed - z_on_grid(a, b, 0.0, shifted)) > 5e-4
    assert computed == pytest.approx(z_on_grid(a, b, 0.0, test.priors), abs=1e-6)


@pytest.mark.parametrize("ones", [(0, 0), (10**9, 0), (10**9, 10**9), (500_100_000, 500_000_000)])
@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_extreme_counts_have_finite_or_no_evidence(ones: tuple[int, int], tolerance: float) -> None:
    pairs: list[tuple[Channel, Channel]] = [
        (IDENTITY, IDENTITY),
        (PRIVATE, PRIVATE),
        (PRIVATE, IDENTITY),
        (BENT, FALLING),
    ]
    for two in pairs:
        arms = [Arm(channel, 10**9, count) for channel, count in zip(two, ones, strict=True)]
        test = asked(two, tolerance)
        computed = evidence_of(two, compiled_state(arms), test, (0, 1))
        assert not math.isnan(computed)
        expected = z_on_grid(arms[0], arms[1], tolerance, test.priors)
        assert computed == expected or computed <= expected + 1e-6 * max(1, abs(expected))


# Symmetries


def random_states(size: int, number: int) -> Iterator[State]:
    draws = np.random.default_rng(12)
    for _ in range(number):
        pulls = draws.integers(1, 3000, size)
        ones = draws.binomial(pulls, draws.uniform(0.2, 0.8, size))
        yield State(pulls, ones, np.zeros(size, dtype=np.int64), np.ones(size, dtype=bool))


FOUR: tuple[Channel, ...] = (PRIVATE, TURNED, LOPSIDED, BENT)


def mirror(channel: Channel) -> Channel:
    if isinstance(channel, RandomizedResponse):
        return opposite(channel)
    return Monotone.from_points((x, 1 - y) for x, y in zip(channel.xs, channel.ys, strict=True))


@pytest.mark.promise("Mirroring")
def test_turned_bits_under_turned_channels_are_the_same_evidence() -> None:
    turned = tuple(mirror(channel) for channel in FOUR)
    for state in random_states(4, 15):
        other = state._replace(successes=state.pulls - state.successes)
        for leader in range(4):
            one = evidence_against_all(packed(FOUR), state, asked(FOUR), leader)
            two = evidence_against_all(packed(turned), other, asked(turned), leader)
            assert np.allclose(one, two, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_relabelled_arms_have_the_same_evidence() -> None:
    draws = np.random.default_rng(2)
    for state in random_states(4, 15):
        order = draws.permutation(4)
        channels = tuple(FOUR[k] for k in order)
        permuted = State(*(column[order] for column in state[:4]))
        for place, leader in enumerate(order.tolist()):
            one = evidence_against_all(packed(FOUR), state, asked(FOUR), leader)
            two = evidence_against_all(packed(channels), permuted, asked(channels), place)
            assert np.array_equal(one[order], two, equal_nan=True)


# Who is certified


def certified_by_definition(state: State, test: Asked) -> set[int]:
    """Every active arm whose Z against all other active arms is as large as is needed."""
    active = np.flatnonzero(test.active).tolist()
    winners: set[int] = set()
    for a in active:
        z = evidence_against_all(packed(FOUR), state, test, a)[:, 0]
        if all(z[b] >= test.needed[max(a, b)] for b in active if b != a):
            winners.add(a)
    return winners


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_the_certified_arm_is_the_one_that_beats_all_others(tolerance: float) -> None:
    draws = np.random.default_rng(6)
    seen = {"winner": 0, "none": 0}
    for state in random_states(4, 60):
        needed = asked(FOUR, tolerance).needed * draws.uniform(0.2, 1, 4)
        active = draws.random(4) < 0.7
        active[draws.permutation(4)[:2]] = True
        test = asked(FOUR, tolerance)._replace(needed=needed, active=active)
        expected = certified_by_definition(state, test)
        named = {certified_arm(packed(FOUR), state, test, hint) for hint in range(4)}
        if expected and tolerance == 0:
            assert named == expected
        elif named & set(range(4)):
            assert named <= expected
            assert named == {leader_among(packed(FOUR), state, active)}
        else:
            assert all(active[-1 - blocking] for blocking in named)
        seen["winner" if expected else "none"] += 1
    assert min(seen.values()) > 8


def test_an_active_arm_without_reports_stands_in_the_way() -> None:
    state = State(
        np.array([500, 500, 0]), np.array([450, 50, 0]), *np.zeros((2, 3), dtype=np.int64)
    )
    channels = (IDENTITY,) * 3
    test = asked(channels)
    assert certified_arm(packed(channels), state, test, 0) == -3
    without = test._replace(active=np.array([True, True, False]))
    assert certified_arm(packed(channels), state, without, 0) == 0
