"""A bandit whose people choose their own privacy: reports, estimates, certificate, state."""

import json
import random
from typing import Any

import pytest

from whitelie import (
    KLUCB,
    Bandit,
    InvalidInput,
    Mechanism,
    Problem,
    RandomizedResponse,
    TopTwo,
    menu,
)
from whitelie.simulation.replicate import Replicate

OFFER = menu({0.25: 0.3, 1: 0.3, 4: 0.4})
TERNARY = Mechanism(zero=[0.5, 0.2, 0.3], one=[0.2, 0.5, 0.3])
RATES = {"low": 0.3, "middle": 0.5, "high": 0.8}


def asked(people: int = 3000, seed: int = 1) -> Bandit:
    """A bandit that has asked people of different limits."""
    bandit, draw = Bandit(list(RATES), OFFER, TopTwo(), seed=seed), random.Random(seed)
    for _ in range(people):
        arm = bandit.choose()
        choice = draw.choices(range(3), OFFER.shares)[0]
        liked = draw.random() < RATES[arm]
        report = OFFER.mechanisms[choice].flip(liked, randbits=draw.getrandbits)
        bandit.update(arm, (choice, report))
    return bandit


def test_people_of_different_limits_are_learned_from_together() -> None:
    bandit = asked()
    estimates = bandit.estimates()
    for name, rate in RATES.items():
        known = estimates[name]
        assert known.lower < rate < known.upper
        assert known.rate is known.successes is None
        assert not known.misspecified
    assert bandit.certificate().winner == "high"
    assert estimates["high"].probability_best > 0.99
    assert sum(known.pulls for known in estimates.values()) == 3000


def test_the_state_goes_on_and_merges() -> None:
    bandit = asked(300)
    again = Bandit.from_json(bandit.to_json())
    assert again.to_json() == bandit.to_json()
    assert again.choose(5) == bandit.choose(5)
    other = asked(200, seed=2)
    merged = bandit.merge(other)
    for name in RATES:
        pairs = zip(bandit.counts[name], other.counts[name], strict=True)
        sums = tuple(tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in pairs)
        assert merged.counts[name] == sums


def test_an_arm_of_another_kind_may_join_bits() -> None:
    coin = RandomizedResponse.from_epsilon(1)
    bandit = Bandit(["a", "b"], coin, KLUCB(), counts={"a": (9, 4)})
    bandit.add_arm("c", TERNARY, counts=(1, 2, 3))
    bandit.add_arm("d", OFFER)
    bandit.update(["a", "c", "d"], [1, 2, (2, 0)])
    assert bandit.counts == {
        "a": (10, 5),
        "b": (0, 0),
        "c": (1, 2, 4),
        "d": ((0, 0), (0, 0), (1, 0)),
    }
    assert Bandit.from_json(bandit.to_json()).counts == bandit.counts
    assert bandit.choose() == "b"


@pytest.mark.parametrize(
    ("arm", "report", "reason"),
    [
        ("menu", 1, "choice, output"),
        ("menu", (3, 0), "choices 0 to 2"),
        ("menu", (True, 0), "choices 0 to 2"),
        ("menu", (0, 2), "outputs of this mechanism are 0 to 1"),
        ("menu", (0, None), "outputs"),
        ("three", 3, "outputs of this mechanism are 0 to 2"),
        ("three", -1, "outputs"),
        ("three", (0, 1), "outputs"),
    ],
)
def test_impossible_reports_are_refused_and_nothing_is_counted(
    arm: str, report: Any, reason: str
) -> None:
    bandit = Bandit(["menu", "three"], [OFFER, TERNARY])
    before = bandit.counts
    with pytest.raises(InvalidInput, match=reason):
        bandit.update(arm, report)
    with pytest.raises(InvalidInput, match=reason):
        bandit.update(["three", arm], [0, report])
    assert bandit.counts == before


@pytest.mark.parametrize(
    "counts",
    [{"menu": (1, 2)}, {"menu": ((1, 2), (3, 4))}, {"three": (1, 2)}, {"three": (1, 2, -3)},
     {"three": 4}, {"menu": ((1, 2), (3, 4), (5, 0.5))}],
)  # fmt: skip
def test_impossible_counts_are_refused(counts: Any) -> None:
    with pytest.raises(InvalidInput, match="counts"):
        Bandit(["menu", "three"], [OFFER, TERNARY], counts=counts)


def test_a_changed_state_is_refused() -> None:
    state = json.loads(asked(20).to_json())
    state["arms"][0]["cells"][0] = [1]
    with pytest.raises(InvalidInput, match="counts"):
        Bandit.from_json(json.dumps(state))


def test_reports_that_a_mechanism_cannot_have_produced_cannot_say() -> None:
    """Nobody reports the first output, which comes in a fifth of all cases at least."""
    bandit = Bandit(["a", "b"], TERNARY, counts={"a": (0, 900, 100), "b": (300, 300, 300)})
    assert bandit.estimates()["a"].misspecified
    assert bandit.certificate().cannot_say is not None


def test_own_policies_are_given_choices_and_outputs() -> None:
    arms = Replicate(Problem([0.2, 0.9], [OFFER, TERNARY]), seed=1, number=0)
    reports = [arms.pull(0) for _ in range(400)]
    assert {choice for choice, _ in reports} == {0, 1, 2}
    assert {output for _, output in reports} == {0, 1}
    assert {arms.pull(1) for _ in range(100)} == {0, 1, 2}
