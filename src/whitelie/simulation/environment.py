"""Our problems for agents of others: an environment of Gymnasium, the standard interface.

It needs `pip install "whitelie[gym]"`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from whitelie.channel import of_bits
from whitelie.errors import InvalidInput, whole_number
from whitelie.problem import Problem
from whitelie.simulation.replicate import Replicate


class CorruptBanditEnv(gymnasium.Env[np.int64, np.int64]):
    """A problem as an environment: an action is an arm, the reward its randomised feedback.

    The agent sees what a learner sees, so there is nothing to observe but the reward. `info` tells
    the experimenter what no learner can know: `gap`, what the step cost in true mean reward, and
    `regret`, the sum so far, Σ_a Δ_a·N_a(t). An episode is truncated after `horizon` steps.

    `reset(seed=s)` starts replicate 0 of seed s, with the very bits of `simulate`; every further
    `reset()` starts the next replicate, and `options={"replicate": r}` any other.

    >>> env = CorruptBanditEnv(Problem([0.9, 0.6]), horizon=2)
    >>> _, info = env.reset(seed=1)
    >>> [env.step(1)[1:4] for _ in range(2)]
    [(1.0, False, False), (0.0, False, True)]
    """

    def __init__(self, problem: Problem, horizon: int) -> None:
        if not isinstance(problem, Problem):
            raise InvalidInput("problem", problem, "give a Problem")
        of_bits(problem.channels)
        self.problem = problem
        self.horizon = whole_number("horizon", horizon, least=1, most=2**31 - 1)
        self.action_space = Discrete(len(problem.names))
        self.observation_space = Discrete(1)
        self._gaps = np.array(problem.gaps)
        self._seed: int | None = None
        self._replicate = 0
        self._arms: Replicate | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Start a replicate, and return the constant observation and which replicate it is."""
        super().reset(seed=seed)
        if seed is not None or self._seed is None:
            self._seed = seed if seed is not None else int(self.np_random.integers(2**63))
            following = 0
        else:
            following = self._replicate + 1
        asked = (options or {}).get("replicate", following)
        self._replicate = whole_number("replicate", asked, most=2**31 - 1)
        self._arms = Replicate(self.problem, self._seed, self._replicate)
        return np.int64(0), {"seed": self._seed, "replicate": self._replicate, "regret": 0.0}

    def step(self, action: np.int64 | int) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Pull an arm: its feedback is the reward."""
        if self._arms is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        if not self.action_space.contains(action):
            last = len(self.problem.names) - 1
            raise InvalidInput("action", action, f"give the position of an arm, 0 to {last}")
        feedback = self._arms.pull(int(action))
        pulls = self._arms.pulls
        info = {"gap": float(self._gaps[action]), "regret": float(self._gaps @ pulls)}
        return np.int64(0), float(feedback), False, sum(pulls) >= self.horizon, info
