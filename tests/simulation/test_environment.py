"""The Gymnasium environment offers the simulator's problems: its bits, and its regret."""

from typing import Any

import numpy as np
import pytest

from whitelie import InvalidInput, Problem, RandomizedResponse, simulate
from whitelie.simulation.own_policy import KnownProblem

gymnasium = pytest.importorskip("gymnasium", reason='needs `pip install "whitelie[gym]"`')
from gymnasium.utils.env_checker import check_env  # noqa: E402 (after it is known to be there)

from whitelie.simulation.environment import CorruptBanditEnv  # noqa: E402 (the same)

PROBLEM = Problem({"a": 0.9, "b": 0.8, "c": 0.5}, RandomizedResponse.from_epsilon(2))
HORIZON, SEED, REPLICATES = 60, 11, 3


class StaysWithAWinner:
    """Pulls an arm until it gives a 0, then the next; keeps all feedback in a list of its owner."""

    def __init__(self, seen: list[list[int]]) -> None:
        self.seen, self.arm = seen, 0

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> "StaysWithAWinner":
        self.seen.append([])
        return StaysWithAWinner(self.seen)

    def choose(self, t: int) -> int:
        return self.arm

    def update(self, arm: int, feedback: int) -> None:
        self.seen[-1].append(feedback)
        self.arm = arm if feedback else (arm + 1) % 3


def play(env: CorruptBanditEnv) -> tuple[list[int], list[float]]:
    """Return rewards and cumulative regrets of an episode of the same rule, after a reset."""
    rewards, regrets, arm, truncated = [], [], 0, False
    while not truncated:
        _, reward, terminated, truncated, info = env.step(arm)
        assert not terminated
        assert info["gap"] == PROBLEM.gaps[arm]
        rewards.append(int(reward))
        regrets.append(info["regret"])
        arm = arm if reward else (arm + 1) % 3
    return rewards, regrets


def test_gymnasium_finds_no_fault() -> None:
    check_env(CorruptBanditEnv(PROBLEM, HORIZON), skip_render_check=True)


def test_episodes_are_the_replicates_of_the_simulator() -> None:
    seen: list[list[int]] = []
    result = simulate(
        PROBLEM, [StaysWithAWinner(seen)], horizon=HORIZON, replicates=REPLICATES, seed=SEED,
        checkpoints=np.arange(1, HORIZON + 1), jobs=1,
    )  # fmt: skip
    env = CorruptBanditEnv(PROBLEM, HORIZON)
    for replicate in range(REPLICATES):
        _, info = env.reset(seed=SEED if replicate == 0 else None)
        assert info == {"seed": SEED, "replicate": replicate, "regret": 0.0}
        rewards, regrets = play(env)
        assert rewards == seen[replicate]
        np.testing.assert_allclose(regrets, result.regret.values[0, replicate], rtol=1e-12)
    env.reset(seed=SEED, options={"replicate": 1})
    assert play(env)[0] == seen[1]
    env.reset(seed=SEED + 1)
    assert play(env)[0] != seen[0]  # negative control


def test_without_a_seed_every_environment_plays_bits_of_its_own() -> None:
    seeds = set()
    for _ in range(3):
        _, info = CorruptBanditEnv(PROBLEM, HORIZON).reset()
        seeds.add(info["seed"])
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: CorruptBanditEnv(env, 10), "problem=.*give a Problem"),
        (lambda env: CorruptBanditEnv(PROBLEM, 0), "horizon=0: give a whole number"),
        (lambda env: env.reset(seed=1, options={"replicate": -1}), "replicate=-1: give a whole"),
        (lambda env: env.step(3), "action=3: give the position of an arm, 0 to 2"),
        (lambda env: env.step("a"), "action='a': give the position of an arm, 0 to 2"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, message: str) -> None:
    env = CorruptBanditEnv(PROBLEM, HORIZON)
    env.reset(seed=1)
    with pytest.raises(InvalidInput, match=message):
        call(env)


def test_a_step_needs_a_reset() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\)"):
        CorruptBanditEnv(PROBLEM, HORIZON).step(0)
