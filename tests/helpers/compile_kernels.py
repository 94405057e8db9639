"""Compile what tests need into the disk cache, once: `python -m helpers.compile_kernels`.

From an empty cache every worker of pytest, and every server that a test starts meanwhile, would
compile the same loops at the same time; the first compilation of a process alone takes ten seconds.
"""

import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from helpers.looking import Looking
from helpers.policy_cases import EXAMPLES
from whitelie import (
    IMED,
    KLUCB,
    TS,
    UCB,
    Bandit,
    Certificate,
    Problem,
    RandomizedResponse,
    TopTwo,
    menu,
)
from whitelie.certificate import packed
from whitelie.kernel.batch import run_batches
from whitelie.kernel.stopping import first_certified
from whitelie.policy import Policy
from whitelie.policy.run import runner
from whitelie.service.process.server import warm_up
from whitelie.simulation.stopping import stopping_runner

PROBLEM = Problem([0.7, 0.6, 0.5], RandomizedResponse.from_epsilon(1))
CHECKPOINTS = np.array([10, 50])
KNOWING: Sequence[Policy] = (TS(), KLUCB(), TopTwo())
READING_CELLS: Sequence[Policy] = (*KNOWING, UCB(), IMED())


def compile_bits() -> None:
    """Decide, simulate and play batches, with every policy that can."""
    warm_up()
    for policy in EXAMPLES:
        for plain in (False, True):
            runner(policy, PROBLEM, 1, CHECKPOINTS, plain=plain)(0)
        if policy.counts_feedback:
            bandit = Bandit(range(3), PROBLEM.channels, policy, 1)
            bandit.choose()
            bandit.choose(60)
            bandit.estimates()
            run_batches(policy.game(PROBLEM, 50), np.uint64(1), 0, CHECKPOINTS, 0)


def compile_knowing_and_cells() -> None:
    """Certify, stop, look after every report; and the same on reports in cells."""
    test = Certificate().test(PROBLEM.channels, np.zeros(3, dtype=bool))
    counts = np.array([[9, 8, 7]]), np.array([[5, 4, 3]])
    first_certified(packed(PROBLEM.channels), test, *counts)
    Bandit(range(2), PROBLEM.channels[:2], counts={0: (9, 5), 1: (8, 2)}).certificate()
    for policy in KNOWING:
        stopping_runner(policy, PROBLEM, 1, CHECKPOINTS, Certificate())(0)
        Looking(means=[0.5, 0.5], policy=policy).first_wrong(50, 1, 1)
    offer = menu({0.25: 0.5, 4: 0.5})
    asked = Problem(PROBLEM.means, offer)
    for policy in READING_CELLS:
        for plain in (False, True):
            runner(policy, asked, 1, CHECKPOINTS, plain=plain)(0)
        bandit = Bandit(
            range(3), offer, policy, 1, counts=dict.fromkeys(range(3), ((9, 8), (7, 6)))
        )
        bandit.choose(20)
    bandit.estimates()
    bandit.certificate()


if __name__ == "__main__":
    if sys.argv[1:] == ["knowing and cells"]:
        compile_knowing_and_cells()
    else:
        other = [sys.executable, "-m", "helpers.compile_kernels", "knowing and cells"]
        with subprocess.Popen(other) as knowing:
            compile_bits()
        sys.exit(knowing.returncode)
