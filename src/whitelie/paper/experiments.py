"""What the paper's experiments are, as data (section 6 and the additional empirical evaluation).

Five problems with three panels each: a, regret over time; b, regret against epsilon; c, local
against global privacy. The paper's main problem is figure 1 here and its scenarios 1 to 4 are
figures 2 to 5, so that "2b" is panel b of scenario 1. Then the paper's three diagrams, and what
goes beyond the paper.
"""

import math
from dataclasses import dataclass, replace

from whitelie.channel import RandomizedResponse
from whitelie.policy import KLUCB, TS, UCB, UCB1, DPUCBInt, Policy
from whitelie.problem import Problem

HORIZON = 100_000
REPLICATES = 1_000
SEED = 2018
QUICK_REPLICATES = 12

EPSILONS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
COMPARED_EPSILON = 1.0

BEST_ARM_CHANNEL = RandomizedResponse.warner(0.6)
OTHER_ARMS_CHANNEL = RandomizedResponse.warner(0.9)


@dataclass(frozen=True)
class Scenario:
    """One of the five problems: its figure's number, its name, and the mean rewards of its arms."""

    figure: int
    title: str
    means: tuple[float, ...]

    @property
    def unequal_noise(self) -> Problem:
        """Experiment 1: the best arm's feedback is the noisiest."""
        best = max(self.means)
        noise = [BEST_ARM_CHANNEL if mean == best else OTHER_ARMS_CHANNEL for mean in self.means]
        return Problem(self.means, noise)

    def private(self, epsilon: float) -> Problem:
        """Experiments 2 and 3: symmetric randomised response on all arms."""
        return Problem(self.means, RandomizedResponse.from_epsilon(epsilon))


SCENARIOS = (
    Scenario(1, "Main problem", (0.9, *[0.8] * 9)),
    Scenario(2, "Scenario 1", (0.9, 0.6)),
    Scenario(3, "Scenario 2", (0.9, 0.8)),
    Scenario(4, "Scenario 3", (0.9, *[0.8] * 3, *[0.7] * 3, *[0.6] * 3)),
    Scenario(5, "Scenario 4", (0.9, *[0.6] * 9)),
)

CORRECTED: tuple[Policy, ...] = (KLUCB(), UCB(), TS())
WRAPPED: tuple[Policy, ...] = (
    KLUCB(feedback="wrapped"),
    UCB1(feedback="wrapped"),
    TS(feedback="wrapped"),
)
NAIVE: tuple[Policy, ...] = (KLUCB(feedback="naive"), UCB1(), TS(feedback="naive"))
OVER_TIME: tuple[Policy, ...] = (*CORRECTED, *WRAPPED, *NAIVE)
NOT_IN_THE_PAPERS_FIGURES = ("UCB-CF", "WR(UCB1)")

AGAINST_EPSILON: tuple[Policy, ...] = (KLUCB(), TS())

_AS_PUBLISHED = DPUCBInt(epsilon=COMPARED_EPSILON, v=1.1, delta=math.exp(-10))
GLOBAL_PRIVACY = {
    "DP-UCB-INT": _AS_PUBLISHED,
    "DP-UCB-INT, calibrated": replace(_AS_PUBLISHED, calibrated=True),
}

PANELS = tuple(f"{scenario.figure}{panel}" for scenario in SCENARIOS for panel in "abc")
DIAGRAMS = ("uninformative", "informative", "index")
BEYOND_THE_PAPER = ("optimality", "exploration", "survey")
FIGURES = (*PANELS, *DIAGRAMS, *BEYOND_THE_PAPER)
"""The name of every figure of the report."""

ASYMPTOTIC_SCENARIO, ASYMPTOTIC_EPSILON = SCENARIOS[4], 2.0
"""Where Theorem 1's constant shows soonest; on the main problem 10^7 steps are not enough."""

ASYMPTOTIC_HORIZON_FACTOR = 100
"""How many times the horizon is needed to see the constant of Theorem 1."""

ASYMPTOTIC_REPLICATES_DIVISOR = 10
"""How many times fewer replicates are run that long."""

EXPLORATION: dict[str, Policy] = {
    "kl-UCB-CF": KLUCB(),
    "kl-UCB-CF, c = 0": KLUCB(c=0),
    "UCB-CF": UCB(),
    "UCB-CF, c = 0": UCB(c=0),
    "TS-CF": TS(),
}
OPTIMALITY = {name: EXPLORATION[name] for name in ("kl-UCB-CF", "kl-UCB-CF, c = 0", "TS-CF")}

SURVEY_HORIZON = 20_000
SURVEY_POLICIES: tuple[Policy, ...] = (
    KLUCB(),
    TS(),
    KLUCB(feedback="naive"),
    TS(feedback="naive"),
)
