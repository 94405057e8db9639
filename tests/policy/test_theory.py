"""Regret grows as Theorem 1 says, and does not when the channel is misread."""

import numpy as np
import pytest

from whitelie import KLUCB, TS, Problem, RandomizedResponse, bounds, simulate
from whitelie.channel import of_bits
from whitelie.kernel.arms import Array
from whitelie.kernel.game import thresholds
from whitelie.kernel.leader import run_kl_ucb

HORIZON = 10**6
DECADE = np.array([HORIZON // 10, HORIZON])
REPLICATES = 2000

WARNER_1, WARNER_7, WARNER_9 = (RandomizedResponse.warner(p) for p in (0.1, 0.7, 0.9))
EASY = {
    "two arms, one channel": Problem([0.9, 0.6], RandomizedResponse.from_epsilon(2)),
    "two channels": Problem([0.9, 0.5], [WARNER_7, WARNER_9]),
    "a decreasing channel": Problem([0.8, 0.4, 0.3], [WARNER_9, WARNER_1, WARNER_9]),
}


def slope(regret: Array) -> float:
    """The growth of mean regret per unit of ln T over the last decade."""
    return float((regret[:, 1] - regret[:, 0]).mean() / np.log(10))


def regret_under(assumed: Problem, truth: Problem) -> Array:
    """Regret of kl-UCB-CF that corrects for the assumed channels, not for the true ones."""
    game = KLUCB(c=0).game(assumed, HORIZON)
    game = game._replace(thresholds=thresholds(np.array(truth.feedback_means)))
    pulls = [run_kl_ucb(game, np.uint64(1), r, DECADE) for r in range(REPLICATES // 10)]
    return np.asarray(np.array(pulls) @ np.array(truth.gaps))


@pytest.mark.long
@pytest.mark.parametrize("name", EASY)
def test_the_slope_of_regret_is_theorem_1s_constant(name: str) -> None:
    problem = EASY[name]
    result = simulate(
        problem, [KLUCB(c=0)], horizon=HORIZON, replicates=REPLICATES, seed=1, checkpoints=DECADE
    )
    constant = bounds.lower_constant(problem)
    assert slope(result.regret.values[0]) == pytest.approx(constant, rel=0.35)


@pytest.mark.long
@pytest.mark.parametrize("name", EASY)
def test_with_a_wrong_channel_it_is_not(name: str) -> None:
    """Negative control: the second arm's coin is believed to lie more than it does."""
    truth = EASY[name]
    coins = of_bits(truth.channels)
    doubted = [RandomizedResponse.warner(0.55 if g.increasing else 0.45) for g in coins]
    assumed = Problem(truth.means, [truth.channels[0], *doubted[1:]])
    constant = bounds.lower_constant(truth)
    assert slope(regret_under(assumed, truth)) > 2 * constant


def test_corrected_policies_stay_below_and_naive_ones_grow_linearly() -> None:
    """A short look at experiment 1, in the right country."""
    noisy, clear = RandomizedResponse.warner(0.6), RandomizedResponse.warner(0.9)
    problem = Problem([0.9] + [0.8] * 9, [noisy] + [clear] * 9)
    policies = [KLUCB(), TS(), KLUCB(feedback="naive"), TS(feedback="naive")]
    result = simulate(problem, policies, horizon=100_000, replicates=20, seed=1)
    mean = result.regret.isel(time=-1).mean("replicate")
    assert 250 < mean.sel(policy="kl-UCB-CF") < 450
    assert 250 < mean.sel(policy="TS-CF") < 1000
    assert (mean.sel(policy=["kl-UCB", "TS"]) > 9_800).all()
