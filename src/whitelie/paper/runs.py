"""The simulations behind the figures: which ones each needs, saved and resumed.

Runs of one problem share a store, whatever the policies: what two figures need is simulated once.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whitelie.errors import InvalidInput, whole_number
from whitelie.paper import experiments
from whitelie.paper.experiments import SCENARIOS, Scenario
from whitelie.paper.survey import contested_problem
from whitelie.policy import Policy
from whitelie.problem import Problem
from whitelie.simulation.chunks import ChunkStore
from whitelie.simulation.result import Result
from whitelie.simulation.work import FinishedChunk, PolicyTask, Simulation, Workers

CHECKPOINTS = 180
TIMES_WRITE_INTERVAL_SECONDS = 2.0
MOST_REPLICATES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is simulated: as much as in the paper unless told otherwise."""

    horizon: int = experiments.HORIZON
    replicates: int = experiments.REPLICATES
    seed: int = experiments.SEED

    def __post_init__(self) -> None:
        most = (2**31 - 1) // experiments.ASYMPTOTIC_HORIZON_FACTOR
        reason = f"claims compare decades of time: give from 1,000 to {most:,} steps"
        if not 1_000 <= whole_number("horizon", self.horizon) <= most:
            raise InvalidInput("horizon", self.horizon, reason)
        if not 2 <= whole_number("replicates", self.replicates) <= MOST_REPLICATES:
            reason = (
                f"an interval needs two replicates at least, and {MOST_REPLICATES:,} are plenty"
            )
            raise InvalidInput("replicates", self.replicates, reason)


@dataclass(frozen=True)
class Run:
    """Policies on one problem: the name of its store, and how long and often it is run."""

    store: str
    problem: Problem
    policies: Mapping[str, Policy]
    horizon: int
    replicates: int

    @property
    def checkpoints(self) -> NDArray[np.int64]:
        """Times on a logarithmic scale, with the last decades among them."""
        times = np.geomspace(1, self.horizon, CHECKPOINTS).round().astype(np.int64)
        return np.unique([*times, *decades(self.horizon)])


def decades(horizon: int) -> tuple[int, int, int]:
    """Return T/100, T/10 and T."""
    return horizon // 100, horizon // 10, horizon


def over_time(scenario: Scenario, scale: Scale) -> Run:
    """Panel a: nine policies under unequal noise."""
    return _unequal_noise(scenario, scale, _named(experiments.OVER_TIME))


def private(scenario: Scenario, scale: Scale, epsilon: float) -> Run:
    """A point of panel b: kl-UCB-CF and TS-CF at one level of privacy."""
    return _private(scenario, scale, epsilon, _named(experiments.AGAINST_EPSILON))


def local_and_global(scenario: Scenario, scale: Scale) -> Run:
    """Panel c: panel b at epsilon = 1, beside DP-UCB-INT on the rewards themselves."""
    policies = _named(experiments.AGAINST_EPSILON) | experiments.GLOBAL_PRIVACY
    return _private(scenario, scale, experiments.COMPARED_EPSILON, policies)


def exploration(scenario: Scenario, scale: Scale) -> Run:
    """Beyond the paper: c = 0 beside c = 3."""
    return _unequal_noise(scenario, scale, experiments.EXPLORATION)


def optimality(scale: Scale) -> Run:
    """Beyond the paper: one problem for so long that Theorem 1's constant shows."""
    horizon = experiments.ASYMPTOTIC_HORIZON_FACTOR * scale.horizon
    replicates = max(2, scale.replicates // experiments.ASYMPTOTIC_REPLICATES_DIVISOR)
    problem = experiments.ASYMPTOTIC_SCENARIO.private(experiments.ASYMPTOTIC_EPSILON)
    return Run("optimality", problem, experiments.OPTIMALITY, horizon, replicates)


def survey(scale: Scale) -> Run:
    """Beyond the paper: a real survey, whose corruption nobody here added."""
    horizon = min(experiments.SURVEY_HORIZON, scale.horizon)
    policies = _named(experiments.SURVEY_POLICIES)
    return Run("survey", contested_problem(), policies, horizon, scale.replicates)


def runs_of(figure: str, scale: Scale) -> list[Run]:
    """Return the runs that a figure shows; a diagram needs none."""
    if figure in experiments.PANELS:
        scenario = scenario_of(figure)
        if figure.endswith("b"):
            return [private(scenario, scale, epsilon) for epsilon in experiments.EPSILONS]
        return [(over_time if figure.endswith("a") else local_and_global)(scenario, scale)]
    match figure:
        case "optimality":
            return [optimality(scale)]
        case "exploration":
            return [exploration(scenario, scale) for scenario in SCENARIOS]
        case "survey":
            return [survey(scale)]
    return []


def scenario_of(panel: str) -> Scenario:
    """Return the scenario of a panel such as "2b"."""
    return SCENARIOS[int(panel[0]) - 1]


class Times:
    """How many seconds each part took so far, saved in a file every few seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._written = 0.0
        with suppress(OSError, ValueError):
            self._seconds.update(json.loads(path.read_text()))

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a name; the file follows every few seconds."""
        self._seconds[name] += seconds
        if time.monotonic() - self._written > TIMES_WRITE_INTERVAL_SECONDS:
            self.write()

    def write(self) -> None:
        """Bring the file up to date, whole or not at all."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_name(f".{self._path.name}")
        unfinished.write_text(json.dumps(self._seconds, indent=1))
        unfinished.replace(self._path)
        self._written = time.monotonic()

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Add the time that passes by the clock."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - start)
            self.write()

    def total(self, mark: str) -> float | None:
        """Return the seconds of all names that contain a mark, or None if there are none."""
        seconds = [spent for name, spent in self._seconds.items() if mark in name]
        return sum(seconds) if seconds else None


class StoredRuns:
    """The runs of one reproduction, each in a store under one folder."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self._folder = folder
        self._scale = scale
        self.times = Times(folder / "times.json")

    def fill(self, figures: Iterable[str], workers: Workers) -> None:
        """Simulate what the figures need and the stores do not have yet."""
        needed = [run for figure in figures for run in runs_of(figure, self._scale)]
        tasks: list[PolicyTask] = []
        stores: dict[int, tuple[str, ChunkStore]] = {}
        for run in _merged(needed):
            simulation = self._simulation(run)
            stores[id(simulation)] = run.store, simulation.open(self._folder / run.store)
            tasks += simulation.missing_tasks(stores[id(simulation)][1])

        def save(finished: FinishedChunk) -> None:
            simulation = finished.task.simulation
            name, store = stores[id(simulation)]
            simulation.save(store, finished)
            self.times.add(name, finished.seconds)

        workers.run(tasks, save)

    def result(self, run: Run) -> Result:
        """Return the result of a run whose store is filled."""
        return self._simulation(run).run(Workers(), self._folder / run.store)[0]

    def against_epsilon(self, scenario: Scenario) -> Result:
        """Return panel b: the results at the seven levels of privacy."""
        points = [private(scenario, self._scale, epsilon) for epsilon in experiments.EPSILONS]
        return Result.stack([self.result(run) for run in points], "epsilon", experiments.EPSILONS)

    def _simulation(self, run: Run) -> Simulation:
        cell = (run.problem, run.policies)
        return Simulation([cell], run.horizon, run.replicates, self._scale.seed, run.checkpoints)


def _merged(runs: Sequence[Run]) -> list[Run]:
    """Return one run for each store, with all policies asked of it."""
    policies: defaultdict[str, dict[str, Policy]] = defaultdict(dict)
    for run in runs:
        policies[run.store] |= run.policies
    first = {run.store: run for run in reversed(runs)}
    stores = dict.fromkeys(run.store for run in runs)
    return [
        Run(name, first[name].problem, policies[name], first[name].horizon, first[name].replicates)
        for name in stores
    ]


def _unequal_noise(scenario: Scenario, scale: Scale, policies: Mapping[str, Policy]) -> Run:
    store = f"{scenario.figure}-unequal-noise"
    return Run(store, scenario.unequal_noise, policies, scale.horizon, scale.replicates)


def _private(
    scenario: Scenario, scale: Scale, epsilon: float, policies: Mapping[str, Policy]
) -> Run:
    store = f"{scenario.figure}-epsilon-{epsilon:g}"
    return Run(store, scenario.private(epsilon), policies, scale.horizon, scale.replicates)


def _named(policies: Sequence[Policy]) -> dict[str, Policy]:
    return {policy.label: policy for policy in policies}
