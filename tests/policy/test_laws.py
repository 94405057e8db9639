"""Laws that hold for every policy to which they apply, on every kind of channel."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cases
from whitelie import IDENTITY, KLUCB, TS, UCB, Bandit, Channel, Monotone, RandomizedResponse
from whitelie.kernel.arms import Array, pack
from whitelie.kernel.choice import State, choose, rule_of
from whitelie.policy import Policy

CORRECTED: list[Policy] = [KLUCB(), KLUCB(c=0, domain="unit"), UCB(), TS()]

on_every_pair = pytest.mark.parametrize(
    ("policy", "kind"), [pytest.param(p, k, id=f"{p.label}-{k}") for p, k in cases.pairs()]
)
few = settings(max_examples=40, deadline=None)


def choice(policy: Policy, channels: list[Channel], state: State, words: Array) -> int:
    return choose(rule_of(policy), pack(policy, channels), state, words)


def naive_twin(policy: Policy) -> Policy:
    if isinstance(policy, KLUCB):
        return KLUCB(feedback="naive", c=policy.c, domain=policy.domain)
    return UCB(feedback="naive", c=policy.c) if isinstance(policy, UCB) else TS(feedback="naive")


def mirror(channel: Channel) -> Channel:
    """1 − g: the same rewards, every feedback bit turned."""
    if isinstance(channel, RandomizedResponse):
        return RandomizedResponse(p00=1 - channel.p00, p11=1 - channel.p11)
    return Monotone.from_points((x, 1 - y) for x, y in zip(channel.xs, channel.ys, strict=True))


@on_every_pair
def test_permuting_arms_with_their_words_permutes_the_choice(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind), st.randoms(use_true_random=False))
    def law(case: tuple[list[Channel], State, Array], shuffler: random.Random) -> None:
        channels, state, words = case
        order = list(range(len(channels)))
        shuffler.shuffle(order)
        permuted = State(*(column[order] for column in state))
        chosen = choice(policy, [channels[k] for k in order], permuted, words[order])
        assert order[chosen] == choice(policy, channels, state, words)

    law()


@on_every_pair
def test_unavailable_arms_are_never_chosen(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind))
    def law(case: tuple[list[Channel], State, Array]) -> None:
        channels, state, words = case
        assert state.available[choice(policy, channels, state, words)]

    law()


@pytest.mark.parametrize("policy", CORRECTED, ids=cases.name)
def test_with_the_identity_channel_corrected_is_naive(policy: Policy) -> None:
    @few
    @given(cases.arms("identity"), cases.arms("mixed"))
    def law(
        case: tuple[list[Channel], State, Array], other: tuple[list[Channel], State, Array]
    ) -> None:
        channels, state, words = case
        expected = choice(policy, channels, state, words)
        assert choice(naive_twin(policy), channels, state, words) == expected
        # A naive policy does not look at the channels at all.
        corrupted = [other[0][k % len(other[0])] for k in range(len(channels))]
        assert choice(naive_twin(policy), corrupted, state, words) == expected

    law()


@pytest.mark.parametrize("kind", cases.CHANNEL_KINDS)
@pytest.mark.parametrize("policy", CORRECTED, ids=cases.name)
def test_a_decreasing_channel_decides_as_its_mirror(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind), st.data())
    def law(case: tuple[list[Channel], State, Array], data: st.DataObject) -> None:
        channels, state, words = case
        size = len(channels)
        turned = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
        mirrored = [mirror(g) if t else g for g, t in zip(channels, turned, strict=True)]
        successes = np.where(turned, state.pulls - state.successes, state.successes)
        twin = state._replace(successes=successes)
        assert choice(policy, mirrored, twin, words) == choice(policy, channels, state, words)

    law()


def test_a_mirrored_channel_with_unturned_counts_decides_otherwise() -> None:
    """Negative control: the law above is not true of anything."""
    channels: list[Channel] = [RandomizedResponse(p00=0.75, p11=0.75)] * 2
    state = State(
        np.array([100, 100]), np.array([70, 30]), np.array([0, 0]), np.array([True, True])
    )
    words = np.array([1, 2], dtype=np.uint64)
    turned = [mirror(channel) for channel in channels]
    assert choice(KLUCB(), turned, state, words) != choice(KLUCB(), channels, state, words)


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
    @few
    @given(cases.arms(kind), st.integers(0, 2**64 - 1))
    def law(case: tuple[list[Channel], State, Array], seed: int) -> None:
        channels, state, _ = case
        one, two = (seen_bandit(policy, channels, state, seed) for _ in range(2))
        pending = pending_of(state)
        assert one.choose(5, pending=pending) == two.choose(5, pending=pending)

    law()


@on_every_pair
def test_update_order_does_not_matter(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind), st.data())
    def law(case: tuple[list[Channel], State, Array], data: st.DataObject) -> None:
        channels, state, _ = case
        reports = st.tuples(st.integers(0, len(channels) - 1), st.integers(0, 1))
        seen = data.draw(st.lists(reports, max_size=20))
        one, two, three = (seen_bandit(policy, channels, state) for _ in range(3))
        for arm, feedback in seen:
            one.update(arm, feedback)
        for arm, feedback in data.draw(st.permutations(seen)):
            two.update(arm, feedback)
        three.update([arm for arm, _ in seen], [feedback for _, feedback in seen])
        assert one.to_json() == two.to_json() == three.to_json()
        assert one.choose(5) == two.choose(5) == three.choose(5)

    law()


@on_every_pair
def test_a_json_round_trip_goes_on_identically(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind), st.booleans(), st.integers(0, 2**64 - 1))
    def law(case: tuple[list[Channel], State, Array], retire: bool, seed: int) -> None:
        channels, state, _ = case
        bandit = seen_bandit(policy, channels, state, seed)
        if retire and len(channels) > 1:
            bandit.retire_arm(0)
        bandit.choose(3)
        copy = Bandit.from_json(bandit.to_json())
        assert copy.to_json() == bandit.to_json()
        assert copy.choose(5) == bandit.choose(5)

    law()


@on_every_pair
def test_merge_is_one_bandit_that_saw_both(policy: Policy, kind: str) -> None:
    @few
    @given(cases.arms(kind), st.integers(1, 5))
    def law(case: tuple[list[Channel], State, Array], times: int) -> None:
        channels, state, _ = case
        one, other = (seen_bandit(policy, channels, state) for _ in range(2))
        other.update([0] * times, [1] * times)
        both = seen_bandit(policy, channels, state)
        both.update_counts(other.counts)
        merged = one.merge(other)
        assert merged.to_json() == both.to_json()
        assert merged.choose(5) == both.choose(5)

    law()


def test_exact_ties_go_to_every_arm_alike() -> None:
    bandit = Bandit("abcd", IDENTITY, KLUCB(), seed=3, counts=dict.fromkeys("abcd", (50, 20)))
    first = [bandit.choose() for _ in range(4000)]
    for arm in "abcd":
        # Binomial(4000, 1/4) has a standard deviation of 27; four of them are one in 10^4.
        assert abs(first.count(arm) - 1000) < 110
