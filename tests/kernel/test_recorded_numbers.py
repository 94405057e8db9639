"""The kernels give the numbers that an earlier version recorded, to the bit."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.paths import SAMPLES
from whitelie import (
    IDENTITY,
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
from whitelie.kernel.batch import run_batches
from whitelie.kernel.block import thompson_block
from whitelie.kernel.state import State
from whitelie.policy import Policy
from whitelie.policy.run import runner

RECORDED: list[tuple[str, list[Any], Any]] = json.loads(
    (SAMPLES / "kernel-numbers.json").read_text()
)

NOISY, TURNED = RandomizedResponse.from_epsilon(1), RandomizedResponse(p00=0.2, p11=0.3)
TABLE = Monotone.from_points([(0, 0.1), (0.3, 0.5), (1, 0.8)])
MIXED: list[Channel] = [NOISY, TURNED, TABLE, IDENTITY]
AFFINE: list[Channel] = [NOISY, TURNED, RandomizedResponse.warner(0.8), IDENTITY]
PROBLEMS = {
    "affine": Problem([0.9, 0.6, 0.5, 0.7], AFFINE),
    "shared": Problem([0.9] + [0.8] * 9, NOISY),
    "ties": Problem([0.5] * 5),
    "mixed": Problem([0.9, 0.6, 0.5, 0.7], MIXED),
}
KNOWN: dict[str, Policy] = {
    policy.label: policy
    for policy in (
        *(KLUCB(), KLUCB(c=0, domain="unit"), KLUCB(feedback="naive"), KLUCB(feedback="wrapped")),
        *(UCB(), UCB(c=0), UCB(feedback="naive"), UCB(feedback="wrapped")),
        *(UCB1(), UCB1(feedback="wrapped"), TS(), TS(feedback="naive"), TS(feedback="wrapped")),
        *(DPUCBInt(), DPUCBInt(noise="every round"), DPUCBInt(epsilon=0.3)),
        DPUCBInt(calibrated=True),
    )
}
BATCH_ENDS = np.array([*range(1, 200), 230, 300, 600, 1000, 5000, 5050, 100_000])


def run(label: str, problem: str) -> Any:
    play = runner(KNOWN[label], PROBLEMS[problem], 2**63 + 11, np.array([30, 400, 20_000]))
    return [play(replicate)[-1].tolist() for replicate in (0, 7)]


def channels_for(policy: Policy) -> list[Channel]:
    return AFFINE if policy.feedback == "wrapped" else MIXED


def bandit(label: str) -> Any:
    policy = KNOWN[label]
    counts = {0: (20, 11), 1: (31, 16), 2: (9, 4), 3: (0, 0)}
    live = Bandit(range(4), channels_for(policy), policy, seed=2**64 - 5, counts=counts)
    chosen = [live.choose(60, pending={3: 1}), live.choose(), live.choose(7, available=[0, 2])]
    live.retire_arm(1)
    for number in range(40):
        chosen.append(live.choose())
        live.update(chosen[-1], number % 3 == 0)
    return chosen


def bandit_of_20_arms(label: str) -> Any:
    """Thompson sampling draws many decisions of many arms otherwise now, but for the first."""
    policy = KNOWN[label]
    counts = {k: (10 * k, 3 * k) for k in range(20)}
    live = Bandit(range(20), channels_for(policy) * 5, policy, seed=5, counts=counts)
    few, one, many = live.choose(7), live.choose(), live.choose(200)
    return [few, one, many[0] if isinstance(policy, TS) else many]


def batch(label: str, problem: str, lag: int) -> Any:
    game = KNOWN[label].game(PROBLEMS[problem], 100_000)
    pulls, successes = run_batches(game, np.uint64(3), 1, BATCH_ENDS, lag)
    return [pulls[-1].tolist(), successes[-1].tolist()]


def block(most: int, n: int) -> Any:
    pulls = np.arange(20) * most
    state = State(pulls, pulls * 2 // 5, np.zeros(20, dtype=np.int64), np.arange(20) != 7)
    chosen = np.empty(n, dtype=np.int64)
    thompson_block(TS().rule, TS().pack(MIXED * 5), state, np.uint64(9), 4, chosen)
    return chosen.tolist()


MADE_BY: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (run, bandit, bandit_of_20_arms, batch, block)
}


@pytest.mark.parametrize(
    ("kind", "case", "recorded"),
    [pytest.param(*row, id=" ".join(map(str, [row[0], *row[1]]))) for row in RECORDED],
)
def test_the_numbers_are_those_of_an_earlier_version(
    kind: str, case: list[Any], recorded: Any
) -> None:
    assert MADE_BY[kind](*case) == recorded
