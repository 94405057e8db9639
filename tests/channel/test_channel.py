"""Channels: g and its inverse, designs, tables, plain data, refusals."""

import math
import pickle
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import policy_cases
from whitelie import (
    IDENTITY,
    Channel,
    InvalidInput,
    Monotone,
    RandomizedResponse,
    channel_from_dict,
)

every_kind = pytest.mark.parametrize("kind", policy_cases.CHANNEL_KINDS)


def channels(kind: str) -> st.SearchStrategy[Channel]:
    """Channels of a kind, each drawn from a seed of its own."""
    make = policy_cases.CHANNEL_KINDS[kind]
    return st.integers(0, 2**32).map(lambda seed: make(random.Random(seed)))


@every_kind
def test_mean_reward_inverts_mean_feedback(kind: str) -> None:
    @given(channels(kind), st.floats(0, 1))
    def law(channel: Channel, mu: float) -> None:
        assert channel.mean_reward(channel.mean_feedback(mu)) == pytest.approx(mu, abs=1e-12)

    law()


@every_kind
def test_mean_feedback_is_a_probability_and_monotone(kind: str) -> None:
    @given(channels(kind), st.lists(st.floats(0, 1), min_size=2, max_size=5))
    def law(channel: Channel, mus: list[float]) -> None:
        feedback = [channel.mean_feedback(mu) for mu in sorted(mus)]
        assert all(0 <= lam <= 1 for lam in feedback)
        steps = [later - earlier for earlier, later in pairwise(feedback)]
        # A rounding of the interpolation may go against the direction, by one unit of it.
        assert all(step * (1 if channel.increasing else -1) >= -1e-15 for step in steps)

    law()


@every_kind
def test_plain_data_and_pickle_give_an_equal_channel(kind: str) -> None:
    @given(channels(kind))
    def law(channel: Channel) -> None:
        for copy in (channel_from_dict(channel.to_dict()), pickle.loads(pickle.dumps(channel))):
            assert copy == channel
            assert hash(copy) == hash(channel)

    law()


def test_the_affine_inverse_serves_the_whole_line() -> None:
    channel = RandomizedResponse(p00=0.6, p11=0.6)
    assert channel.mean_reward(0.0) == pytest.approx(-2)
    assert channel.mean_reward(1.0) == pytest.approx(3)


@pytest.mark.parametrize(
    ("channel", "p00", "p11"),
    [
        (RandomizedResponse.warner(0.8), 0.8, 0.8),
        (RandomizedResponse.forced(truth=0.7, yes=0.2), 0.8, 0.9),
        (RandomizedResponse.unrelated(truth=0.5, alpha=2 / 3), 2 / 3, 5 / 6),
        (RandomizedResponse.positive_unlabelled(0.3), 1.0, 0.3),
        (RandomizedResponse.from_epsilon(math.log(3)), 0.75, 0.75),
        (IDENTITY, 1.0, 1.0),
    ],
)
def test_survey_designs(channel: RandomizedResponse, p00: float, p11: float) -> None:
    assert channel.p00 == pytest.approx(p00, abs=1e-15)
    assert channel.p11 == pytest.approx(p11, abs=1e-15)
    assert channel.slope == pytest.approx(p00 + p11 - 1, abs=1e-15)


@pytest.mark.promise("Epsilon")
def test_epsilon_looks_at_all_four_ratios() -> None:
    # The two ratios of the paper are both below 1 here, private at every epsilon by its condition.
    assert RandomizedResponse(p00=0.1, p11=0.1).epsilon == pytest.approx(math.log(9))
    assert RandomizedResponse(p00=0.95, p11=0.55).epsilon == pytest.approx(math.log(11))
    assert RandomizedResponse.positive_unlabelled(0.3).epsilon == math.inf
    assert IDENTITY.epsilon == math.inf


@pytest.mark.promise("Tables")
def test_a_table_is_its_own_interpolant() -> None:
    channel = Monotone(lambda mu: 0.9 - 0.6 * mu**2)
    assert not channel.increasing
    assert channel.mean_feedback(0.25) == 0.9 - 0.6 * 0.0625
    assert channel.mean_reward(0.95) == 0.0
    assert channel.mean_reward(0.2) == 1.0
    affine = Monotone(RandomizedResponse.from_epsilon(1).mean_feedback)
    assert affine.mean_reward(0.6) == pytest.approx(
        RandomizedResponse.from_epsilon(1).mean_reward(0.6), abs=1e-12
    )


def test_a_refused_reward_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InvalidInput) as refusal:
        IDENTITY.flip(17)
    assert "17" not in str(refusal.value)


def test_a_channel_does_not_change() -> None:
    channel = Monotone.from_points([(0, 0), (1, 1)])
    with pytest.raises(AttributeError):
        channel.increasing = False  # type: ignore[misc, unused-ignore]  # it is refused


def unchecked(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call with whatever a careless user might pass."""
    return function(*arguments, **named)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf, "x", None])
@pytest.mark.parametrize("field", ["p00", "p11"])
def test_only_probabilities_are_accepted(field: str, bad: Any) -> None:
    with pytest.raises(InvalidInput, match=field) as refusal:
        unchecked(RandomizedResponse, **{"p00": 0.8, "p11": 0.8, field: bad})
    assert refusal.value.field == field
    assert refusal.value.value is bad


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: RandomizedResponse(p00=0.3, p11=0.7), "p00 + p11"),
        (lambda: RandomizedResponse.warner(0.5), "p00 + p11"),
        (lambda: RandomizedResponse.from_epsilon(0), "epsilon"),
        (lambda: RandomizedResponse.from_epsilon(-1), "epsilon"),
        (lambda: RandomizedResponse.from_epsilon(math.nan), "epsilon"),
        (lambda: RandomizedResponse.from_epsilon(1e-30), "epsilon"),
        (lambda: unchecked(RandomizedResponse.from_epsilon, "one"), "epsilon"),
        (lambda: RandomizedResponse.forced(truth=0.7, yes=0.4), "truth + yes"),
        (lambda: RandomizedResponse.unrelated(truth=1.2, alpha=0.4), "truth"),
        (lambda: RandomizedResponse.positive_unlabelled(0), "p00 + p11"),
        (lambda: IDENTITY.flip(2), "reward"),
        (lambda: IDENTITY.flip(math.nan), "reward"),
        (lambda: Monotone.from_points([(0, 0.2), (0.5, 0.6)]), "points"),
        (lambda: Monotone.from_points([(0, 0.2), (0.5, 0.3), (0.5, 0.4), (1, 0.6)]), "points"),
        (lambda: Monotone.from_points([(0, 0.2), (math.nan, 0.5), (1, 0.6)]), "points"),
        (lambda: Monotone.from_points([(0, 0.2), (1, 1.6)]), "g"),
        (lambda: Monotone(lambda _: math.nan), "g"),
        (lambda: channel_from_dict({"kind": "elsewhere"}), "channel"),
        (lambda: channel_from_dict({"kind": "monotone", "xs": [0, 1]}), "channel"),
        (lambda: channel_from_dict({"kind": "monotone", "xs": [0, 1], "ys": [0]}), "points"),
        (lambda: channel_from_dict({"kind": "monotone", "xs": 5, "ys": [0]}), "channel"),
        (lambda: unchecked(Monotone, 5), "g"),
        (lambda: Monotone(lambda _: 0.5), "g"),
        (lambda: unchecked(Monotone.from_points, 5), "points"),
        (lambda: unchecked(Monotone.from_points, [(0, "a"), (1, 1)]), "g"),
        (lambda: unchecked(Monotone.from_points, [(0, 1, 2)]), "points"),
        (lambda: RandomizedResponse(p00=10**400, p11=1), "p00"),
        (lambda: unchecked(RandomizedResponse, p00="0.8", p11=1), "p00"),
        (lambda: RandomizedResponse.from_epsilon(10**400), "epsilon"),
        (lambda: channel_from_dict([1]), "channel"),
    ],
)
def test_refusals_name_the_field(call: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        call()
    assert refusal.value.field == field


def test_a_function_that_is_not_monotone_is_refused_where_it_turns() -> None:
    with pytest.raises(InvalidInput, match=r"not between 0\.5 and 0\.5000"):
        Monotone(lambda mu: 0.2 + 0.5 * mu if mu <= 0.5 else 0.4)
