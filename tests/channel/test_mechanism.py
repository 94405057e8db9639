"""Mechanisms of several outputs, and menus of them: exact privacy, honest coins, clear refusals."""

import json
import math
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from scipy import stats

from whitelie import IDENTITY, InvalidInput, Mechanism, Menu, Monotone, RandomizedResponse, menu
from whitelie.channel import channel_from_dict, coin, mechanism_of

PRIVATE = RandomizedResponse.from_epsilon(1)
TERNARY = Mechanism(zero=[0.5, 0.2, 0.3], one=[0.2, 0.5, 0.3])
SKEWED = Mechanism(zero=[0.7, 0.1, 0.1, 0.1], one=[0.2, 0.3, 0.3, 0.2])
MECHANISMS = [
    TERNARY,
    SKEWED,
    mechanism_of(PRIVATE),
    Mechanism.prefer_not_to_say(PRIVATE, 0.2),
    mechanism_of(PRIVATE).with_loss(0.1, 0.3),
    Mechanism(zero=[1e-25, 1 - 1e-25], one=[0.5, 0.5]),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_columns_are_whole_parts_of_one(mechanism: Mechanism) -> None:
    assert sum(mechanism.zero) == sum(mechanism.one) == 2**64
    assert all(isinstance(unit, int) and unit >= 0 for unit in mechanism.zero + mechanism.one)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_epsilon_is_the_largest_log_ratio_and_never_rounded_down(mechanism: Mechanism) -> None:
    ratios = [
        Fraction(max(pair), min(pair)) if min(pair) else math.inf
        for pair in zip(mechanism.zero, mechanism.one, strict=True)
    ]
    largest = max(ratios)
    if largest == math.inf:
        assert mechanism.epsilon == math.inf
    else:
        assert mechanism.epsilon == pytest.approx(math.log(largest), rel=1e-12)
        assert math.exp(mechanism.epsilon) >= float(largest) * (1 - 1e-15)


def test_randomised_response_is_the_case_of_two_outputs() -> None:
    for channel in (PRIVATE, IDENTITY, RandomizedResponse(p00=0.9, p11=0.6)):
        general = mechanism_of(channel)
        assert general.epsilon == channel.epsilon
        assert general.slope == abs(channel.slope)
        for reward in (0, 1, 0.3, 1e-9):
            flips = [
                each.flip(reward, randbits=random.Random(1).getrandbits)
                for each in (channel, general)
            ]
            assert len(set(flips)) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS[:5])
@pytest.mark.parametrize("reward", [0, 1, 0.3])
def test_outputs_come_with_their_probabilities(mechanism: Mechanism, reward: float) -> None:
    draws, bits = 20_000, random.Random(7).getrandbits
    seen = Counter(mechanism.flip(reward, randbits=bits) for _ in range(draws))
    expected = [(1 - reward) * zero + reward * one for zero, one in mechanism.cells]
    observed = [seen[y] for y in range(mechanism.outputs)]
    assert stats.chisquare(observed, [draws * p for p in expected]).pvalue > 1e-4
    shift = 0.03 / (1 - expected[0])
    other = [expected[0] + 0.03, *(p * (1 - shift) for p in expected[1:])]
    assert stats.chisquare(observed, [draws * p for p in other]).pvalue < 1e-4, "the control"


def test_an_audit_of_the_coin_finds_its_epsilon_and_no_more() -> None:
    """From many flips of each reward, the largest log ratio is within epsilon; of another, not."""
    draws, bits = 100_000, random.Random(3).getrandbits
    seen = [Counter(TERNARY.flip(reward, randbits=bits) for _ in range(draws)) for reward in (0, 1)]
    ratios = [math.log(seen[1][y] / seen[0][y]) for y in range(3)]
    noise = 4 * math.sqrt(2 / (0.2 * draws))
    assert max(map(abs, ratios)) == pytest.approx(TERNARY.epsilon, abs=noise)
    assert max(map(abs, ratios)) > 0.5 + noise, "the control: a coin of epsilon 0.5"


def test_loss_is_one_more_output_and_silence_costs_no_privacy() -> None:
    quiet = Mechanism.prefer_not_to_say(PRIVATE, 0.25)
    assert quiet.outputs == 3
    assert quiet.epsilon == pytest.approx(PRIVATE.epsilon, rel=1e-12)
    lost = mechanism_of(PRIVATE).with_loss(0.0, 0.5)
    assert lost.outputs == 3
    assert lost.epsilon == math.inf, "only a reward of 1 is ever lost"
    assert mechanism_of(PRIVATE).with_loss(0, 0).outputs == 2


@pytest.mark.parametrize(
    ("zero", "one", "reason"),
    [
        ([0.5, 0.4], [0.5, 0.5], "sum to 0.9"),
        ([0.5, 0.5], [0.5, 0.6], "sum to 1.1"),
        ([0.5, 0.5], [0.5, 0.5], "nothing can be learned"),
        ([1.0], [1.0], "from 2 to 64"),
        ([0.5, 0.5, 0.0], [0.2, 0.8, 0.0], "never comes"),
        ([0.5, 0.5], [0.2, 0.3, 0.5], "as many outputs"),
        ([0.5, -0.5, 1], [0.2, 0.3, 0.5], "probability"),
        ([0.5, math.nan], [0.2, 0.8], "probability"),
        (None, [0.2, 0.8], "sequence"),
        ([1 / 65] * 65, [1 / 65] * 65, "from 2 to 64"),
    ],
)
def test_impossible_mechanisms_are_refused(zero: Any, one: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Mechanism(zero, one)


def test_impossible_losses_rewards_and_units_are_refused() -> None:
    with pytest.raises(InvalidInput, match="lost1"):
        TERNARY.with_loss(0.1, 1)
    with pytest.raises(InvalidInput, match="silent"):
        Mechanism.prefer_not_to_say(PRIVATE, 1)
    with pytest.raises(InvalidInput, match="not shown"):
        TERNARY.flip(1.5)
    with pytest.raises(InvalidInput, match="2\\^64"):
        Mechanism.from_units([1, 2], [coin.ONE - 1, 1])


@pytest.mark.parametrize(
    "channel", [*MECHANISMS, menu({0.25: 0.5, 4: 0.5}), Menu([TERNARY, PRIVATE])]
)
def test_everything_serialises(channel: Mechanism | Menu) -> None:
    again = channel_from_dict(json.loads(json.dumps(channel.to_dict())))
    assert again == channel
    assert hash(again) == hash(channel)


def test_a_menu_gives_the_most_informative_mechanism_within_a_limit() -> None:
    offer = menu({4: 0.3, 0.25: 0.2, 1: 0.5})
    assert [offer.choice_for(limit) for limit in (0.1, 0.25, 0.5, 1, 3.9, 4, 99)] == [
        None, 1, 1, 2, 2, 0, 0,
    ]  # fmt: skip
    assert offer.epsilon == pytest.approx(4)
    assert offer.starts == (0, 2, 4)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: menu({}), "from 1 to 8"),
        (lambda: menu(dict.fromkeys(range(1, 10), 1 / 9)), "from 1 to 8"),
        (lambda: menu({1: 0.5, 2: 0.4}), "sum to 0.9"),
        (lambda: menu({1: 0.0, 2: 1.0}), "above 0"),
        (lambda: menu({0: 1.0}), "epsilon"),
        (lambda: menu([1, 2]), "epsilon: share"),  # type: ignore[arg-type]  # it is refused
        (lambda: Menu([PRIVATE, mechanism_of(PRIVATE)]), "the same"),
        (lambda: Menu([Monotone.from_points([(0, 0.1), (1, 0.9)])]), "offer mechanisms"),
        (lambda: Menu([PRIVATE, IDENTITY], [1.0]), "one for each of 2"),
    ],
)
def test_impossible_menus_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        make()
