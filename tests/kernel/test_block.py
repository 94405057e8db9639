"""Many decisions at once: those of the choice rule, or from its distribution."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from helpers import policy_cases
from whitelie import IDENTITY, KLUCB, TS, UCB, UCB1, Channel, Monotone, RandomizedResponse
from whitelie.estimate import probabilities_best
from whitelie.kernel import block
from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.beta import beta
from whitelie.kernel.block import skip, thompson_block
from whitelie.kernel.choice import choose, decide, fill_words
from whitelie.kernel.state import State
from whitelie.kernel.truncated import Envelope, Interval, envelope_above, envelope_mass, propose
from whitelie.kernel.words import uniform, word
from whitelie.policy import Policy

# One false alarm in 10^4 per test.
LEVEL = 1e-4

NOISY = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)
TABLE = Monotone(lambda mu: 0.9 - 0.6 * mu**2)
NARROW = Monotone.from_points([(0, 0.4), (1, 0.6)])
KINDS: dict[str, list[Channel]] = {
    "affine": [NOISY],
    "mirrored": [NOISY, TURNED, IDENTITY],
    "tables": [TABLE, Monotone.from_points([(0, 0.1), (0.3, 0.5), (1, 0.8)])],
    "tables that end": [NARROW],
    "mixed": [TABLE, NOISY, IDENTITY, TURNED, NARROW],
}
SIZE = 24
BLOCKS, PLAIN = 300, 500


def counts(pulls: Array, rates: Array) -> tuple[Array, Array]:
    return pulls.astype(np.int64), np.round(pulls * rates).astype(np.int64)


def columns() -> dict[str, tuple[Array, Array]]:
    """Pulls and successes of SIZE arms: the states that are looked at."""
    draws = np.random.default_rng(4)
    near = draws.uniform(0.45, 0.55, SIZE)
    return {
        "fresh": counts(np.zeros(SIZE), near),
        "few": counts(draws.integers(0, 6, SIZE), draws.uniform(0, 1, SIZE)),
        "only ones": counts(draws.integers(0, 5, SIZE), np.ones(SIZE)),
        "only zeros": counts(draws.integers(0, 5, SIZE), np.zeros(SIZE)),
        "hundreds": counts(draws.integers(50, 500, SIZE), near),
        "unlike": counts(10 ** draws.integers(0, 6, SIZE), near),
        "a leader": counts(np.full(SIZE, 400), np.where(np.arange(SIZE) == 3, 0.56, near)),
        "a billion": counts(np.full(SIZE, 1e9), 0.5 + 2e-5 * draws.uniform(-1, 1, SIZE)),
    }


STATES = columns()


def state_of(name: str, hidden: int = 0) -> State:
    pulls, successes = STATES[name]
    available = np.ones(SIZE, dtype=bool)
    available[:hidden] = False
    return State(pulls, successes, np.zeros(SIZE, dtype=np.int64), available)


def arms_of(kind: str, size: int = SIZE) -> Arms:
    return TS().pack([KINDS[kind][k % len(KINDS[kind])] for k in range(size)])


Decide = Callable[[Arms, State, np.uint64, int, Array], None]


def plainly(arms: Arms, state: State, key: np.uint64, number: int, chosen: Array) -> None:
    decide(TS().rule, arms, state, key, number, chosen)


def in_a_block(arms: Arms, state: State, key: np.uint64, number: int, chosen: Array) -> None:
    thompson_block(TS().rule, arms, state, key, number, chosen)


def decisions(decider: Decide, arms: Arms, state: State, blocks: int, n: int = 200) -> Array:
    """Blocks (rows) of n decisions."""
    chosen = np.empty((blocks, n), dtype=np.int64)
    key = np.uint64(11 if decider is plainly else 12)
    for row in range(blocks):
        decider(arms, state, key, row * n, chosen[row])
    return chosen


def homogeneous(*samples: Array) -> float:
    """p-value of the χ² test that samples of whole numbers have one distribution."""
    most = max(int(sample.max()) for sample in samples) + 1
    table = np.array([np.bincount(sample.ravel(), minlength=most) for sample in samples])
    rare = table.sum(axis=0) < 20 * len(samples)
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0


def independent(one: Array, other: Array) -> float:
    """p-value of the χ² test of independence, for arms folded to six classes."""
    table = np.zeros((6, 6))
    np.add.at(table, (one.ravel() % 6, other.ravel() % 6), 1)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STATES)
def test_a_block_has_the_distribution_of_plain_choices(name: str, kind: str) -> None:
    arms, state = arms_of(kind), state_of(name)
    chosen = decisions(in_a_block, arms, state, BLOCKS)
    assert homogeneous(chosen, decisions(plainly, arms, state, PLAIN)) > LEVEL


@pytest.mark.parametrize("kind", KINDS)
def test_unavailable_arms_are_never_chosen(kind: str) -> None:
    arms, state = arms_of(kind), state_of("hundreds", hidden=9)
    chosen = decisions(in_a_block, arms, state, BLOCKS)
    assert chosen.min() >= 9
    assert homogeneous(chosen, decisions(plainly, arms, state, PLAIN)) > LEVEL


@pytest.mark.parametrize("kind", ["mirrored", "mixed"])
def test_frequencies_are_the_probabilities_of_being_best(kind: str) -> None:
    channels = [KINDS[kind][k % len(KINDS[kind])] for k in range(SIZE)]
    for name in ("fresh", "hundreds", "unlike"):
        state = state_of(name)
        chosen = decisions(in_a_block, TS().pack(channels), state, 1000)
        share = np.bincount(chosen.ravel(), minlength=SIZE) / chosen.size
        best = probabilities_best(channels, state.pulls, state.successes)
        assert np.all(np.abs(share - best) < 4.6 * np.sqrt(best / chosen.size) + 1e-4)


@pytest.mark.parametrize("kind", ["affine", "mixed"])
@pytest.mark.parametrize("name", ["fresh", "hundreds", "a leader"])
def test_decisions_of_a_block_are_independent(name: str, kind: str) -> None:
    """Of each other, of the first one, which gives the level, and of the block before."""
    arms, state = arms_of(kind), state_of(name)
    chosen = decisions(in_a_block, arms, state, 4000, 20)
    plain = decisions(plainly, arms, state, 4000, 20)
    assert independent(chosen[:, 1:-1], chosen[:, 2:]) > LEVEL
    assert independent(chosen[:, :1].repeat(3, axis=1), chosen[:, 1:4]) > LEVEL / 10
    assert independent(chosen[:-1, 1], chosen[1:, 1]) > LEVEL
    leader = np.bincount(chosen.ravel()).argmax()
    often = [(rows == leader).sum(axis=1) for rows in (chosen, plain)]
    assert homogeneous(*often) > LEVEL


def python_block(monkeypatch: pytest.MonkeyPatch, **other: object) -> Decide:
    """The block decided by its Python code, with functions replaced; the rest stays compiled."""
    monkeypatch.setattr(block, "word", lambda key, index: np.uint64(word(key, index)))
    for name, function in other.items():
        monkeypatch.setattr(block, name, function)
    return partial(plain_python(thompson_block), TS().rule)


def plain_python(function: Any) -> Any:
    return getattr(function, "py_func", function)


ALL_PYTHON = {
    name: plain_python(getattr(block, name))
    for name in ("word_of", "contend", "contend_above", "contend_below")
}
WORD_OF = {"word_of": ALL_PYTHON["word_of"]}

LEVELS: dict[str, Callable[[Array, int], float]] = {
    "the median": lambda values, _: float(np.median(values)),
    "the largest": lambda values, _: float(values.max()),
    "beyond the largest": lambda values, _: float(values.max()) + 0.02,
    "below all": lambda values, _: float(values.min()) - 1e-9,
    "the end of tables": lambda *_: 1.0,
    "the beginning of tables": lambda *_: 0.0,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("name", "kind"),
    [("fresh", "affine"), ("few", "mixed"), ("hundreds", "mirrored"), ("few", "tables that end")],
)
def test_any_level_is_right(
    monkeypatch: pytest.MonkeyPatch, level: str, name: str, kind: str
) -> None:
    arms, state = arms_of(kind), state_of(name)
    decider = python_block(monkeypatch, **WORD_OF, level_among=LEVELS[level])
    chosen = decisions(decider, arms, state, 100)
    assert homogeneous(chosen, decisions(plainly, arms, state, PLAIN)) > LEVEL


def half_the_chance(a: float, b: float, envelope: Envelope) -> float:
    return 0.5 * envelope_mass(a, b, envelope) if envelope.low > 0 else 1.0


def chance_from_other_counts(a: float, b: float, envelope: Envelope) -> float:
    return envelope_mass(a, b + 10, envelope) if envelope.low > 0 else 1.0


def accept_all(
    a: float, b: float, envelope: Envelope, u: float, accept: float
) -> tuple[float, bool]:
    return propose(a, b, envelope, u, accept)[0], True


def first_of_equals(made: block.Block, i: int, k: int, value: float) -> None:
    if value > made.value[i]:
        made.chosen[i], made.value[i] = k, value


def whole_draw(a: float, b: float, _: Interval, seed: np.uint64) -> float:
    return beta(a, b, seed)


@pytest.mark.parametrize(
    ("name", "kind", "wrong"),
    [
        ("hundreds", "mirrored", {"chance_above": half_the_chance}),
        ("hundreds", "affine", {"chance_above": chance_from_other_counts}),
        ("few", "affine", {"propose": accept_all}),
        ("fresh", "tables that end", {"contend": first_of_equals}),
        ("unlike", "affine", {"draw_between": whole_draw, "level_among": LEVELS["the largest"]}),
    ],
    ids=["half the chance", "other counts", "all accepted", "ties to the first", "whole below"],
)
def test_a_wrong_block_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, wrong: dict[str, object]
) -> None:
    """Negative controls; the right block passes with as many decisions."""
    arms, state = arms_of(kind), state_of(name)
    plain = decisions(plainly, arms, state, PLAIN)
    right = decisions(python_block(monkeypatch, **ALL_PYTHON), arms, state, 30)
    assert homogeneous(right, plain) > LEVEL
    decider = python_block(monkeypatch, **(ALL_PYTHON | wrong))
    assert homogeneous(decisions(decider, arms, state, 30), plain) < LEVEL


def test_decisions_are_a_function_of_key_and_number() -> None:
    arms, state = arms_of("mixed"), state_of("hundreds")
    one, two, other = (np.empty(100, dtype=np.int64) for _ in range(3))
    in_a_block(arms, state, np.uint64(5), 40, one)
    in_a_block(arms, state, np.uint64(5), 40, two)
    in_a_block(arms, state, np.uint64(5), 140, other)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert not state.pending.any()


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_few_are_plain_choices(n: int) -> None:
    arms, state = arms_of("mixed"), state_of("few")
    few, plain, many = (np.empty(size, dtype=np.int64) for size in (n, n, 50))
    in_a_block(arms, state, np.uint64(6), n, few)
    in_a_block(arms, state, np.uint64(6), n, many)
    plainly(arms, state, np.uint64(6), n, plain)
    assert np.array_equal(few, plain)
    assert many[0] == plain[0]


def test_one_available_arm_is_always_chosen() -> None:
    arms, state = arms_of("mixed"), state_of("few", hidden=SIZE - 1)
    assert np.all(decisions(in_a_block, arms, state, 3) == SIZE - 1)


def test_sure_winners() -> None:
    """One arm is the best beyond doubt; the chances of all others are far below 10^-18."""
    pulls = np.full(SIZE, 10**9)
    successes = np.where(np.arange(SIZE) == 5, 6 * 10**8, 4 * 10**8)
    state = state_of("fresh")._replace(pulls=pulls, successes=successes)
    assert np.all(decisions(in_a_block, arms_of("affine"), state, 20) == 5)


@pytest.mark.parametrize("chance", [1e-300, 1e-18, 1e-3, 0.1, 0.5])
def test_skips_are_geometric(chance: float) -> None:
    """skip·ln(1/(1 − chance)) is exponential, so its whole part is geometric."""
    key = np.uint64(3)
    skips = np.array([skip(chance, uniform(np.uint64(word(key, i)))) for i in range(5000)])
    assert stats.kstest(skips * -np.log1p(-chance), "expon").pvalue > LEVEL
    seen = np.minimum(np.floor(skips), 4).astype(np.int64)
    expected = np.array([*(chance * (1 - chance) ** np.arange(4)), (1 - chance) ** 4])
    assert np.all(np.abs(np.bincount(seen, minlength=5) - 5000 * expected) < 4.5 * 5000**0.5)


def test_no_chance_is_skipped_altogether() -> None:
    assert skip(0.0, 0.5) == np.inf
    assert skip(5e-324, 0.5) > 1e300


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1), (1, 9), (9, 1), (2, 2), (3, 80), (500, 700), (1e9, 2e9)]
)
def test_an_envelope_bounds_the_probability(a: float, b: float) -> None:
    posterior = stats.beta(a, b)
    for chance in (0.9, 0.4, 0.1, 1e-3, 1e-9):
        low = float(posterior.isf(chance))
        mass = envelope_mass(a, b, envelope_above(a, b, low, 1.0))
        assert mass > chance * (1 - 1e-6)
        if chance <= 0.1:
            assert mass < 1.6 * chance


def step_by_step(
    policy: Policy, arms: Arms, state: State, key: np.uint64, number: int, n: int
) -> list[int]:
    """The plain twin of `decide`: a full pass of the choice rule per decision."""
    words = np.empty(len(state.pulls), dtype=np.uint64)
    chosen = []
    for i in range(n):
        fill_words(key, number + i, words)
        chosen.append(choose(policy.rule, arms, state, words))
        state.pending[chosen[-1]] += 1
    return chosen


def at_once(
    policy: Policy, arms: Arms, state: State, key: np.uint64, number: int, n: int
) -> list[int]:
    chosen = np.empty(n, dtype=np.int64)
    decide(policy.rule, arms, state, key, number, chosen)
    return [int(arm) for arm in chosen]


def copy_of(state: State) -> State:
    return State(*(column.copy() for column in state))


@pytest.mark.parametrize(
    ("policy", "kind"),
    [pytest.param(p, k, id=f"{p.label}-{k}") for p, k in policy_cases.pairs(policy_cases.LOCAL)],
)
def test_indices_kept_within_a_call_decide_as_step_by_step(policy: Policy, kind: str) -> None:
    draw = random.Random(1)
    for channels, state, _ in policy_cases.cases(kind):
        packed, one, two = policy.pack(channels), copy_of(state), copy_of(state)
        key, number = np.uint64(draw.getrandbits(64)), draw.randint(0, 10**6)
        chosen = at_once(policy, packed, one, key, number, 25)
        assert chosen == step_by_step(policy, packed, two, key, number, 25), (channels, state)
        assert np.array_equal(one.pending, two.pending)


@pytest.mark.parametrize("policy", [KLUCB(), KLUCB(c=0, domain="unit"), UCB(), UCB1()])
@pytest.mark.parametrize("kind", KINDS)
def test_many_arms_and_decisions_with_ties(policy: Policy, kind: str) -> None:
    """Equal counts, arms that were never pulled, arms that are not to be had."""
    draws = np.random.default_rng(8)
    size = 90
    packed = policy.pack([KINDS[kind][k % len(KINDS[kind])] for k in range(size)])
    for most in (0, 2, 300):
        pulls = draws.choice([0, most, 3 * most], size).astype(np.int64)
        pending = draws.choice([0, 0, 1], size).astype(np.int64)
        state = State(pulls, pulls // 2, pending, draws.random(size) < 0.8)
        twin = copy_of(state)
        assert at_once(policy, packed, state, np.uint64(9), 3, 300) == step_by_step(
            policy, packed, twin, np.uint64(9), 3, 300
        )


def test_ties_to_the_first_arm_would_be_noticed() -> None:
    """Negative control: equal arms in another order of words."""
    packed = KLUCB().pack([IDENTITY] * 20)
    pulls = np.full(20, 50)
    state = State(pulls, pulls // 2, np.zeros(20, dtype=np.int64), np.ones(20, dtype=bool))
    chosen = at_once(KLUCB(), packed, copy_of(state), np.uint64(1), 0, 20)
    assert sorted(chosen) == list(range(20))
    assert chosen != sorted(chosen)
    assert chosen != at_once(KLUCB(), packed, copy_of(state), np.uint64(1), 1, 20)
