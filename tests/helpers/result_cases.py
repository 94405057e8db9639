"""Small results with known numbers, for the tests of results, their files and their figures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whitelie import Monotone, Problem, RandomizedResponse
from whitelie.simulation.result import Result

NOISY = RandomizedResponse(p00=0.75, p11=0.75)
TABLE = Monotone.from_points([(0, 0.2), (0.5, 0.3), (1, 0.9)])
PROBLEM = Problem({"good": 0.75, "bad": 0.5}, NOISY)
TIMES = [4, 16, 64]
NAMES = ("kl-UCB-CF", "TS-CF", "mine")


def two_arms(bad: Any, times: Any = TIMES, names: Any = NAMES, **changes: Any) -> Result:
    """A result on PROBLEM from pulls of its bad arm: (policy, replicate, time), gap 1/4."""
    second = np.asarray(bad)
    pulls = np.stack([np.asarray(times) - second, second], axis=-1)
    fixed: dict[str, Any] = {"problem": PROBLEM, "seed": 7, "provenance": {"whitelie": "0.1.0"}}
    policies = {name: {"name": name} for name in names}
    return Result.from_pulls(pulls, times=times, **{"policies": policies, **fixed, **changes})


def walks(seed: int, curves: int, replicates: int, times: list[int]) -> NDArray[np.int64]:
    """Numbers of bad pulls that are chosen by a coin of 0.3 at every step: mean 0.3·t."""
    steps = np.diff([0, *times])
    rng = np.random.default_rng(seed)
    return rng.binomial(steps, 0.3, size=(curves, replicates, len(times))).cumsum(axis=-1)
