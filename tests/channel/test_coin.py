"""The coin: audited from its draws, and proved from its integers."""

import decimal
import inspect
import math
import random
import secrets
from collections.abc import Callable
from fractions import Fraction

import pytest
from scipy.stats import beta

from whitelie import IDENTITY, RandomizedResponse
from whitelie.channel import coin

DRAWS = [200_000, pytest.param(1_000_000, marks=pytest.mark.long)]
"""Of the smaller number an honest coin of epsilon 1/4 shows 0.23, and one that leaks too much."""

MECHANISMS = {
    "epsilon 1/4": RandomizedResponse.from_epsilon(0.25),
    "epsilon 1": RandomizedResponse.from_epsilon(1),
    "epsilon 4": RandomizedResponse.from_epsilon(4),
    "lying": RandomizedResponse(p00=0.1, p11=0.1),
    "warner": RandomizedResponse.warner(0.7),
    "forced": RandomizedResponse.forced(truth=0.75, yes=1 / 6),
    "unrelated": RandomizedResponse.unrelated(truth=0.5, alpha=1 / 3),
}


def ones(flip: Callable[[float], int], reward: float, draws: int) -> int:
    return sum(flip(reward) for _ in range(draws))


def audited_epsilon(flip: Callable[[float], int], draws: int) -> float:
    """The largest epsilon that the draws of both rewards disprove any smaller value of.

    Clopper–Pearson bounds at 10^-5 each, so that an honest coin fails one audit in 10^4.
    """
    lower, upper = {}, {}
    for reward in (0, 1):
        count = ones(flip, reward, draws)
        for bit, seen in ((1, count), (0, draws - count)):
            lower[bit, reward] = beta.ppf(1e-5, seen, draws - seen + 1) if seen else 0.0
            upper[bit, reward] = beta.isf(1e-5, seen + 1, draws - seen)
    return max(math.log(lower[bit, x] / upper[bit, 1 - x]) for bit in (0, 1) for x in (0, 1))


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_log_ratio_of_the_draws_exceeds_epsilon(mechanism: str, draws: int) -> None:
    channel = MECHANISMS[mechanism]
    bits = random.Random(mechanism).getrandbits
    audited = audited_epsilon(lambda reward: channel.flip(reward, randbits=bits), draws)
    assert audited <= channel.epsilon
    assert audited > 0.9 * channel.epsilon - 0.02, "the audit has no power"


@pytest.mark.parametrize("draws", DRAWS)
def test_the_audit_catches_a_coin_that_leaks(draws: int) -> None:
    """Negative control: five truths in a hundred skip the coin."""
    channel = RandomizedResponse.from_epsilon(1)
    source = random.Random(1)

    def leaky(reward: float) -> int:
        return (
            int(reward)
            if source.random() < 0.05
            else channel.flip(reward, randbits=source.getrandbits)
        )

    assert audited_epsilon(leaky, draws) > channel.epsilon


def exponential_lower_bound(exponent: Fraction) -> Fraction:
    """A rational below e^x, exact to 60 digits: Taylor at x/64, truncated downward, squared up."""
    unit = 10**60
    small = exponent / 64
    term, total = Fraction(1), Fraction(1)
    for n in range(1, 60):
        term = term * small / n
        total += term
    bound = Fraction(math.floor(total * unit), unit)
    for _ in range(6):
        bound = Fraction(math.floor(bound * bound * unit), unit)
    return bound


def test_the_rational_bound_is_one() -> None:
    assert exponential_lower_bound(Fraction(1)) < Fraction(2718281828459045236, 10**18)
    assert exponential_lower_bound(Fraction(1)) > Fraction(2718281828459045235, 10**18)


NOMINAL = [2.0**k for k in range(-3, 4)]


def exactly_private(channel: RandomizedResponse, nominal: float) -> bool:
    """All four ratios of integers, against a rational below e^nominal."""
    zero, one = channel.thresholds
    most = exponential_lower_bound(Fraction(nominal))
    pairs = [(one, zero), (zero, one), (coin.ONE - zero, coin.ONE - one)]
    pairs.append((coin.ONE - one, coin.ONE - zero))
    return all(a <= most * b for a, b in pairs)


@pytest.mark.promise("The coin")
def test_the_exact_epsilon_never_exceeds_the_nominal_one() -> None:
    draws = random.Random(9)
    for nominal in [*NOMINAL, *(draws.uniform(0, 30) for _ in range(200))]:
        channel = RandomizedResponse.from_epsilon(nominal)
        assert exactly_private(channel, nominal)
        assert channel.epsilon <= nominal
        # …and not for being timid: one step of the double above would be too much.
        bolder = math.nextafter(channel.p00, 1)
        assert bolder == 1 or not exactly_private(
            RandomizedResponse(p00=bolder, p11=bolder), nominal
        )


@pytest.mark.promise("Epsilon")
def test_the_claim_is_never_below_the_exact_epsilon() -> None:
    draws = random.Random(10)
    for _ in range(300):
        channel = RandomizedResponse(p00=draws.uniform(0.51, 1), p11=draws.uniform(0.51, 1))
        zero, one = channel.thresholds
        ratio = max(Fraction(one, zero), Fraction(coin.ONE - zero, coin.ONE - one))
        least = exponential_lower_bound(Fraction(channel.epsilon))
        assert least >= ratio * (1 - Fraction(1, 10**40))
        assert channel.epsilon == pytest.approx(math.log(ratio), rel=1e-14)


def test_very_large_epsilons_do_not_overflow() -> None:
    for epsilon in (40, 709, 710, 1e6, 1e308):
        assert 36 < RandomizedResponse.from_epsilon(epsilon).epsilon < 37
    assert RandomizedResponse.from_epsilon(math.inf) == IDENTITY


@pytest.mark.parametrize("probability", [0.0, 2.0**-64, 1e-5, 0.1, 0.5, 0.9, 1 - 2.0**-53, 1.0])
@pytest.mark.promise("The coin")
def test_every_probability_is_an_exact_threshold(probability: float) -> None:
    channel = RandomizedResponse(p00=0.25, p11=probability)
    zero, one = channel.thresholds
    assert Fraction(channel.p11) * coin.ONE == one
    assert Fraction(channel.p00) * coin.ONE == coin.ONE - zero
    assert abs(channel.p11 - probability) < 2.0**-64


def test_the_device_draws_from_the_operating_systems_generator() -> None:
    default = inspect.signature(RandomizedResponse.flip).parameters["randbits"].default
    assert default is secrets.randbits
    channel, draws = RandomizedResponse(p00=0.75, p11=0.75), 20_000
    for reward, share in ((0, 0.25), (1, 0.75)):
        # Five standard deviations: this test alone has no seed.
        assert abs(ones(channel.flip, reward, draws) / draws - share) < 5 * math.sqrt(
            3 / 16 / draws
        )


def test_the_callers_decimal_arithmetic_does_not_matter() -> None:
    with decimal.localcontext() as context:
        context.traps[decimal.Inexact] = context.traps[decimal.FloatOperation] = True
        context.Emax, context.prec = 5, 3
        assert RandomizedResponse.from_epsilon(20).epsilon == pytest.approx(20, abs=1e-6)


def always(word: int) -> coin.RandomBits:
    return lambda _: word


def test_the_flip_is_a_threshold_on_the_drawn_word() -> None:
    channel = RandomizedResponse(p00=0.75, p11=0.625)
    zero, one = channel.thresholds
    for reward in (0, 1, 0.5, 0.3, 2.0**-40, 1 - 2.0**-53):
        share = Fraction(reward) * coin.ONE
        threshold = int(zero * coin.ONE + share * (one - zero))
        below, above = threshold - 1, threshold
        assert channel.flip(reward, randbits=always(below)) == 1
        assert channel.flip(reward, randbits=always(above)) == 0


def test_the_identity_never_lies() -> None:
    for word in (0, 2**127, 2**128 - 1):
        assert IDENTITY.flip(0, randbits=always(word)) == 0
        assert IDENTITY.flip(1, randbits=always(word)) == 1
        assert IDENTITY.flip(True, randbits=always(word)) == 1


@pytest.mark.parametrize("reward", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("mechanism", ["epsilon 1", "lying", "unrelated"])
def test_a_bounded_reward_gives_bernoulli_feedback_of_mean_g(mechanism: str, reward: float) -> None:
    channel, draws = MECHANISMS[mechanism], 100_000
    bits = random.Random(4).getrandbits
    mean = ones(lambda x: channel.flip(x, randbits=bits), reward, draws) / draws
    expected = channel.mean_feedback(reward)
    band = 4 * math.sqrt(expected * (1 - expected) / draws)
    assert abs(mean - expected) < band
    assert abs(mean - channel.mean_feedback(1 - reward)) > band or reward == 0.5
