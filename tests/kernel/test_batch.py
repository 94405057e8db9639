"""Simulation in batches, against the exact kernels."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from whitelie import IDENTITY, KLUCB, TS, UCB, UCB1, Problem, RandomizedResponse, simulate
from whitelie.channel import of_bits
from whitelie.estimate import probabilities_best
from whitelie.kernel.arms import Array
from whitelie.kernel.batch import fill_shares, run_batches
from whitelie.kernel.choice import choose, fill_words
from whitelie.kernel.game import Game, bit, streams_of
from whitelie.kernel.state import new_state
from whitelie.planning.runs import batch_ends, best_shares
from whitelie.policy import Policy
from whitelie.policy.run import runner

PRIVATE = RandomizedResponse.from_epsilon(1)
TURNED = RandomizedResponse(p00=0.2, p11=0.3)
FOUR = Problem([0.5, 0.45, 0.4, 0.55], RandomizedResponse.from_epsilon(3))
REPLICATES = 600


def batched(problem: Problem, policy: Policy, ends: Array, seed: int, lag: int = 0) -> Array:
    game = policy.game(problem, int(ends[-1]))
    with ThreadPoolExecutor() as pool:
        runs = pool.map(
            lambda replicate: run_batches(game, np.uint64(seed), replicate, ends, lag)[0],
            range(REPLICATES),
        )
        return np.stack(list(runs))


def exact(problem: Problem, policy: Policy, ends: Array, seed: int) -> Array:
    result = simulate(
        problem,
        [policy],
        horizon=int(ends[-1]),
        replicates=REPLICATES,
        seed=seed,
        checkpoints=ends,
    )
    return np.asarray(result.pulls.values[0])


def first_known(pulls: Array, ends: Array) -> Array:
    """When each run's best arm first had more than 90 % of the recent reports, from t = 100 on."""
    late = ends >= 100
    known = (best_shares(pulls, ends, (3,)) > 0.9)[:, late]
    first = ends[late][known.argmax(axis=1)]
    return np.asarray(np.where(known.any(axis=1), first, ends[-1] + 1))


def p_values(one: tuple[Array, Array], other: tuple[Array, Array], problem: Problem) -> list[float]:
    """Two-sample tests of the regret in the middle and at the end, and of the time to know."""
    gaps = np.array(problem.gaps)
    pairs = []
    for share in (10, 1):
        rows = [np.searchsorted(ends, ends[-1] // share) for _, ends in (one, other)]
        pairs.append((one[0][:, rows[0]] @ gaps, other[0][:, rows[1]] @ gaps))
    pairs.append((first_known(*one), first_known(*other)))
    return [float(stats.ks_2samp(a, b).pvalue) for a, b in pairs]


@pytest.mark.parametrize(
    "policy", [TS(), TS(feedback="naive"), KLUCB(c=0), UCB(c=0)], ids=lambda policy: policy.label
)
def test_runs_in_batches_are_distributed_as_exact_ones(policy: Policy) -> None:
    ends = batch_ends(30_000, 4)
    mine, theirs = batched(FOUR, policy, ends, 6), exact(FOUR, policy, ends, 5)
    assert min(p_values((mine, ends), (theirs, ends), FOUR)) > 1e-3


def test_batches_of_30_per_cent_would_be_noticed() -> None:
    """Negative control."""
    ends, coarse = batch_ends(30_000, 4), batch_ends(30_000, 4, 0.3)
    mine, theirs = batched(FOUR, TS(), coarse, 6), exact(FOUR, TS(), ends, 5)
    assert min(p_values((mine, coarse), (theirs, ends), FOUR)) < 1e-3


def test_another_channel_would_be_noticed() -> None:
    """Negative control: epsilon 2.5 in place of 3."""
    ends = batch_ends(30_000, 4)
    other = Problem(FOUR.means, RandomizedResponse.from_epsilon(2.5))
    mine, theirs = batched(other, KLUCB(c=0), ends, 6), exact(FOUR, KLUCB(c=0), ends, 5)
    assert min(p_values((mine, ends), (theirs, ends), FOUR)) < 1e-3


@pytest.mark.parametrize("policy", [KLUCB(), KLUCB(feedback="naive"), UCB(), UCB1()])
def test_single_turns_are_the_plain_kernel_word_for_word(policy: Policy) -> None:
    problem = Problem([0.3, 0.5, 0.4], [PRIVATE, TURNED, IDENTITY])
    ends = batch_ends(190, 3)
    game = policy.game(problem, 190)
    for replicate in range(5):
        plain = runner(policy, problem, 7, ends, plain=True)(replicate)
        assert np.array_equal(run_batches(game, np.uint64(7), replicate, ends, 0)[0], plain)


def plain_with_lag(game: Game, seed: int, replicate: int, ends: Array, lag: int) -> Array:
    """Decision by decision through the live rule, which sees the bits of `lag` decisions before."""
    size = len(game.thresholds)
    streams = streams_of(np.uint64(seed), replicate, size)
    words = np.empty(size, dtype=np.uint64)
    chosen: list[tuple[int, int]] = []
    history = []
    for t in range(int(ends[-1])):
        made, seen = np.zeros(size, np.int64), new_state(size, 0)
        for number, (arm, one) in enumerate(chosen):
            made[arm] += 1
            if number < t - lag:
                seen.pulls[arm] += 1
                seen.successes[arm] += one
        seen.pending[:] = made - seen.pulls
        fill_words(streams.decision_key, t, words)
        arm = choose(game.rule, game.arms, seen, words)
        chosen.append((arm, bit(streams.arm_keys[arm], made[arm], game.thresholds[arm])))
        made[arm] += 1
        history.append(made)
    return np.asarray(np.array(history)[ends - 1])


@pytest.mark.parametrize("lag", [1, 30])
@pytest.mark.parametrize("policy", [KLUCB(), UCB(c=0), UCB1()])
def test_single_turns_with_a_lag_are_the_live_rule_with_pending(policy: Policy, lag: int) -> None:
    problem = Problem([0.3, 0.5, 0.4], [PRIVATE, TURNED, IDENTITY])
    ends, game = batch_ends(150, 3), policy.game(problem, 150)
    for replicate in range(2):
        mine = run_batches(game, np.uint64(7), replicate, ends, lag)[0]
        assert np.array_equal(mine, plain_with_lag(game, 7, replicate, ends, lag))
        assert not np.array_equal(mine, plain_with_lag(game, 7, replicate, ends, lag + 1))


def thompson_with_lag(problem: Problem, horizon: int, lag: int) -> Array:
    """Thompson sampling on many replicates at once, decision by decision, with NumPy's draws.

    Returns the arms chosen: (replicate, decision).
    """
    draws = np.random.default_rng(5)
    rows, arms = np.arange(REPLICATES), len(problem.means)
    (channel,) = set(of_bits(problem.channels))
    pulls, ones = np.zeros((2, REPLICATES, arms), dtype=np.int64)
    chosen, bits = np.empty((2, horizon, REPLICATES), dtype=np.int64)
    for t in range(horizon):
        if t > lag:
            pulls[rows, chosen[t - lag - 1]] += 1
            ones[rows, chosen[t - lag - 1]] += bits[t - lag - 1]
        values = draws.beta(ones + 1, pulls - ones + 1)
        assert channel.increasing
        chosen[t] = values.argmax(axis=1)
        bits[t] = draws.random(REPLICATES) < np.array(problem.feedback_means)[chosen[t]]
    return chosen.T


LAG = 1000


@pytest.mark.parametrize(("lag", "same"), [(LAG, True), (LAG // 2, False), (0, False)])
def test_batches_with_a_lag_are_distributed_as_decisions_one_by_one(lag: int, same: bool) -> None:
    """Another lag would be noticed."""
    ends = batch_ends(4000, 4)
    mine = batched(FOUR, TS(), ends, 6, lag)
    theirs = (thompson_with_lag(FOUR, 4000, LAG)[:, :, None] == np.arange(4)).cumsum(axis=1)
    ps = p_values((mine, ends), (theirs[:, ends - 1], ends), FOUR)
    assert (min(ps) > 1e-4 / 3) == same


@pytest.mark.parametrize("policy", [TS(), KLUCB()])
def test_arms_are_chosen_alike_until_the_first_report(policy: Policy) -> None:
    ends = batch_ends(100, 4)
    chosen = batched(FOUR, policy, ends, 1, 100)[:, -1].sum(axis=0)
    assert stats.chisquare(chosen).pvalue > 1e-4
    learned = batched(FOUR, policy, ends, 1, 30)[:, -1].sum(axis=0)
    assert stats.chisquare(learned).pvalue < 1e-4


def test_counts_add_up() -> None:
    ends = batch_ends(5000, 4)
    for policy in (TS(), KLUCB(), UCB1()):
        pulls, successes = run_batches(policy.game(FOUR, 5000), np.uint64(1), 2, ends, 0)
        assert np.array_equal(pulls.sum(axis=1), ends)
        assert np.all((successes >= 0) & (successes <= pulls))
        assert np.all(np.diff(pulls, axis=0) >= 0)


def test_batches_are_single_until_every_arm_had_a_chance_and_then_one_per_cent() -> None:
    ends = batch_ends(10**6, 300)
    assert ends[:300].tolist() == list(range(1, 301))
    assert ends[-1] == 10**6
    steps = [(later - earlier) / earlier for earlier, later in pairwise(ends[300:].tolist())]
    assert max(steps) <= 0.01


MIXED = [PRIVATE, TURNED, IDENTITY, PRIVATE, TURNED]


@pytest.mark.parametrize(
    ("channels", "most"),
    [
        ([PRIVATE] * 5, 40),
        ([IDENTITY] * 5, 40),
        ([TURNED] * 5, 40),
        ([PRIVATE] * 5, 3000),
        (MIXED, 3000),
        (MIXED, 10**6),
    ],
)
def test_choice_probabilities(channels: list[RandomizedResponse], most: int) -> None:
    """Against the slow quadrature of `probabilities_best`."""
    draws = np.random.default_rng(most)
    game = TS().game(Problem([0.5] * 5, channels), most)
    rates = np.array([channel.mean_feedback(0.3) for channel in channels])
    for _ in range(30):
        state = new_state(5, 0)
        state.pulls[:] = draws.integers(most // 20, most, 5)
        state.successes[:] = draws.binomial(state.pulls, rates)
        shares = np.empty(5)
        fill_shares(game, state, shares)
        expected = probabilities_best(channels, state.pulls, state.successes)
        assert shares == pytest.approx(expected, abs=1e-3 if most == 40 else 3e-4)
