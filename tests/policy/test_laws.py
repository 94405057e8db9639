"""Laws that hold for every policy to which they apply, on every kind of channel."""

import random
from dataclasses import replace

import numpy as np
import pytest

from helpers import policy_cases
from whitelie import IDENTITY, KLUCB, Bandit, Channel, Monotone, RandomizedResponse
from whitelie.kernel.arms import Array
from whitelie.kernel.choice import choose
from whitelie.kernel.state import State
from whitelie.policy import Policy

on_every_pair = pytest.mark.parametrize(
    ("policy", "kind"), [pytest.param(p, k, id=f"{p.label}-{k}") for p, k in policy_cases.pairs()]
)


def choice(policy: Policy, channels: list[Channel], state: State, words: Array) -> int:
    chosen: int = choose(policy.rule, policy.pack(channels), state, words)
    return chosen


def mirror(channel: Channel) -> Channel:
    """1 − g: the same rewards, every feedback bit turned."""
    if isinstance(channel, RandomizedResponse):
        return RandomizedResponse(p00=1 - channel.p00, p11=1 - channel.p11)
    return Monotone.from_points((x, 1 - y) for x, y in zip(channel.xs, channel.ys, strict=True))


@on_every_pair
@pytest.mark.promise("Words and ties")
def test_permuting_arms_with_their_words_permutes_the_choice(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, words = case
        order = draw.sample(range(len(channels)), len(channels))
        permuted = State(*(column[order] for column in state[:4]))
        chosen = choice(policy, [channels[k] for k in order], permuted, words[order])
        assert order[chosen] == choice(policy, channels, state, words), (case, order)


@on_every_pair
def test_unavailable_arms_are_never_chosen(policy: Policy, kind: str) -> None:
    for case in policy_cases.cases(kind):
        channels, state, words = case
        assert state.available[choice(policy, channels, state, words)], case


HAVE_NAIVE_TWINS = [policy for policy in policy_cases.CORRECTED if "naive" in policy.titles]


@pytest.mark.parametrize("policy", HAVE_NAIVE_TWINS, ids=policy_cases.name)
def test_with_the_identity_channel_corrected_is_naive(policy: Policy) -> None:
    naive, both = replace(policy, feedback="naive"), ("identity", "mixed")
    for case, other in zip(*map(policy_cases.cases, both), strict=True):
        channels, state, words = case
        expected = choice(policy, channels, state, words)
        assert choice(naive, channels, state, words) == expected, case
        # A naive policy does not look at the channels at all.
        corrupted = [other[0][k % len(other[0])] for k in range(len(channels))]
        assert choice(naive, corrupted, state, words) == expected, (case, corrupted)


@pytest.mark.parametrize("kind", policy_cases.CHANNEL_KINDS)
@pytest.mark.parametrize("policy", policy_cases.CORRECTED, ids=policy_cases.name)
@pytest.mark.promise("Mirroring")
def test_a_decreasing_channel_decides_as_its_mirror(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, words = case
        turned = np.array(draw.choices([True, False], k=len(channels)))
        mirrored = [mirror(g) if t else g for g, t in zip(channels, turned, strict=True)]
        successes = np.where(turned, state.pulls - state.successes, state.successes)
        twin = state._replace(successes=successes)
        chosen = choice(policy, mirrored, twin, words)
        assert chosen == choice(policy, channels, state, words), (case, turned)


def test_a_mirrored_channel_with_unturned_counts_decides_otherwise() -> None:
    """Negative control: the law above is not true of anything."""
    channels: list[Channel] = [RandomizedResponse(p00=0.75, p11=0.75)] * 2
    state = State(
        np.array([100, 100]), np.array([70, 30]), np.array([0, 0]), np.array([True, True])
    )
    words = np.array([1, 2], dtype=np.uint64)
    turned = [mirror(channel) for channel in channels]
    assert choice(KLUCB(), turned, state, words) != choice(KLUCB(), channels, state, words)


@pytest.mark.promise("Index domain")
def test_kl_ucb_cf_under_one_shared_increasing_channel_is_kl_ucb_on_the_feedback() -> None:
    draws = random.Random(5)
    for _ in range(500):
        channel = RandomizedResponse.from_epsilon(draws.uniform(0.2, 6))
        size = draws.randint(2, 8)
        pulls = np.array([draws.randint(1, 500) for _ in range(size)])
        successes = np.array([draws.randint(0, n) for n in pulls])
        state = State(pulls, successes, np.zeros(size, dtype=np.int64), np.ones(size, dtype=bool))
        words = np.array([draws.getrandbits(64) for _ in range(size)], dtype=np.uint64)
        channels: list[Channel] = [channel] * size
        expected = choice(KLUCB(feedback="naive"), channels, state, words)
        assert choice(KLUCB(), channels, state, words) == expected


def seen_bandit(policy: Policy, channels: list[Channel], state: State, seed: int = 11) -> Bandit:
    counts = {k: (int(n), int(s)) for k, (n, s) in enumerate(zip(*state[:2], strict=True))}
    return Bandit(range(len(channels)), channels, policy, seed, counts=counts)


def pending_of(state: State) -> dict[int, int]:
    return {k: int(count) for k, count in enumerate(state.pending)}


@on_every_pair
def test_seeding_is_idempotent(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, _ = case
        seed, pending = draw.getrandbits(64), pending_of(state)
        one, two = (seen_bandit(policy, channels, state, seed) for _ in range(2))
        assert one.choose(5, pending=pending) == two.choose(5, pending=pending), (case, seed)


@on_every_pair
def test_update_order_does_not_matter(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, _ = case
        number = draw.choice([0, 1, 2, 5, 20])
        seen = [(draw.randrange(len(channels)), draw.getrandbits(1)) for _ in range(number)]
        one, two, three = (seen_bandit(policy, channels, state) for _ in range(3))
        for arm, feedback in seen:
            one.update(arm, feedback)
        for arm, feedback in draw.sample(seen, len(seen)):
            two.update(arm, feedback)
        three.update([arm for arm, _ in seen], [feedback for _, feedback in seen])
        assert one.to_json() == two.to_json() == three.to_json(), (case, seen)
        assert one.choose(5) == two.choose(5) == three.choose(5), (case, seen)


@on_every_pair
def test_a_json_round_trip_goes_on_identically(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, _ = case
        bandit = seen_bandit(policy, channels, state, draw.getrandbits(64))
        if draw.random() < 0.5 and len(channels) > 1:
            bandit.retire_arm(0)
        bandit.choose(3)
        copy = Bandit.from_json(bandit.to_json())
        assert copy.to_json() == bandit.to_json(), case
        assert copy.choose(5) == bandit.choose(5), bandit.to_json()


@on_every_pair
def test_merge_is_one_bandit_that_saw_both(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for case in policy_cases.cases(kind):
        channels, state, _ = case
        times = draw.randint(1, 5)
        one, other = (seen_bandit(policy, channels, state) for _ in range(2))
        other.update([0] * times, [1] * times)
        both = seen_bandit(policy, channels, state)
        both.update_counts(other.counts)
        merged = one.merge(other)
        assert merged.to_json() == both.to_json(), (case, times)
        assert merged.choose(5) == both.choose(5), (case, times)


def test_exact_ties_go_to_every_arm_alike() -> None:
    bandit = Bandit("abcd", IDENTITY, KLUCB(), seed=3, counts=dict.fromkeys("abcd", (50, 20)))
    first = [bandit.choose() for _ in range(4000)]
    for arm in "abcd":
        # Binomial(4000, 1/4) has a standard deviation of 27; four of them are one in 10^4.
        assert abs(first.count(arm) - 1000) < 110
