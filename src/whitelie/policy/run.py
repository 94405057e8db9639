"""One replicate of a policy on a problem."""

from collections.abc import Callable
from functools import partial

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.policy.policy import Policy
from whitelie.problem import Problem

Run = Callable[[int], Array]
"""A replicate's number -> pulls, by checkpoint (row) and arm (column)."""


def runner(
    policy: Policy, problem: Problem, seed: int, checkpoints: Array, *, plain: bool = False
) -> Run:
    """Return the function that runs one replicate: fast on affine channels, plain on tables."""
    game = policy.game(problem, int(checkpoints[-1]))
    return partial(_call, policy.kernel(game, plain=plain), game, seed, checkpoints)


def _call(
    run: Callable[..., Array], game: object, seed: int, checkpoints: Array, replicate: int
) -> Array:
    return run(game, np.uint64(seed), replicate, checkpoints)
