"""The fast kernels take the plain kernel's decisions, or draw from the same distribution."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from helpers import policy_cases
from whitelie import (
    KLUCB,
    TS,
    UCB,
    UCB1,
    Bandit,
    Channel,
    DPUCBInt,
    Monotone,
    Problem,
    RandomizedResponse,
)
from whitelie.kernel.arms import Array
from whitelie.kernel.game import bit, streams_of, thresholds
from whitelie.kernel.plain import run_plain
from whitelie.policy import Policy
from whitelie.policy.run import runner

HORIZON = 20_000
CHECKPOINTS = np.unique(np.geomspace(1, HORIZON, 50).astype(np.int64))
NOISY, CLEAR = RandomizedResponse.warner(0.6), RandomizedResponse.warner(0.9)
FIRST_EXPERIMENT = Problem([0.9] + [0.8] * 9, [NOISY] + [CLEAR] * 9)

INDEX_POLICIES: list[Policy] = [
    *(policy for policy in policy_cases.LOCAL if policy.fast_kernel is not run_plain),
    KLUCB(c=0),
    KLUCB(c=0, feedback="naive"),
    UCB(c=0),
]


def random_channel(draws: random.Random) -> Channel:
    zero, one = draws.random(), draws.random()
    if draws.random() < 0.1:
        zero, one = draws.choice([(0.0, 0.5), (0.5, 1.0), (1.0, 0.0), (0.0, 1.0)])
    return RandomizedResponse(p00=1 - zero, p11=one)


def random_problems(count: int) -> Iterator[Problem]:
    """Increasing, decreasing and mixed affine channels; equal arms, sure arms, many and few."""
    draws = random.Random(21)
    for _ in range(count):
        size = draws.choice([2, 2, 3, 5, 8])
        shared = random_channel(draws)
        own = draws.random() < 0.6
        channels = [random_channel(draws) if own else shared for _ in range(size)]
        means = [draws.choice([draws.random(), 0.5, 0.9, 1.0, 0.0]) for _ in range(size)]
        yield Problem(means, channels)


@pytest.mark.parametrize("policy", INDEX_POLICIES, ids=policy_cases.name)
def test_the_certified_leader_takes_the_plain_decisions(policy: Policy) -> None:
    for number, problem in enumerate(random_problems(25)):
        fast = runner(policy, problem, 3, CHECKPOINTS)(number)
        plain = runner(policy, problem, 3, CHECKPOINTS, plain=True)(number)
        np.testing.assert_array_equal(fast, plain, err_msg=f"{policy} on {problem}")


@pytest.mark.parametrize("policy", [KLUCB(), KLUCB(c=0), UCB(), UCB1()], ids=policy_cases.name)
def test_the_same_on_the_first_experiment(policy: Policy) -> None:
    for replicate in range(3):
        fast = runner(policy, FIRST_EXPERIMENT, 1, CHECKPOINTS)(replicate)
        plain = runner(policy, FIRST_EXPERIMENT, 1, CHECKPOINTS, plain=True)(replicate)
        np.testing.assert_array_equal(fast, plain)


SIMILAR = [(0.6, 0.62), (0.6, 0.7), (0.9, 0.95)]
CROWD = Problem([0.98] * 60)
NEARLY_TIED: dict[str, tuple[Policy, Problem]] = {
    **{
        f"wrapped, {best} and {others}": (
            KLUCB(feedback="wrapped"),
            Problem(
                [0.9] + [0.8] * 9,
                [RandomizedResponse.warner(best)] + [RandomizedResponse.warner(others)] * 9,
            ),
        )
        for best, others in SIMILAR
    },
    **{f"equal arms, c = {c}": (KLUCB(c=c), Problem([0.5] * 10)) for c in (3, 10, 20, 50, 1e3)},
    "a crowd": (KLUCB(), CROWD),
    "a crowd, c = 0": (KLUCB(c=0), CROWD),
    "a crowd of UCB": (UCB(), CROWD),
    "rewards of 0 on the unit domain": (
        KLUCB(domain="unit"),
        Problem([0.0] * 3, RandomizedResponse(p00=0.25, p11=1.0)),
    ),
    "rewards of 1 on the unit domain": (
        KLUCB(domain="unit", c=0),
        Problem([1.0] * 3, RandomizedResponse(p00=1.0, p11=0.25)),
    ),
    "a nearly flat channel": (
        KLUCB(),
        Problem([0.9, 0.5, 0.1], RandomizedResponse(p00=0.5, p11=0.501)),
    ),
}


@pytest.mark.parametrize("name", NEARLY_TIED)
def test_indices_that_round_together_are_told_apart_as_plainly(name: str) -> None:
    """Many indices within roundings of 1 or of each other, looked at every step."""
    policy, problem = NEARLY_TIED[name]
    every_step = np.arange(1, 3001)
    for replicate in range(10 if len(problem.names) < 20 else 2):
        fast = runner(policy, problem, 1, every_step)(replicate)
        plain = runner(policy, problem, 1, every_step, plain=True)(replicate)
        np.testing.assert_array_equal(fast, plain)


def harsh_channel(draws: random.Random) -> Channel:
    """Channels at the edges, nearly flat ones, and any others."""
    zero, one = draws.random(), draws.random()
    if draws.random() < 0.3:
        zero = draws.choice([0.0, 0.3, 0.5, 0.999])
        one = abs(zero - draws.choice([1e-2, 1e-3, 1e-5]))
    elif draws.random() < 0.4:
        zero, one = draws.choice([(0, 0.5), (0.5, 1), (1, 0), (0, 1), (0.9, 1), (0.1, 0), (1, 0.5)])
    return RandomizedResponse(p00=1 - zero, p11=one)


def test_harsh_problems_are_decided_as_plainly() -> None:
    """Hundreds of problems where many indices tie, saturate or round together."""
    draws = random.Random(31)
    policies: list[Policy] = [
        KLUCB(feedback=reading, c=c, domain=domain)
        for reading in ("corrected", "naive", "wrapped")
        for c in (0, 0.1, 3, 50, 1e4)
        for domain in ("extended", "unit")
    ]
    policies += [UCB(), UCB(c=0), UCB(feedback="wrapped"), UCB1(), UCB1(feedback="wrapped")]
    for _ in range(1200):
        size = draws.choice([1, 2, 3, 5, 10, 50])
        shared = harsh_channel(draws)
        own = draws.random() < 0.5
        channels = [harsh_channel(draws) if own else shared for _ in range(size)]
        means = [draws.choice([0.0, 0.5, 1.0, draws.random()]) for _ in range(size)]
        policy, problem = draws.choice(policies), Problem(means, channels)
        every_step = np.arange(1, draws.choice([size, size + 3, 300, 2000]) + 1)
        fast = runner(policy, problem, 2, every_step)(7)
        plain = runner(policy, problem, 2, every_step, plain=True)(7)
        np.testing.assert_array_equal(fast, plain, err_msg=f"{policy} on {problem}")


def test_one_more_pull_would_be_seen() -> None:
    """Negative control: another exploration gives other decisions on nearly every problem."""
    different = [
        not np.array_equal(
            runner(KLUCB(c=3), problem, 3, CHECKPOINTS)(0),
            runner(KLUCB(c=2.99), problem, 3, CHECKPOINTS)(0),
        )
        for problem in random_problems(20)
    ]
    assert sum(different) >= 12


THOMPSON_PROBLEMS = {
    "two arms": Problem([0.7, 0.5], RandomizedResponse.from_epsilon(1)),
    "unequal channels": Problem([0.9, 0.8, 0.8], [NOISY, CLEAR, CLEAR]),
    "a decreasing channel": Problem([0.6, 0.5], [RandomizedResponse.warner(0.2), CLEAR]),
    "no leader": Problem([0.55] + [0.5] * 5, RandomizedResponse.from_epsilon(0.5)),
    "sure arms": Problem([1.0, 0.9, 0.0]),
}


def final_pulls(
    policy: Policy, problem: Problem, seed: int, *, plain: bool = False, horizon: int = 1000
) -> Array:
    run = runner(policy, problem, seed, np.array([horizon]), plain=plain)
    return np.array([run(replicate)[-1] for replicate in range(2000)])


def smallest_p_value(one: Array, other: Array) -> float:
    """Two-sample Kolmogorov–Smirnov tests of every arm's pulls, corrected for their number."""
    values = [
        stats.ks_2samp(one[:, k], other[:, k], method="asymp").pvalue for k in range(one.shape[1])
    ]
    return float(min(values) * len(values))


@pytest.mark.parametrize("name", THOMPSON_PROBLEMS)
@pytest.mark.parametrize("policy", [TS(), TS(feedback="wrapped")], ids=policy_cases.name)
def test_lazy_thompson_sampling_has_the_plain_distribution(policy: Policy, name: str) -> None:
    problem = THOMPSON_PROBLEMS[name]
    fast, plain = final_pulls(policy, problem, 1), final_pulls(policy, problem, 2, plain=True)
    assert smallest_p_value(fast, plain) > 1e-4


def test_the_test_catches_a_slightly_wrong_channel() -> None:
    """Negative control: one arm's coin is read as .65 instead of .6."""
    wrong = Problem([0.9, 0.8, 0.8], [RandomizedResponse.warner(0.65), CLEAR, CLEAR])
    fast = final_pulls(TS(), wrong, 1)
    plain = final_pulls(TS(), THOMPSON_PROBLEMS["unequal channels"], 2, plain=True)
    assert smallest_p_value(fast, plain) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", THOMPSON_PROBLEMS)
def test_lazy_thompson_sampling_at_a_longer_horizon(name: str) -> None:
    problem = THOMPSON_PROBLEMS[name]
    fast = final_pulls(TS(), problem, 1, horizon=20_000)
    plain = final_pulls(TS(), problem, 2, plain=True, horizon=20_000)
    assert smallest_p_value(fast, plain) > 1e-4


def live_pulls(policy: Policy, problem: Problem, seed: int, replicate: int, horizon: int) -> Array:
    """A Python loop over the live bandit on the replicate's own random words."""
    size = len(problem.names)
    streams = streams_of(np.uint64(seed), replicate, size)
    limits = thresholds(np.array(problem.feedback_means))
    bandit = Bandit(range(size), problem.channels, policy, int(streams.decision_key))
    for _ in range(horizon):
        arm = bandit.choose()
        number = bandit.counts[arm][0]
        bandit.update(arm, bit(streams.arm_keys[arm], number, limits[arm]))
    return np.array([pulls for pulls, _ in bandit.counts.values()])


@pytest.mark.parametrize("policy", policy_cases.POLICIES, ids=policy_cases.name)
def test_the_plain_kernel_decides_as_the_live_bandit(policy: Policy) -> None:
    channels: list[Channel] = [NOISY, CLEAR, RandomizedResponse.warner(0.2)]
    if policy.feedback != "wrapped":
        channels[1] = Monotone.from_points([(0, 0.2), (0.5, 0.3), (1, 0.9)])
    problem = Problem([0.7, 0.6, 0.5], channels)
    for replicate in range(2):
        simulated = runner(policy, problem, 5, np.array([400]), plain=True)(replicate)[-1]
        live = live_pulls(policy, problem, 5, replicate, 400)
        np.testing.assert_array_equal(simulated, live)


def test_tabulated_channels_run_and_learn() -> None:
    table = Monotone(lambda mu: 0.9 - 0.6 * mu**2)
    problem = Problem([0.9, 0.3, 0.3], [table, NOISY, table])
    for policy in (KLUCB(), TS()):
        assert runner(policy, problem, 1, np.array([5000]))(0)[-1][0] > 4000


@pytest.mark.parametrize("policy", policy_cases.EXAMPLES, ids=policy_cases.name)
def test_every_step_pulls_one_arm(policy: Policy) -> None:
    history = runner(policy, FIRST_EXPERIMENT, 1, CHECKPOINTS)(7)
    assert history.dtype == np.int32
    np.testing.assert_array_equal(history.sum(axis=1), CHECKPOINTS)
    assert (np.diff(history, axis=0) >= 0).all()


@pytest.mark.parametrize("policy", policy_cases.EXAMPLES, ids=policy_cases.name)
def test_checkpoints_do_not_change_the_pulls(policy: Policy) -> None:
    whole = runner(policy, FIRST_EXPERIMENT, 1, np.arange(1, 3001))(4)
    few = np.array([10, 11, 500, 3000])
    np.testing.assert_array_equal(runner(policy, FIRST_EXPERIMENT, 1, few)(4), whole[few - 1])


def test_a_single_arm_is_pulled_always() -> None:
    for policy in policy_cases.EXAMPLES:
        assert runner(policy, Problem([0.4], NOISY), 1, np.array([50]))(0)[-1][0] == 50


def naive_dp_ucb_int(policy: DPUCBInt, means: list[float], horizon: int, seed: int) -> list[int]:
    """Algorithm 3 of Tossou and Dimitrakakis, from its description, with its own random numbers."""
    source = np.random.default_rng(seed)
    period, size = policy.period(horizon), len(means)
    pulls, rewards, noise = [0] * size, [0] * size, [0.0] * size
    released = [0.0] * size
    for t in range(horizon):
        if t < period * size:
            best = t % size
        else:
            for k, n in enumerate(pulls):
                if n % period == 0:
                    if policy.noise == "every round":
                        noise[k] = source.laplace(scale=n ** -(1 - policy.v / 2))
                    released[k] = rewards[k] / n + noise[k] + (2 * np.log(t) / n) ** 0.5
            best = int(np.argmax(released))
        rewards[best] += source.random() < means[best]
        pulls[best] += 1
        if pulls[best] % period == 0:
            noise[best] = source.laplace(scale=pulls[best] ** -(1 - policy.v / 2))
    return pulls


@pytest.mark.parametrize(
    "policy",
    [DPUCBInt(), DPUCBInt(noise="every round"), DPUCBInt(epsilon=0.3), DPUCBInt(calibrated=True)],
    ids=policy_cases.name,
)
@pytest.mark.promise("DP-UCB-INT")
def test_dp_ucb_int_has_the_distribution_of_its_plain_twin(policy: DPUCBInt) -> None:
    means, horizon, count = [0.9, 0.6, 0.5], 600, 300
    run = runner(policy, Problem(means), 1, np.array([horizon]))
    fast = np.array([run(replicate)[-1] for replicate in range(count)])
    twin = np.array([naive_dp_ucb_int(policy, means, horizon, seed) for seed in range(count)])
    assert smallest_p_value(fast, twin) > 1e-4


def test_the_twin_of_another_period_is_told_apart() -> None:
    """Negative control."""
    run = runner(DPUCBInt(), Problem([0.9, 0.6, 0.5]), 1, np.array([600]))
    fast = np.array([run(replicate)[-1] for replicate in range(300)])
    other = DPUCBInt(epsilon=0.1)
    twin = np.array([naive_dp_ucb_int(other, [0.9, 0.6, 0.5], 600, s) for s in range(300)])
    assert smallest_p_value(fast, twin) < 1e-4
