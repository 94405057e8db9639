"""Top-two sampling: against its definition, in blocks, and in batches up to its certificate."""

from random import Random

import numpy as np
import pytest
from scipy import stats

from helpers import naive
from helpers.naive import Arm
from kernel.test_block import LEVEL, homogeneous
from kernel.test_transport import KINDS
from policy.test_oracle import compiled_state
from whitelie import IDENTITY, Channel, Monotone, Problem, RandomizedResponse, TopTwo
from whitelie.certificate import Certificate, packed
from whitelie.kernel.arms import Array
from whitelie.kernel.batch import run_batches
from whitelie.kernel.block import LEAST_FOR_BLOCK, thompson_block
from whitelie.kernel.choice import choose, decide_one_by_one, fill_words
from whitelie.kernel.state import State
from whitelie.kernel.stopping import first_certified, run_until_certified
from whitelie.kernel.top_two import challenger_of, show, top_two_block
from whitelie.kernel.transport import CELL_TOLERANCE
from whitelie.planning.runs import batch_ends

PRIVATE = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)
LOPSIDED = RandomizedResponse(p00=0.9, p11=0.6)
BENT = Monotone.from_points([(0, 0.1), (0.3, 0.5), (1, 0.8)])

POLICIES = [TopTwo(), TopTwo(feedback="naive"), TopTwo(know=0.5)]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)


# Against the definition


def random_arms(kind: str, random: Random) -> list[Arm]:
    """Two to five arms, each with ones and zeros: at the ends of channels costs may be infinite."""
    arms = []
    one, two = KINDS[kind](random)
    for k in range(random.randint(2, 5)):
        pulls = random.choice((2, 3, random.randint(4, 40), random.randint(40, 2000)))
        ones = min(max(round(pulls * random.gauss(0.5, 0.1)), 1), pulls - 1)
        pending, available = random.choice((0, 0, 0, 1, 30)), k < 2 or random.random() < 0.8
        channel = (one, two)[k % 2]
        arms.append(Arm(channel, pulls, ones, pending, available, random.getrandbits(64)))
    return arms


def compiled(policy: TopTwo, arms: list[Arm]) -> int:
    words = np.array([arm.word for arm in arms], dtype=np.uint64)
    packed_arms = policy.pack([arm.channel for arm in arms])
    return int(choose(policy.rule, packed_arms, compiled_state(arms), words))


@every_policy
@pytest.mark.parametrize("kind", ["one channel", "unequal", "mirrored"])
def test_decisions_agree_with_the_definition_word_by_word(policy: TopTwo, kind: str) -> None:
    random = Random(f"top two {kind}")
    for _ in range(60):
        arms = random_arms(kind, random)
        assert compiled(policy, arms) == naive.choose_top_two(policy, arms), arms


@pytest.mark.promise("Top-two sampling")
def test_decisions_on_tables_agree_but_for_near_calls() -> None:
    random, policy, same = Random("top two on tables"), TopTwo(), 0
    cases = [random_arms("tables", random) for _ in range(60)]
    for arms in cases:
        chosen, expected = compiled(policy, arms), naive.choose_top_two(policy, arms)
        same += chosen == expected
        if chosen != expected:
            assert is_a_near_call(arms, chosen), arms
    assert same >= 55


def is_a_near_call(arms: list[Arm], chosen: int) -> bool:
    """Whether rivals' costs or the leader's coin are within what a table may be off."""
    available = [k for k, arm in enumerate(arms) if arm.available]
    leader = max(available, key=lambda k: naive.thompson_draw(arms[k]))
    rivals = [k for k in available if k != leader]
    ranks = {
        k: max(naive.transport(arms[leader], arms[k])[0], 0.0)
        + np.log(arms[k].pulls + arms[k].pending)
        for k in rivals
    }
    near = [k for k in rivals if ranks[k] <= min(ranks.values()) + 2 * CELL_TOLERANCE]
    coin = naive.coin(arms[leader], 1)
    shares = [naive.challenger_share(arms[leader], arms[k]) for k in near]
    return len(near) > 1 or any(abs(coin - share) < 0.05 for share in shares)


def test_another_rule_would_be_noticed() -> None:
    """Negative control: a definition with another `know` decides otherwise now and then."""
    random = Random("top two control")
    different = 0
    for _ in range(60):
        arms = random_arms("unequal", random)
        different += compiled(TopTwo(), arms) != naive.choose_top_two(TopTwo(know=0.5), arms)
    assert different > 5


def test_one_available_arm_is_shown_and_untried_arms_come_first() -> None:
    arms = [Arm(PRIVATE, 9, 4, word=5), Arm(PRIVATE, 9, 5, available=False, word=6)]
    assert compiled(TopTwo(), arms) == 0
    untried = [
        Arm(PRIVATE, 0, 0, word=7),
        Arm(PRIVATE, 0, 0, word=8),
        Arm(PRIVATE, 0, 0, 1, word=9),
    ]
    assert compiled(TopTwo(), [*arms, *untried]) == 3


# Blocks


SIZE = 12
MIXES: dict[str, list[Channel]] = {
    "one channel": [PRIVATE] * SIZE,
    "affine": [PRIVATE, TURNED, LOPSIDED, IDENTITY] * 3,
    "tables": [PRIVATE, BENT, LOPSIDED] * 4,
}


def counts(low: int, high: int, hidden: int = 0) -> State:
    draws = np.random.default_rng(4)
    pulls = draws.integers(low, high, SIZE)
    ones = draws.binomial(pulls, draws.uniform(0.45, 0.55, SIZE))
    available = np.arange(SIZE) >= hidden
    return State(pulls, ones, draws.integers(0, 3, SIZE), available)


def copy(state: State) -> State:
    return state._replace(pending=state.pending.copy())


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("mix", ["one channel", "affine"])
@pytest.mark.parametrize("reports", [(5, 60), (100, 2000)])
def test_a_block_takes_the_decisions_of_its_leaders(
    reports: tuple[int, int], mix: str, hidden: int
) -> None:
    """With the leaders of the same block of Thompson sampling, each decision is that of `show`."""
    policy, n, key = TopTwo(know=0.9), 150, np.uint64(3)
    arms, chosen = policy.pack(MIXES[mix]), np.empty(150, dtype=np.int64)
    state = counts(*reports, hidden)
    assert min(n, SIZE - hidden) >= LEAST_FOR_BLOCK
    top_two_block(policy.rule, arms, copy(state), key, 40, chosen)
    leaders, words = np.empty(n, dtype=np.int64), np.empty(SIZE, dtype=np.uint64)
    thompson_block(policy.rule, arms, state, key, 40, leaders)
    plain = copy(state)
    for i, leader in enumerate(leaders.tolist()):
        fill_words(key, 40 + i, words)
        rival = challenger_of(arms, plain, leader, words)
        arm = show(policy.rule, arms, plain, (leader, rival), words[leader])
        assert chosen[i] == arm, i
        plain.pending[arm] += 1
    assert len(set(chosen)) > 1


@pytest.mark.parametrize("mix", MIXES)
def test_a_block_has_the_distribution_of_single_decisions(mix: str) -> None:
    policy, n = TopTwo(), 20
    blocks = 30 if mix == "tables" else 400
    arms, state = policy.pack(MIXES[mix]), counts(20, 200)
    chosen, plain, other = np.empty((3, blocks, n), dtype=np.int64)
    for row in range(blocks):
        top_two_block(policy.rule, arms, copy(state), np.uint64(1), row * n, chosen[row])
        decide_one_by_one(policy.rule, arms, copy(state), np.uint64(2), row * n, plain[row])
        earning = TopTwo(know=0.2).rule
        decide_one_by_one(earning, arms, copy(state), np.uint64(3), row * n, other[row])
    assert homogeneous(chosen, plain) > LEVEL
    assert homogeneous(chosen[:, -1], plain[:, -1]) > LEVEL, "after others are pending"
    assert homogeneous(chosen, other) < LEVEL, "the control: most decisions serve to earn"


def test_a_block_begins_with_untried_arms() -> None:
    policy, chosen = TopTwo(), np.empty(SIZE + 8, dtype=np.int64)
    nothing = np.zeros(SIZE, dtype=np.int64)
    state = State(nothing, nothing, nothing.copy(), np.ones(SIZE, dtype=bool))
    top_two_block(policy.rule, policy.pack(MIXES["affine"]), state, np.uint64(5), 0, chosen)
    assert sorted(chosen[:SIZE]) == list(range(SIZE))
    assert state.pending.sum() == SIZE + 8


# Batches


THREE = Problem([0.6, 0.45, 0.4])
MOST, RUNS = 30_000, 200


def exact_times(policy: TopTwo, seed: int) -> Array:
    """After how many reports each replicate is certified, looked at after every report."""
    test = Certificate().test(THREE.channels, np.zeros(3, dtype=bool))
    game, arms = policy.game(THREE, MOST), packed(THREE.channels)
    runs = (
        run_until_certified(game, arms, test, (np.uint64(seed), replicate), np.array([MOST]))
        for replicate in range(RUNS)
    )
    return np.array([history[-2].sum() for history in runs])


def batch_times(policy: TopTwo, seed: int, growth: float) -> Array:
    """The same in batches that grow by a share, looked at after each."""
    test = Certificate().test(THREE.channels, np.zeros(3, dtype=bool))
    game, arms = policy.game(THREE, MOST), packed(THREE.channels)
    ends = batch_ends(MOST, 3, growth)
    rows = (
        first_certified(arms, test, *run_batches(game, np.uint64(seed), replicate, ends, 0))[0]
        for replicate in range(RUNS)
    )
    return np.array([ends[row] for row in rows])


def test_stopping_times_in_batches_are_those_of_the_exact_kernel() -> None:
    exact = exact_times(TopTwo(), seed=5)
    assert exact.max() < MOST
    assert stats.ks_2samp(exact, batch_times(TopTwo(), 6, 0.01)).pvalue > LEVEL
    # Controls.
    assert stats.ks_2samp(exact, batch_times(TopTwo(), 6, 0.3)).pvalue < LEVEL
    assert stats.ks_2samp(exact, batch_times(TopTwo(know=0.3), 6, 0.01)).pvalue < LEVEL
