"""Compile what tests need into the disk cache, once: `python -m helpers.compile_kernels`.

From an empty cache every worker of pytest, and every server that a test starts meanwhile, would
compile the same loops at the same time; the first compilation of a process alone takes ten seconds.
"""

import numpy as np

from helpers.policy_cases import EXAMPLES
from whitelie import Bandit, Problem, RandomizedResponse
from whitelie.kernel.batch import run_batches
from whitelie.policy.run import runner
from whitelie.service.process.server import warm_up

PROBLEM = Problem([0.7, 0.6, 0.5], RandomizedResponse.from_epsilon(1))
CHECKPOINTS = np.array([10, 50])


def main() -> None:
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


if __name__ == "__main__":
    main()
