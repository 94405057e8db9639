"""Policies of river and pymab on our problems: they meet ours, and are as reproducible."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whitelie import KLUCB, UCB1, InvalidInput, Problem, simulate
from whitelie.kernel.arms import Array
from whitelie.simulation.adapters import from_pymab, from_river

bandit = pytest.importorskip("river.bandit", reason="needs `pip install river`")
pymab = pytest.importorskip("pymab.policies", reason="needs `pip install pymab`")
proba = pytest.importorskip("river.proba")
stats = pytest.importorskip("river.stats")

CLASSICAL = Problem([0.9] + [0.8] * 9)
"""Rewards as they are: one best arm of .9, the others .8."""

SETTINGS: dict[str, Any] = {"horizon": 500, "replicates": 40, "seed": 3, "checkpoints": [500]}


def thompson_of_river() -> Any:
    return from_river(bandit.ThompsonSampling(reward_obj=proba.Beta()))


def standard_errors_apart(theirs: Any, ours: Any) -> float:
    """Return the difference of mean regrets in standard errors of two independent means."""
    result = simulate(CLASSICAL, {"theirs": theirs, "ours": ours}, **SETTINGS)
    regret = result.regret.isel(time=-1)
    errors = regret.std("replicate", ddof=1) / np.sqrt(SETTINGS["replicates"])
    means = regret.mean("replicate")
    return float(abs(means[0] - means[1]) / np.hypot(errors[0], errors[1]))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda: from_pymab(pymab.KLUCBPolicy), KLUCB()),
        (lambda: from_pymab(pymab.UCBPolicy), UCB1()),
        (lambda: from_river(bandit.UCB(delta=1)), UCB1()),
    ],
    ids=["pymab kl-UCB", "pymab UCB1", "river UCB1"],
)
def test_their_policies_agree_with_ours(theirs: Any, ours: Any) -> None:
    assert standard_errors_apart(theirs(), ours) < 4


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda: from_pymab(pymab.UCBPolicy), KLUCB()),
        (lambda: from_river(bandit.UCB(delta=0.5)), UCB1()),
    ],
    ids=["another rule of pymab", "another tuning of river"],
)
def test_other_policies_do_not_agree(theirs: Any, ours: Any) -> None:
    """Negative control."""
    assert standard_errors_apart(theirs(), ours) > 4


def pulls(policy: Any, **changes: Any) -> Array:
    problem, few = Problem([0.7, 0.6, 0.5]), {"horizon": 200, "replicates": 8}
    return simulate(
        problem, [policy], **SETTINGS | few | {"checkpoints": [50]} | changes
    ).pulls.values


@pytest.mark.parametrize(
    "make",
    [
        thompson_of_river,
        lambda: from_river(bandit.Exp3(gamma=0.2, seed=7)),
        lambda: from_pymab(pymab.BernoulliThompsonSamplingPolicy),
        lambda: from_pymab(pymab.EXP3Policy, gamma=0.2),
    ],
    ids=["river Thompson sampling", "river EXP3", "pymab Thompson sampling", "pymab EXP3"],
)
def test_their_results_depend_on_nothing_but_the_seed(make: Any, tmp_path: Path) -> None:
    expected = pulls(make(), jobs=1)
    np.testing.assert_array_equal(pulls(make(), jobs=4), expected)
    np.testing.assert_array_equal(pulls(pickle.loads(pickle.dumps(make()))), expected)
    pulls(make(), replicates=3, store=tmp_path)
    np.testing.assert_array_equal(pulls(make(), store=tmp_path), expected)
    assert not np.array_equal(expected[:, 0], expected[:, 1])
    assert not np.array_equal(pulls(make(), seed=4), expected)


def test_descriptions_tell_policies_apart() -> None:
    described = [
        from_river(bandit.UCB(delta=1, reward_obj=stats.EWMean(fading_factor=0.1))).to_dict(),
        from_river(bandit.UCB(delta=1, reward_obj=stats.EWMean(fading_factor=0.2))).to_dict(),
        from_river(bandit.UCB(delta=2)).to_dict(),
        from_river(bandit.BayesUCB()).to_dict(),
        from_pymab(pymab.UCBPolicy).to_dict(),
        from_pymab(pymab.UCBPolicy, c=1.0).to_dict(),
        from_pymab(pymab.KLUCBPolicy).to_dict(),
    ]
    assert all(described.count(each) == 1 for each in described)
    assert described[2] == from_river(bandit.UCB(delta=2, seed=9)).to_dict()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_river(bandit.UCB), "policy=.*give an object of a class of river.bandit"),
        (lambda: from_river(KLUCB()), "policy=.*give an object of a class of river.bandit"),
        (
            lambda: from_river(bandit.LinUCBDisjoint()),
            "policy='LinUCBDisjoint': .*no contexts; give a policy that needs none",
        ),
        (lambda: from_pymab(pymab.UCBPolicy(n_arms=2)), "policy_class=.*give a class of pymab"),
        (lambda: from_pymab(KLUCB), "policy_class=.*give a class of pymab.policies"),
        (
            lambda: from_pymab(pymab.LinUCBPolicy, n_features=2),
            "policy_class='LinUCBPolicy': .*no contexts; give a policy that needs none",
        ),
        (lambda: from_pymab(pymab.UCBPolicy, n_arms=2), "n_arms=2: leave it out"),
    ],
)
def test_what_cannot_be_adapted_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()
