"""The simulations behind the pictures: which ones each needs, kept in one folder and resumed.

Runs of one problem share a store, whatever the policies: what two pictures need is simulated once.
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
from whitelie.paper import settings
from whitelie.paper.settings import SCENARIOS, Scenario
from whitelie.paper.survey import contested_problem
from whitelie.policy import Policy
from whitelie.problem import Problem
from whitelie.result import Result
from whitelie.simulation import Finished, Line, Work, Workers
from whitelie.store import Store

CHECKPOINTS = 180
WRITE_EVERY_SECONDS = 2.0
MOST_REPLICATES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is simulated: as much as in the paper unless told otherwise."""

    horizon: int = settings.HORIZON
    replicates: int = settings.REPLICATES
    seed: int = settings.SEED

    def __post_init__(self) -> None:
        most = (2**31 - 1) // settings.LONGER
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
    return _unequal_noise(scenario, scale, _named(settings.OVER_TIME))


def private(scenario: Scenario, scale: Scale, epsilon: float) -> Run:
    """A point of panel b: kl-UCB-CF and TS-CF at one level of privacy."""
    return _private(scenario, scale, epsilon, _named(settings.AGAINST_EPSILON))


def local_and_global(scenario: Scenario, scale: Scale) -> Run:
    """Panel c: panel b at epsilon = 1, beside DP-UCB-INT on the rewards themselves."""
    policies = _named(settings.AGAINST_EPSILON) | settings.GLOBAL_PRIVACY
    return _private(scenario, scale, settings.COMPARED_EPSILON, policies)


def exploration(scenario: Scenario, scale: Scale) -> Run:
    """Beyond the paper: c = 0 beside c = 3."""
    return _unequal_noise(scenario, scale, settings.EXPLORATION)


def optimality(scale: Scale) -> Run:
    """Beyond the paper: one problem for so long that Theorem 1's constant shows."""
    horizon = settings.LONGER * scale.horizon
    replicates = max(2, scale.replicates // settings.FEWER)
    problem = settings.ASYMPTOTIC_SCENARIO.private(settings.ASYMPTOTIC_EPSILON)
    return Run("optimality", problem, settings.OPTIMALITY, horizon, replicates)


def survey(scale: Scale) -> Run:
    """Beyond the paper: a real survey, whose corruption nobody here added."""
    horizon = min(settings.SURVEY_HORIZON, scale.horizon)
    policies = _named(settings.SURVEY_POLICIES)
    return Run("survey", contested_problem(), policies, horizon, scale.replicates)


def runs_of(picture: str, scale: Scale) -> list[Run]:
    """Return the runs that a picture shows; an illustration needs none."""
    if picture in settings.PANELS:
        scenario = scenario_of(picture)
        if picture.endswith("b"):
            return [private(scenario, scale, epsilon) for epsilon in settings.EPSILONS]
        return [(over_time if picture.endswith("a") else local_and_global)(scenario, scale)]
    match picture:
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
    """How many seconds things took so far, kept in a file that is never far behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._written = 0.0
        with suppress(OSError, ValueError):
            self._seconds.update(json.loads(path.read_text()))

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a name; the file follows every few seconds."""
        self._seconds[name] += seconds
        if time.monotonic() - self._written > WRITE_EVERY_SECONDS:
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
        """Add what passes on the wall's clock."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - start)
            self.write()

    def total(self, mark: str) -> float | None:
        """Return the seconds of all names that contain a mark, or None if there are none."""
        found = [seconds for name, seconds in self._seconds.items() if mark in name]
        return sum(found) if found else None


class Runs:
    """The runs of one reproduction, in stores under a folder."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self._folder = folder
        self._scale = scale
        self.times = Times(folder / "times.json")

    def fill(self, pictures: Iterable[str], workers: Workers) -> None:
        """Simulate what the pictures need and the stores do not have yet."""
        needed = [run for picture in pictures for run in runs_of(picture, self._scale)]
        lines: list[Line] = []
        stores: dict[int, tuple[str, Store]] = {}
        for run in _merged(needed):
            work = self._work(run)
            stores[id(work)] = run.store, work.open(self._folder / run.store)
            lines += work.missing_lines(stores[id(work)][1])

        def keep(finished: Finished) -> None:
            work = finished.line.work
            name, store = stores[id(work)]
            work.save(store, finished)
            self.times.add(name, finished.seconds)

        workers.do(lines, keep)

    def result(self, run: Run) -> Result:
        """Return the result of a run whose store is filled."""
        return self._work(run).run(Workers(), self._folder / run.store)[0]

    def against_epsilon(self, scenario: Scenario) -> Result:
        """Return panel b: the results at the seven levels of privacy."""
        points = [private(scenario, self._scale, epsilon) for epsilon in settings.EPSILONS]
        return Result.stack([self.result(run) for run in points], "epsilon", settings.EPSILONS)

    def _work(self, run: Run) -> Work:
        cell = (run.problem, run.policies)
        return Work([cell], run.horizon, run.replicates, self._scale.seed, run.checkpoints)


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
