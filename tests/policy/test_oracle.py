"""The compiled choice rule and interval against their slow twins in `naive`, on random states."""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from random import Random

import numpy as np
import pytest

from helpers import naive, policy_cases
from helpers.naive import Arm, IndexPolicy
from whitelie.channel import IDENTITY, Channel, Monotone, RandomizedResponse
from whitelie.kernel.choice import choose
from whitelie.kernel.divergence import divergence, lower_end, upper_end
from whitelie.kernel.exploration import exploration
from whitelie.kernel.interval import feedback_interval
from whitelie.kernel.rule import value
from whitelie.kernel.state import State
from whitelie.kernel.words import ZERO_WORD
from whitelie.policy import KLUCB, UCB, UCB1

TOLERANCE = 1e-9
PROBLEMS = 120  # of one to six arms each, for every policy
DECISIONS = 80
TIES = 30

POLICIES: tuple[IndexPolicy, ...] = (
    KLUCB(),
    KLUCB(c=0),
    KLUCB(domain="unit"),
    KLUCB(domain="unit", c=0.5),
    KLUCB(feedback="naive"),
    KLUCB(feedback="naive", domain="unit"),
    KLUCB(feedback="wrapped"),
    UCB(),
    UCB(c=1),
    UCB(feedback="naive"),
    UCB(feedback="wrapped"),
    UCB1(),
    UCB1(feedback="wrapped"),
)
OTHERS = [policy for policy in policy_cases.LOCAL if policy not in POLICIES]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
every_local_policy = pytest.mark.parametrize("policy", [*POLICIES, *OTHERS], ids=policy_cases.name)

SQUARE = Monotone(lambda mu: 0.1 + 0.8 * mu**2)
FALLING_EXPONENTIAL = Monotone(lambda mu: math.exp(-2 * mu))


# Random states


def random_affine(random: Random) -> RandomizedResponse:
    """A symmetric channel of epsilon 1/8 … 8, a lopsided or one-sided one, or no corruption.

    Each may be turned into its decreasing opposite.
    """
    epsilon = 2 ** random.choice((-3, 3, random.uniform(-3, 3)))
    symmetric = RandomizedResponse.from_epsilon(epsilon)
    slope = random.uniform(0.06, 1)
    p11 = random.uniform(slope, 1)
    lopsided = RandomizedResponse(p00=slope + 1 - p11, p11=p11)
    one_sided = RandomizedResponse.positive_unlabelled(random.uniform(0.1, 1))
    channel = random.choice((symmetric, symmetric, lopsided, one_sided, IDENTITY))
    return channel if random.random() < 0.5 else opposite(channel)


def opposite(channel: RandomizedResponse) -> RandomizedResponse:
    """1 − g: the same channel with the names of the two feedbacks exchanged."""
    return RandomizedResponse(p00=1 - channel.p00, p11=1 - channel.p11)


def random_table(random: Random) -> Monotone:
    """A channel through three to six points, whose image is all of [0, 1] or a part of it."""
    segments = random.randint(2, 5)
    low = random.choice((0.0, random.uniform(0, 0.8)))
    high = random.choice((1.0, random.uniform(low + 0.1, 1)))
    ys = [low + (high - low) * share for share in random_ascent(random, segments)]
    if random.random() < 0.5:
        ys.reverse()
    return Monotone.from_points(zip(random_ascent(random, segments), ys, strict=True))


def random_ascent(random: Random, segments: int) -> list[float]:
    """Numbers from 0 to 1, no two of them close: a flat piece would magnify rounding."""
    steps = [random.uniform(0.1, 1) for _ in range(segments)]
    return [0.0, *(sum(steps[: i + 1]) / sum(steps) for i in range(segments - 1)), 1.0]


def random_channel(random: Random) -> Channel:
    return random.choice((random_affine, random_table))(random)


def random_arm(random: Random, channel: Channel) -> Arm:
    pulls = random.choice((0, 1, 1, 2, 3, *(random.randint(1, 10**d) for d in (1, 2, 4)), 10**6))
    successes = random.choice((0, pulls, *(random.randint(0, pulls) for _ in range(4))))
    pending = random.choice((0, 0, 1, random.randint(1, 1000)))
    if pulls == 0:
        pending = max(pending, 1)
    return Arm(channel, pulls, successes, pending, word=random.getrandbits(64))


def random_arms(random: Random, policy: IndexPolicy) -> list[Arm]:
    channel_of = random_affine if policy.feedback == "wrapped" else random_channel
    return [random_arm(random, channel_of(random)) for _ in range(random.randint(1, 6))]


def random_time(random: Random, arms: Sequence[Arm]) -> int:
    """Any time is an input of the index, so it need not be the sum of the pulls."""
    received = sum(arm.pulls for arm in arms)
    return random.choice((0, 1, 2, 3, received, received, random.randint(4, 10**9)))


def random_states(
    seed: str, policy: IndexPolicy, channel: Channel | None = None
) -> Iterator[tuple[list[Arm], int]]:
    random = Random(f"{seed} {policy}")
    for _ in range(PROBLEMS):
        arms = [random_arm(random, channel)] if channel else random_arms(random, policy)
        yield arms, random_time(random, arms)


# The compiled functions, called with the oracle's arguments


def compiled_state(arms: Sequence[Arm]) -> State:
    return State(
        np.array([arm.pulls for arm in arms], dtype=np.int64),
        np.array([arm.successes for arm in arms], dtype=np.int64),
        np.array([arm.pending for arm in arms], dtype=np.int64),
        np.array([arm.available for arm in arms], dtype=np.bool_),
    )


def compiled_indices(policy: IndexPolicy, arms: Sequence[Arm], t: int) -> list[float]:
    rule, packed = policy.rule, policy.pack([arm.channel for arm in arms])
    f, state = exploration(rule, t), compiled_state(arms)
    return [value(rule, packed, state, k, f, ZERO_WORD) for k in range(len(arms))]


def compiled_choice(policy: IndexPolicy, arms: Sequence[Arm]) -> int:
    packed = policy.pack([arm.channel for arm in arms])
    words = np.array([arm.word for arm in arms], dtype=np.uint64)
    return int(choose(policy.rule, packed, compiled_state(arms), words))


def index_errors(
    policy: IndexPolicy, arms: Sequence[Arm], t: int, oracle: IndexPolicy | None = None
) -> list[float]:
    """Distances of the compiled indices from the oracle's, relative to max(1, |index|)."""
    expected = [naive.index(oracle or policy, arms, k, t) for k in range(len(arms))]
    compiled = compiled_indices(policy, arms, t)
    return [abs(a - b) / max(1, abs(b)) for a, b in zip(compiled, expected, strict=True)]


# The index


@every_policy
@pytest.mark.promise("WRAPPER")
def test_index_agrees_with_its_definition(policy: IndexPolicy) -> None:
    for arms, t in random_states("index", policy):
        assert max(index_errors(policy, arms, t)) <= TOLERANCE, (arms, t)


@pytest.mark.parametrize("channel", [SQUARE, FALLING_EXPONENTIAL], ids=repr)
@pytest.mark.parametrize("policy", [KLUCB(), UCB()], ids=lambda policy: policy.label)
def test_index_agrees_on_a_tabulated_function(policy: IndexPolicy, channel: Channel) -> None:
    for arms, t in random_states("function", policy, channel):
        assert max(index_errors(policy, arms, t)) <= TOLERANCE, (arms, t)


def test_the_random_states_reach_every_edge() -> None:
    edges: dict[str, Callable[[Arm, int], bool]] = {
        "no time": lambda arm, t: t == 0,
        "t = 1": lambda arm, t: t == 1,
        "t = 2": lambda arm, t: t == 2,
        "t = 3": lambda arm, t: t == 3,
        "only zeros": lambda arm, t: arm.pulls > 0 and arm.successes == 0,
        "only ones": lambda arm, t: 0 < arm.pulls == arm.successes,
        "one pull": lambda arm, t: arm.pulls == 1,
        "many pulls": lambda arm, t: arm.pulls == 10**6,
        "pending": lambda arm, t: arm.pulls > 0 and arm.pending > 0,
        "nothing but pending": lambda arm, t: arm.pulls == 0,
        "decreasing": lambda arm, t: not arm.channel.increasing,
        "affine": lambda arm, t: isinstance(arm.channel, RandomizedResponse),
        "tabulated": lambda arm, t: isinstance(arm.channel, Monotone),
        "mean outside the image": lambda arm, t: outside_image(arm),
    }
    states = [
        (arm, t)
        for policy in POLICIES
        for arms, t in random_states("index", policy)
        for arm in arms
    ]
    seen = {name: sum(edge(arm, t) for arm, t in states) for name, edge in edges.items()}
    assert len(states) >= 5000
    assert min(seen.values()) >= 100, seen


def outside_image(arm: Arm) -> bool:
    ends = arm.channel.mean_feedback(0.0), arm.channel.mean_feedback(1.0)
    return not min(ends) <= naive.mean_feedback(arm) <= max(ends)


def test_wrapped_states_mix_increasing_and_decreasing_channels() -> None:
    directions = [
        {arm.channel.increasing for arm in arms}
        for arms, _ in random_states("index", KLUCB(feedback="wrapped"))
    ]
    assert directions.count({True, False}) >= 50


@pytest.mark.promise("Index domain")
def test_an_empty_set_gives_the_nearest_end_point() -> None:
    """10,000 equal feedbacks, which a channel between 0.4 and 0.6 cannot have sent."""
    policy = KLUCB()
    points = ((0.0, 0.4), (0.3, 0.5), (1.0, 0.6))
    increasing = Monotone.from_points(points)
    decreasing = Monotone.from_points((x, 1 - y) for x, y in points)
    for channel, expected in ((increasing, [1, 0]), (decreasing, [0, 1])):
        arms = [Arm(channel, 10**4, 10**4), Arm(channel, 10**4, 0)]
        assert compiled_indices(policy, arms, t=10) == expected
        assert [naive.index(policy, arms, k, t=10) for k in (0, 1)] == expected


def test_negative_control_another_c_is_noticed() -> None:
    """c matters from t = 3 on, wherever the index is not the end of its domain."""
    errors = [
        error
        for arms, t in random_states("control", KLUCB(feedback="naive"))
        for arm, error in zip(
            arms,
            index_errors(KLUCB(feedback="naive", c=2), arms, t, KLUCB(feedback="naive", c=3)),
            strict=True,
        )
        if t >= 3 and naive.mean_feedback(arm) < 1
    ]
    assert len(errors) > 100
    assert sum(error > TOLERANCE for error in errors) > 0.8 * len(errors)


@pytest.mark.parametrize("c", [0, 0.5, 1, 3, 10])
@pytest.mark.promise("t and f")
def test_exploration_agrees(c: float) -> None:
    times = (*range(100), 10**3, 10**6, 10**9, 10**12)
    for policy in (KLUCB(c=c), UCB(c=c)):
        compiled = [exploration(policy.rule, t) for t in times]
        assert compiled == pytest.approx([naive.exploration(policy, t) for t in times], abs=1e-12)


# The choice


def random_decision(random: Random, policy: IndexPolicy) -> list[Arm]:
    """Arms of which some are copies of others but for the word, some away, some untouched."""
    arms = random_arms(random, policy)
    arms += [random.choice(arms) for _ in range(random.randint(0, 3))]
    if random.random() < 0.2:
        untouched = Arm(arms[0].channel, 0, 0)
        arms += [untouched] * random.randint(1, 3)
    arms = [replaced(random, arm, available=random.random() < 0.8) for arm in arms]
    one = random.randrange(len(arms))
    arms[one] = replaced(random, arms[one], available=True)
    random.shuffle(arms)
    return arms


def replaced(random: Random, arm: Arm, available: bool) -> Arm:
    word = random.getrandbits(64)
    return Arm(arm.channel, arm.pulls, arm.successes, arm.pending, available, word)


@every_local_policy
def test_choice_agrees_with_its_definition(policy: IndexPolicy) -> None:
    """Where the oracle's best two differ by rounding only, either may be chosen.

    An index of 1 − 10^-17 is 1 to one of the two and the double below 1 to the other. Equal
    indices, which copies of an arm have, leave no such freedom.
    """
    random = Random(f"choice {policy}")
    undecided = 0
    for _ in range(DECISIONS):
        arms = random_decision(random, policy)
        compiled, expected = compiled_choice(policy, arms), naive.choose(policy, arms)
        if compiled != expected:
            t = sum(arm.pulls for arm in arms)
            best, chosen = (naive.index(policy, arms, k, t) for k in (expected, compiled))
            assert 0 < best - chosen <= 1e-14, arms
            undecided += 1
    assert undecided <= 0.05 * DECISIONS


@every_local_policy
def test_the_largest_word_settles_ties(policy: IndexPolicy) -> None:
    random = Random(f"ties {policy}")
    for _ in range(TIES):
        arm = random_arms(random, policy)[0]
        arms = [replaced(random, arm, available=True) for _ in range(random.randint(2, 6))]
        assert compiled_choice(policy, arms) == naive.choose(policy, arms) == largest_word(arms)


@pytest.mark.parametrize("policy", [KLUCB(), KLUCB(domain="unit"), UCB()], ids=str)
def test_an_arm_ties_with_its_mirror_image(policy: IndexPolicy) -> None:
    """Exactly, because 1 − p is exact for the p at hand; the oracle, following g down, rounds."""
    random = Random("mirror")
    channel = RandomizedResponse(p00=0.75, p11=0.625)
    for _ in range(TIES):
        arm = random_arm(random, channel)
        failures = arm.pulls - arm.successes
        image = Arm(opposite(channel), arm.pulls, failures, arm.pending)
        arms = [replaced(random, twin, available=True) for twin in (arm, image)]
        assert compiled_choice(policy, arms) == largest_word(arms)
        first, second = (naive.index(policy, arms, k, arm.pulls) for k in (0, 1))
        assert first == pytest.approx(second, abs=1e-14)


def largest_word(arms: Sequence[Arm]) -> int:
    return max(range(len(arms)), key=lambda k: arms[k].word)


# Divergence and its inverses


def random_probability(random: Random) -> float:
    tiny = 10 ** random.uniform(-20, -1)
    return random.choice((0.0, 1.0, tiny, 1 - tiny, random.random(), random.random()))


def test_divergence_agrees() -> None:
    """Relatively, but for the rounding of y − x, which decides where x and y are close."""
    random = Random("divergence")
    for _ in range(2000):
        x, y = random_probability(random), random_probability(random)
        if random.random() < 0.3:
            y = min(max(x + random.choice((-1, 1)) * 10 ** random.uniform(-15, -1), 0.0), 1.0)
        expected = float(naive.divergence(x, y))
        within = 1e-12 * expected + 1e-15 * abs(x - y)
        assert divergence(x, y) == pytest.approx(expected, rel=0, abs=within), (x, y)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (0.3, 0.3, 0.0),
        (0.0, 1.0, math.inf),
        (1.0, 0.0, math.inf),
        (0.5, 0.0, math.inf),
        (0.5, 1.0, math.inf),
        (0.0, 0.25, math.log(4 / 3)),
        (1.0, 0.25, math.log(4)),
        (0.5, 2.0**-60, 29 * math.log(2)),  # where 1 + (y − x)/x rounds to 0
    ],
)
def test_divergence_at_the_edges(x: float, y: float, expected: float) -> None:
    assert divergence(x, y) == pytest.approx(expected, rel=1e-15, abs=0)
    assert float(naive.divergence(x, y)) == pytest.approx(expected, rel=1e-15, abs=0)


def test_ends_agree_with_halving() -> None:
    random = Random("ends")
    for _ in range(400):
        mean = random_probability(random)
        budget = random.choice((0.0, 10 ** random.uniform(-18, 2)))
        assert upper_end(mean, budget) == pytest.approx(naive.upper_end(mean, budget), abs=1e-12)
        assert lower_end(mean, budget) == pytest.approx(naive.lower_end(mean, budget), abs=1e-12)


# The interval


def assert_interval_agrees(pulls: int, successes: int, alpha: float) -> None:
    """To the tolerance and, because it may be far narrower than that, to its own width."""
    low, high = naive.interval(pulls, successes, alpha)
    within = min(TOLERANCE, 1e-6 * (high - low) + 4e-16)
    compiled = feedback_interval(pulls, successes, alpha)
    assert compiled == pytest.approx((low, high), rel=0, abs=within), (pulls, successes, alpha)


@pytest.mark.promise("The interval")
def test_interval_agrees_with_its_definition() -> None:
    random = Random("interval")
    for _ in range(200):
        arm = random_arm(random, IDENTITY)
        alpha = random.choice((0.05, 0.001, 10 ** random.uniform(-12, 0)))
        assert_interval_agrees(arm.pulls, arm.successes, alpha)


@pytest.mark.parametrize("successes", [0, 1, 5, 10**6, 4 * 10**11 + 12345, 10**12 - 1, 10**12])
def test_interval_agrees_at_a_million_million_pulls(successes: int) -> None:
    assert_interval_agrees(10**12, successes, 0.05)


@pytest.mark.parametrize("power", [28, 30, 31, 32, 40])
def test_interval_agrees_at_powers_of_two(power: int) -> None:
    """Squares of such counts are 0 in wrapping 64-bit integers."""
    for pulls, successes in ((2**power, 2 ** (power - 1)), (2**power, 10**8), (2**power + 1, 1)):
        assert_interval_agrees(pulls, successes, 0.05)
        assert_interval_agrees(pulls, pulls - successes, 0.05)


def test_stirlings_series_continues_the_factorials() -> None:
    with localcontext(naive.MANY_DIGITS):
        step = naive.log_factorial(1001) - naive.log_factorial(1000)
        assert abs(step - Decimal(1001).ln()) < Decimal("1e-34")
