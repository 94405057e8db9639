"""Replicates that stop at a certificate: who can, and how they are run."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from whitelie.certificate import Certificate, packed
from whitelie.errors import InvalidInput
from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.cells import has_cells
from whitelie.kernel.evidence import Test, certified_arm
from whitelie.kernel.state import State
from whitelie.kernel.stopping import run_until_certified
from whitelie.policy import Policy
from whitelie.policy.run import Run
from whitelie.problem import Problem


def check_stop(stop: Any, problem: Problem, policies: Mapping[str, Any]) -> Certificate | None:
    """Return the certificate at which replicates stop; refuse where none can be given."""
    if stop is None:
        return None
    if not isinstance(stop, Certificate):
        raise InvalidInput("stop", stop, "give a Certificate, such as Certificate(delta=0.05)")
    if len(problem.names) < 2:
        reason = "a certificate compares arms: give a problem with two arms or more"
        raise InvalidInput("stop", stop, reason)
    if has_cells(problem.channels):
        reason = "runs stop at a certificate on channels of one bit: simulate without a stop"
        raise InvalidInput("stop", stop, reason)
    for name, policy in policies.items():
        if isinstance(policy, Policy) and not policy.runs_live:
            reason = (
                f"{name} keeps more than counts of feedback, from which a certificate is made: "
                "leave out this policy, or the stop"
            )
            raise InvalidInput("stop", stop, reason)
    return stop


def arms_and_test(stop: Certificate, problem: Problem) -> tuple[Arms, Test]:
    """Return the arms as evidence reads them, and what their counts are compared with."""
    nobody_retired = np.zeros(len(problem.names), dtype=bool)
    return packed(problem.channels), stop.test(problem.channels, nobody_retired)


def stopping_runner(
    policy: Policy, problem: Problem, seed: int, checkpoints: Array, stop: Certificate
) -> Run:
    """Return the function that runs one replicate until its certificate, looked at every step."""
    game = policy.game(problem, int(checkpoints[-1]))
    arms, test = arms_and_test(stop, problem)
    return partial(_run, game, arms, test, (np.uint64(seed), checkpoints))


def _run(game: Any, arms: Arms, test: Test, how: tuple[np.uint64, Array], replicate: int) -> Array:
    seed, checkpoints = how
    return run_until_certified(game, arms, test, (seed, replicate), checkpoints)


class Look:
    """Counts feedback that comes one by one, and says who is certified after each."""

    def __init__(self, stop: Certificate, problem: Problem) -> None:
        self._arms, self._test = arms_and_test(stop, problem)
        zeros = np.zeros(len(problem.names), dtype=np.int64)
        self._state = State(zeros, zeros.copy(), zeros.copy(), self._test.active)
        self._rival = 0

    def __call__(self, arm: int, feedback: int) -> int | None:
        """Count a feedback of an arm; return the position of the winner, if there is one."""
        self._state.pulls[arm] += 1
        self._state.successes[arm] += feedback
        winner = int(certified_arm(self._arms, self._state, self._test, self._rival))
        if winner < 0:
            self._rival = -1 - winner
            return None
        return winner
