"""IMED and IMED-CF: against their definition, and wherever a policy can run."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers import naive
from helpers.in_process_service import serving
from helpers.naive import Arm
from policy.test_oracle import TOLERANCE, compiled_state, random_arm, random_channel
from whitelie import (
    IMED,
    KLUCB,
    TS,
    UCB,
    Bandit,
    Monotone,
    Problem,
    RandomizedResponse,
    plan,
    simulate,
)
from whitelie.kernel.choice import choose
from whitelie.kernel.rule import shared, value
from whitelie.kernel.words import ZERO_WORD
from whitelie.simulation.specification import parse_specification

both = pytest.mark.parametrize("policy", IMED.examples(), ids=lambda policy: policy.label)


def random_states(policy: IMED, number: int = 150) -> Iterator[list[Arm]]:
    random = Random(f"imed {policy}")
    for _ in range(number):
        yield [random_arm(random, random_channel(random)) for _ in range(random.randint(1, 6))]


def compiled_indices(policy: IMED, arms: list[Arm]) -> list[float]:
    packed, state = policy.pack([arm.channel for arm in arms]), compiled_state(arms)
    best = shared(policy.rule, packed, state)
    return [value(policy.rule, packed, state, k, best, ZERO_WORD) for k in range(len(arms))]


def agree(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= TOLERANCE * max(1, abs(other))


@both
def test_the_index_agrees_with_its_definition(policy: IMED) -> None:
    infinite = 0
    for arms in random_states(policy):
        expected = [naive.imed_index(policy, arms, k) for k in range(len(arms))]
        compiled = compiled_indices(policy, arms)
        assert all(map(agree, compiled, expected)), (arms, compiled, expected)
        infinite += np.isinf(compiled).sum()
    assert infinite > 5, "no state had an arm that its feedback rules out"


def test_another_target_would_be_noticed() -> None:
    """The control: without correction the indices are others."""
    different = 0
    for arms in random_states(IMED()):
        expected = [naive.imed_index(IMED(feedback="naive"), arms, k) for k in range(len(arms))]
        different += not all(map(agree, compiled_indices(IMED(), arms), expected))
    assert different > 50


@both
def test_the_choice_is_the_least_cost_and_then_the_largest_word(policy: IMED) -> None:
    for arms in random_states(policy):
        indices = [naive.imed_index(policy, arms, k) for k in range(len(arms))]
        words = np.array([arm.word for arm in arms], dtype=np.uint64)
        packed = policy.pack([arm.channel for arm in arms])
        chosen = choose(policy.rule, packed, compiled_state(arms), words)
        assert agree(indices[chosen], max(indices))


def test_a_table_is_corrected_to_its_own_end() -> None:
    """At μ̂* = 1 the target is g(1), which a table below 1 never passes: the best arm costs ln N."""
    table = Monotone.from_points([(0.0, 0.2), (1.0, 0.7)])
    arms = [Arm(table, 10, 9), Arm(table, 10, 3)]
    first, second = compiled_indices(IMED(), arms)
    assert first == -np.log(10)
    assert agree(second, naive.imed_index(IMED(), arms, 1))


def test_its_regret_is_below_that_of_the_optimistic_policies() -> None:
    problem = Problem([0.9, 0.7, 0.7], RandomizedResponse.from_epsilon(2))
    policies = [IMED(), KLUCB(), UCB(), IMED(feedback="naive")]
    result = simulate(problem, policies, horizon=20_000, replicates=60, seed=4)
    regret = dict(zip(result.policies, result.regret.values[:, :, -1].mean(axis=1), strict=True))
    assert regret["IMED-CF"] < regret["kl-UCB-CF"] < regret["UCB-CF"]
    assert regret["IMED"] == regret["IMED-CF"], "one increasing channel common to all arms"


def test_unequal_channels_need_the_correction() -> None:
    problem = Problem(
        [0.8, 0.6], [RandomizedResponse(p00=0.9, p11=0.6), RandomizedResponse(p00=0.4, p11=0.9)]
    )
    policies = [IMED(), IMED(feedback="naive")]
    result = simulate(problem, policies, horizon=5000, replicates=20, seed=1)
    corrected, misled = result.regret.values[:, :, -1].mean(axis=1)
    assert corrected < 0.1 * misled


def test_it_runs_live_and_goes_on_from_json() -> None:
    bandit = Bandit(["a", "b", "c"], RandomizedResponse.from_epsilon(1), IMED(), seed=3)
    assert sorted(bandit.choose(3)) == ["a", "b", "c"]
    bandit.update_counts({"a": (50, 30), "b": (50, 20), "c": (50, 20)})
    copy = Bandit.from_json(bandit.to_json())
    assert bandit.choose(20) == copy.choose(20)


def test_it_is_planned_with() -> None:
    """Batches of 1 % approximate it as they do the others: about as much is lost."""
    design: dict[str, Any] = {
        "arms": 3,
        "rate": 0.2,
        "difference": 0.1,
        "traffic": 3000,
        "epsilon": 2,
    }
    lost = [
        plan(**design, policy=policy, replicates=100, jobs=1).options[0].lost.mean
        for policy in (IMED(), TS())
    ]
    assert lost[0] == pytest.approx(lost[1], rel=0.5)


def test_toml_knows_it() -> None:
    text = """
        means = [0.9, 0.6]
        channel = "identity"
        policies = ["IMED-CF", "IMED"]
        horizon = 100
        replicates = 2
        seed = 1
    """
    result = parse_specification(text).run()
    assert list(result.policies) == ["IMED-CF", "IMED"]


@pytest.mark.anyio
async def test_the_service_decides_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "whitelie.db") as served:
        created = await served.create(policy="IMED-CF")
        assert created["policy"] == "IMED-CF"
        decisions = await served.decide(created["id"], 20)
        assert len({each["arm"] for each in decisions}) > 1
