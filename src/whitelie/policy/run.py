"""Which kernel runs a policy on a problem."""

from collections.abc import Callable
from functools import partial

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.kernel.dp_ucb_int import release_game_of, run_dp_ucb_int
from whitelie.kernel.game import game_of
from whitelie.kernel.leader import run_kl_ucb
from whitelie.kernel.plain import run_plain
from whitelie.kernel.thompson import run_thompson
from whitelie.kernel.ucb import run_ucb
from whitelie.policy import KLUCB, TS, DPUCBInt, Policy
from whitelie.problem import Problem

Run = Callable[[int], Array]
"""A replicate's number -> pulls, by checkpoint (row) and arm (column)."""


def runner(
    policy: Policy, problem: Problem, seed: int, checkpoints: Array, *, plain: bool = False
) -> Run:
    """Return the function that runs one replicate: fast on affine channels, plain on tables."""
    horizon = int(checkpoints[-1])
    if isinstance(policy, DPUCBInt):
        return partial(
            _call, run_dp_ucb_int, release_game_of(policy, problem, horizon), seed, checkpoints
        )
    game = game_of(policy, problem)
    match policy:
        case _ if plain or len(game.arms.table_x):
            run = run_plain
        case KLUCB():
            run = run_kl_ucb
        case TS():
            run = run_thompson
        case _:
            run = run_ucb
    return partial(_call, run, game, seed, checkpoints)


def _call(
    run: Callable[..., Array], game: object, seed: int, checkpoints: Array, replicate: int
) -> Array:
    return run(game, np.uint64(seed), replicate, checkpoints)
