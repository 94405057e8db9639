"""The live bandit: learning, delay, arms that come and go, refusals that change nothing."""

import copy
import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from helpers import policy_cases
from whitelie import (
    IDENTITY,
    KLUCB,
    TS,
    UCB,
    UCB1,
    Bandit,
    DPUCBInt,
    InvalidInput,
    Monotone,
    RandomizedResponse,
)
from whitelie.policy import Policy

NOISY, CLEAR = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)


def play(bandit: Bandit, means: dict[str, float], channels: Any, rounds: int) -> Counter[str]:
    """Show, flip and report, one visitor after another; the shares of the last half."""
    visitors = random.Random(2)
    shown = []
    for _ in range(rounds):
        arm = bandit.choose()
        reward = int(visitors.random() < means[arm])
        bandit.update(arm, channels[arm].flip(reward, randbits=visitors.getrandbits))
        shown.append(arm)
    return Counter(shown[rounds // 2 :])


@pytest.mark.parametrize("policy", [KLUCB(c=0), UCB(c=0), TS()], ids=policy_cases.name)
def test_corrected_policies_find_the_best_arm_under_unequal_channels(policy: Policy) -> None:
    channels = {"best": NOISY, "good": CLEAR, "turned": RandomizedResponse(p00=0.1, p11=0.1)}
    means = {"best": 0.9, "good": 0.4, "turned": 0.3}
    bandit = Bandit(list(means), channels, policy, seed=1)
    assert play(bandit, means, channels, 4000)["best"] > 1800


@pytest.mark.parametrize("feedback", ["naive", "corrected"])
def test_the_naive_policy_is_drawn_to_the_clearer_channel(feedback: Any) -> None:
    channels = {"best": NOISY, "good": CLEAR}
    means = {"best": 0.9, "good": 0.8}  # mean feedback .58 and .74
    bandit = Bandit(list(means), channels, TS(feedback=feedback), seed=1)
    naive = feedback == "naive"
    assert (play(bandit, means, channels, 6000)["good"] > 2900) == naive


@pytest.mark.parametrize("policy", [KLUCB(), UCB(), UCB1()], ids=policy_cases.name)
@pytest.mark.promise("Words and ties")
def test_index_policies_first_show_every_arm_once(policy: Policy) -> None:
    assert sorted(Bandit("abcde", IDENTITY, policy, seed=0).choose(5)) == list("abcde")
    waiting = Bandit("abcde", IDENTITY, policy, seed=0)
    assert waiting.choose(pending=dict.fromkeys("abde", 1)) == "c"


def test_the_order_of_first_pulls_is_random() -> None:
    first = Counter(Bandit("abc", IDENTITY, KLUCB(), seed=seed).choose() for seed in range(900))
    assert all(240 < first[arm] < 360 for arm in "abc")


@pytest.mark.parametrize("policy", [KLUCB(), UCB(), UCB1()], ids=policy_cases.name)
@pytest.mark.promise("Delay")
def test_pending_decisions_spread_a_batch(policy: Policy) -> None:
    counts = {"a": (100, 52), "b": (100, 50), "c": (100, 48)}
    bandit = Bandit("abc", IDENTITY, policy, seed=0, counts=counts)
    spread = Counter(bandit.choose(300))
    assert min(spread[arm] for arm in "abc") > 40
    one_by_one = Counter(bandit.choose() for _ in range(300))
    assert one_by_one == {"a": 300}, "negative control: without pending, one arm takes all"


def test_pending_arms_without_feedback_count_as_one_half() -> None:
    bandit = Bandit("ab", IDENTITY, UCB(c=0), seed=0, counts={"a": (50, 20)})
    assert bandit.choose(pending={"b": 50}) == "b"
    bandit.update_counts({"a": (50, 40)})
    assert bandit.choose(pending={"b": 100}) == "a"


def test_one_choice_and_a_batch_of_one_agree() -> None:
    assert [Bandit("ab", IDENTITY, seed=5).choose()] == Bandit("ab", IDENTITY, seed=5).choose(1)
    assert Bandit("ab", IDENTITY, seed=5).choose(0) == []


def test_any_hashable_is_a_name() -> None:
    names = ["text", 3, (1, 2), None, frozenset({1})]
    bandit = Bandit(names, IDENTITY, seed=1)
    bandit.update((1, 2), 1)
    bandit.update([(1, 2), None], [1, 0])
    assert bandit.counts[(1, 2)] == (2, 2)
    with pytest.raises(InvalidInput, match="names in JSON"):
        bandit.to_json()


def test_feedback_may_be_any_zero_or_one() -> None:
    bandit = Bandit("ab", IDENTITY, seed=1)
    bandit.update(np.array(["a", "b", "a"]), np.array([1, 0, 1]))
    bandit.update("a", True)
    bandit.update("b", np.int64(1))
    bandit.update("b", 0.0)
    assert bandit.counts == {"a": (3, 3), "b": (3, 1)}


def test_arms_come_and_go() -> None:
    bandit = Bandit("ab", NOISY, KLUCB(), seed=1, counts={"a": (9, 5), "b": (8, 2)})
    bandit.add_arm("c", CLEAR, counts=(3, 1))
    assert bandit.counts == {"a": (9, 5), "b": (8, 2), "c": (3, 1)}
    bandit.retire_arm("a")
    assert bandit.arms == ("b", "c")
    assert set(bandit.choose(50)) <= {"b", "c"}
    bandit.update("a", 1)  # late feedback
    assert bandit.counts["a"] == (10, 6)
    estimates = bandit.estimates()
    assert estimates["a"].retired
    assert estimates["a"].probability_best == 0
    restored = Bandit.from_json(bandit.to_json())
    assert restored.arms == ("b", "c")
    assert restored.channels == {"a": NOISY, "b": NOISY, "c": CLEAR}


def test_repr_says_what_it_is() -> None:
    assert repr(Bandit("ab", IDENTITY, seed=1)) == "Bandit(2 arms, TS-CF, 0 feedbacks)"


def test_a_bandit_without_a_seed_draws_one() -> None:
    seeds = {json.loads(Bandit("ab", IDENTITY).to_json())["seed"] for _ in range(5)}
    assert len(seeds) == 5


TABLE = Monotone.from_points([(0, 0.2), (0.5, 0.3), (1, 0.9)])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([], IDENTITY), "arms"),
        (("aa", IDENTITY), "arms"),
        (([[1], [2]], IDENTITY), "arms"),
        ((5, IDENTITY), "arms"),
        (("ab", [IDENTITY]), "channels"),
        (("ab", {"a": IDENTITY}), "channels"),
        (("a", {"a": IDENTITY, "b": IDENTITY}), "channels"),
        (("ab", 0.7), "channels"),
        (("ab", [IDENTITY, 0.7]), "channels"),
        (("ab", TABLE, KLUCB(feedback="wrapped")), "channels"),
        (("ab", IDENTITY, TS(feedback="wrapped")), "policy"),
        (("ab", IDENTITY, DPUCBInt()), "policy"),
        (("ab", IDENTITY, TS(), -1), "seed"),
        (("ab", IDENTITY, TS(), 1.5), "seed"),
        (("ab", IDENTITY, TS(), 2**64), "seed"),
        (("ab", IDENTITY, "TS"), "policy"),
    ],
)
def test_a_bad_bandit_is_refused_at_construction(arguments: tuple[Any, ...], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Bandit(*arguments)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda b: b.update("z", 1), "arm"),
        (lambda b: b.update([], [1]), "feedback"),
        (lambda b: b.update(["a", "z"], [1, 1]), "arm"),
        (lambda b: b.update(["a", "b"], [1]), "feedback"),
        (lambda b: b.update(["a", "b"], 1), "feedback"),
        (lambda b: b.update(["a", "b"], [1, 2]), "feedback"),
        (lambda b: b.update("a", 0.5), "feedback"),
        (lambda b: b.update("a", -1), "feedback"),
        (lambda b: b.update("a", None), "feedback"),
        (lambda b: b.update("a", float("nan")), "feedback"),
        (lambda b: b.update("a", "1"), "feedback"),
        (lambda b: b.update("a", [1, 0]), "feedback"),
        (lambda b: b.update_counts({"a": (1, 0), "z": (1, 0)}), "arm"),
        (lambda b: b.update_counts({"a": (1, 0), "b": (1, 2)}), "successes['b']"),
        (lambda b: b.update_counts({"a": (-1, 0)}), "pulls['a']"),
        (lambda b: b.update_counts({"a": (1.5, 0)}), "pulls['a']"),
        (lambda b: b.update_counts({"a": 3}), "counts['a']"),
        (lambda b: b.update_counts({"a": (2**60, 0)}), "pulls['a']"),
        (lambda b: b.choose(-1), "n"),
        (lambda b: b.choose(2.0), "n"),
        (lambda b: b.choose(True), "n"),
        (lambda b: b.choose(10**12), "n"),
        (lambda b: b.choose(available=5), "available"),
        (lambda b: b.choose(pending=["a"]), "pending"),
        (lambda b: b.update_counts([("a", (1, 0))]), "counts"),
        (lambda b: b.update_counts({"a": (2**53, 0)}), "all pulls together"),
        (lambda b: b.merge(None), "other"),
        (lambda b: b.choose(available=["z"]), "arm"),
        (lambda b: b.choose(available=[]), "available"),
        (lambda b: b.choose(pending={"z": 1}), "arm"),
        (lambda b: b.choose(pending={"a": -1}), "pending['a']"),
        (lambda b: b.add_arm("a", IDENTITY), "arms"),
        (lambda b: b.add_arm("c", 0.7), "channels"),
        (lambda b: b.add_arm("c", IDENTITY, counts=(1, 2)), "successes['c']"),
        (lambda b: b.add_arm("c", TABLE), "channels"),
        (lambda b: b.retire_arm("z"), "arm"),
        (lambda b: b.merge(Bandit("ab", IDENTITY, TS())), "policy"),
        (lambda b: b.merge(Bandit("ac", NOISY, b.policy)), "arms"),
        (lambda b: b.merge(Bandit("ab", CLEAR, b.policy)), "channels"),
    ],
)
def test_refusals_name_the_field_and_change_nothing(call: Any, field: str) -> None:
    bandit = Bandit("ab", NOISY, KLUCB(feedback="wrapped"), seed=1, counts={"a": (5, 2)})
    before = bandit.to_json()
    with pytest.raises(InvalidInput) as refusal:
        call(bandit)
    assert refusal.value.field == field
    assert bandit.to_json() == before


def test_available_restricts_the_choice() -> None:
    for policy in policy_cases.POLICIES:
        bandit = Bandit("abcd", NOISY, policy, seed=1, counts={"a": (50, 49), "b": (50, 1)})
        bandit.retire_arm("c")
        assert set(bandit.choose(40, available="bcd")) <= {"b", "d"}
        assert {bandit.choose(available=["b"]) for _ in range(3)} == {"b"}


def test_a_batch_counts_as_many_decisions() -> None:
    one, two = (Bandit("abcd", NOISY, TS(), seed=6) for _ in range(2))
    assert one.choose(3) + one.choose(2) + [one.choose()] == two.choose(6)


def test_two_bandits_that_retired_everything_do_not_merge() -> None:
    one, other = Bandit("ab", NOISY, seed=1), Bandit("ab", NOISY, seed=2)
    one.retire_arm("a")
    other.retire_arm("b")
    with pytest.raises(InvalidInput, match="last arm"):
        one.merge(other)


def test_a_copy_shares_nothing() -> None:
    bandit = Bandit("ab", NOISY, seed=1)
    twin = copy.copy(bandit)
    twin.update("a", 1)
    assert bandit.counts["a"] == (0, 0)


@pytest.mark.promise("WRAPPER")
def test_a_retired_arm_does_not_stretch_the_wrappers_scale() -> None:
    counts = {"a": (1000, 500), "b": (1000, 600)}
    channels = [RandomizedResponse.warner(0.9), RandomizedResponse.warner(0.8)]
    bandit = Bandit("ab", channels, KLUCB(feedback="wrapped"), seed=1, counts=counts)
    before = bandit.choose(30)
    bandit.add_arm("x", RandomizedResponse.warner(0.501))
    bandit.retire_arm("x")
    assert set(before) == set(bandit.choose(30)) == {"b"}


def test_the_last_arm_cannot_be_retired() -> None:
    bandit = Bandit("ab", IDENTITY, seed=1)
    bandit.retire_arm("a")
    bandit.retire_arm("a")
    with pytest.raises(InvalidInput, match="last arm"):
        bandit.retire_arm("b")


def broken(**changes: Any) -> str:
    state = json.loads(Bandit("ab", NOISY, seed=1, counts={"a": (5, 2)}).to_json())
    arm = {key: value for key, value in changes.items() if key in state["arms"][0]}
    state["arms"][0].update(arm)
    state.update({key: value for key, value in changes.items() if key not in arm})
    return json.dumps(state)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "state"),
        ("[" * 100_000 + "]" * 100_000, "state"),
        (broken(name=None), "arm"),
        (broken(name=1.5), "arm"),
        (broken(policy={"name": []}), "policy"),
        (broken(policy={"name": "KLUCB", "c": 10**400}), "c"),
        ("[]", "schema"),
        ('{"schema": "elsewhere"}', "schema"),
        (broken(version=2), "version"),
        (broken(pulls=-5), "pulls['a']"),
        (broken(successes=6), "successes['a']"),
        (broken(pulls="5"), "pulls['a']"),
        (broken(channel=1), "channel"),
        (broken(channel=-1), "channel"),
        (broken(retired="no"), "retired"),
        (broken(name="b"), "arms"),
        (broken(arms=[]), "arms"),
        (broken(arms=3), "state"),
        (broken(arms=[{}]), "state"),
        (broken(policy={"name": "elsewhere"}), "policy"),
        (broken(policy={"name": "TS", "c": 3}), "policy"),
        (broken(policy={"name": "KLUCB", "c": -3}), "c"),
        (broken(policy={"name": "DPUCBInt"}), "policy"),
        (broken(seed=None), "seed"),
        (broken(decisions=-1), "decisions"),
        (broken(channels=[{"kind": "randomized_response", "p00": 2, "p11": 0.5}]), "p00"),
        (broken(channels=[]), "channel"),
    ],
)
def test_a_broken_state_is_refused(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Bandit.from_json(text)
    assert refusal.value.field == field


def test_merging_keeps_an_arm_retired_that_either_has_retired() -> None:
    one, other = Bandit("ab", NOISY, seed=1), Bandit("ba", NOISY, seed=2, counts={"a": (3, 1)})
    other.retire_arm("b")
    merged = one.merge(other)
    assert merged.arms == ("a",)
    assert merged.counts == {"a": (3, 1), "b": (0, 0)}
    assert one.arms == ("a", "b")
