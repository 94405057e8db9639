"""Simulate policies on problems: cut into chunks, run anywhere, resumed from where it stopped."""

import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from whitelie.certificate import Certificate
from whitelie.errors import InvalidInput, whole_number
from whitelie.kernel.arms import Array
from whitelie.kernel.jit import source_hash
from whitelie.policy import Policy
from whitelie.policy.run import Run, runner
from whitelie.problem import Problem
from whitelie.simulation.chunks import ChunkStore
from whitelie.simulation.own_policy import OwnPolicy, check_own, run_own
from whitelie.simulation.progress import progress as show_progress
from whitelie.simulation.result import Result
from whitelie.simulation.stopping import check_stop, stopping_runner
from whitelie.simulation.stops import STOP_ROWS, split

Policies = Sequence[Policy | OwnPolicy] | Mapping[str, Policy | OwnPolicy]

CHUNK_SECONDS = 1.0
LAST_CHUNKS_DIVISOR = 8
"""A chunk is at most this part of what is left, so that all workers end at about one time."""

CHECKPOINTS = 200


def simulate(  # noqa: PLR0913 (what users expect to tune, all by name)
    problem: Problem,
    policies: Policies,
    *,
    horizon: int,
    replicates: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
    stop: Certificate | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Result:
    """Return the pulls of every policy, replicate, checkpoint and arm.

    Policies are compared on common random numbers, and the pulls of a policy and replicate depend
    on nothing but the problem, the seed and the replicate's number. `checkpoints` are about 200
    times on a logarithmic scale unless given. Work runs in `jobs` threads (all cores unless given),
    or in any `concurrent.futures.Executor`. With a `store` every finished chunk is kept in that
    folder; the same call does only what is missing.

    With `stop=Certificate(delta=0.05)` everybody looks after every report: a replicate stops when
    one arm is certified to be the best, and then shows the winner. `Result.stops` and
    `Result.stopping_summary` say when, and what was lost until then.

    >>> from whitelie import KLUCB, RandomizedResponse, TS
    >>> problem = Problem([0.9, 0.6], RandomizedResponse.from_epsilon(2))
    >>> result = simulate(problem, [KLUCB(), TS()], horizon=1000, replicates=20, seed=1)
    >>> list(result.policies)
    ['kl-UCB-CF', 'TS-CF']
    """
    cells = [(problem, policies)]
    simulation = Simulation(cells, horizon, replicates, seed, checkpoints, stop=stop)
    return simulation.run(Workers(jobs, executor, progress), store)[0]


def simulate_many(  # noqa: PLR0913 (what users expect to tune, all by name)
    cells: Sequence[tuple[Problem, Policies]],
    *,
    coordinate: str,
    values: Sequence[float],
    horizon: int,
    replicates: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
    stop: Certificate | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Result:
    """Return one result over several (problem, policies) cells, such as one for each epsilon.

    The cells have the same arm names and policy names; `coordinate` names what differs and
    `values` says its value in each cell. The rest is as in `simulate`.
    """
    if len(values) != len(cells):
        raise InvalidInput("values", values, f"give one value for each of the {len(cells)} cells")
    simulation = Simulation(cells, horizon, replicates, seed, checkpoints, stop=stop)
    Result.stack(simulation.outlines, coordinate, values)
    results = simulation.run(Workers(jobs, executor, progress), store)
    return Result.stack(results, coordinate, values)


@dataclass
class PolicyTask:
    """The replicates of a policy in a cell that are still to simulate, in chunks of a second."""

    simulation: "Simulation"
    cell: int
    name: str
    missing: list[range]
    running: int = 0
    size: int = 1
    pace: float | None = None

    @property
    def left(self) -> int:
        """How many replicates are not finished."""
        return sum(map(len, self.missing)) + self.running

    def submit(self, pool: Executor) -> "tuple[Future[tuple[Array, float]], range]":
        """Start the next chunk: a smaller one towards the end, so that all workers end together."""
        left = sum(map(len, self.missing))
        size = min(self.size, max(1, left // LAST_CHUNKS_DIVISOR))
        first = self.missing[0]
        chunk, rest = first[:size], first[size:]
        self.missing[:1] = [rest] if rest else []
        self.running += len(chunk)
        whole = self.simulation
        problem, policy = whole.problems[self.cell], whole.policies[self.cell][self.name]
        setting = whole.seed, whole.checkpoints, whole.stop
        return pool.submit(run_chunk, problem, policy, *setting, chunk), chunk

    def record(self, done: int, seconds: float) -> None:
        """Choose the next chunk's size by the time that this one took."""
        self.running -= done
        self.pace = max(seconds, 1e-9) / done
        self.size = min(max(1, int(CHUNK_SECONDS / self.pace)), 2 * self.size)


@dataclass(frozen=True)
class FinishedChunk:
    """Finished replicates of a task, their pulls, and the seconds that they took."""

    task: PolicyTask
    chunk: range
    pulls: Array
    seconds: float


@dataclass(frozen=True)
class Workers:
    """Who does the work: threads of our own (all cores unless told), or an executor."""

    jobs: int | None = None
    executor: Executor | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise InvalidInput("executor", self.executor, "give a concurrent.futures.Executor")
        if self.jobs is not None:
            whole_number("jobs", self.jobs, least=1)

    def run(self, tasks: Sequence[PolicyTask], save: Callable[[FinishedChunk], None]) -> None:
        """Run all tasks, and save every chunk as it is finished."""
        workers = self.jobs or os.cpu_count() or 1
        total = sum(task.left for task in tasks)
        with (
            show_progress("replicates", total, shown=self.progress) as advance,
            _executor(self.executor, workers) as pool,
        ):
            for finished in _chunks(pool, tasks, 2 * workers):
                save(finished)
                advance(len(finished.chunk), _seconds_left(tasks) / workers)


class Simulation:
    """All that one call has to simulate, validated before any of it starts."""

    def __init__(
        self,
        cells: Sequence[tuple[Problem, Policies]],
        horizon: int,
        replicates: int,
        seed: int,
        checkpoints: ArrayLike | None,
        *,
        stop: Certificate | None = None,
    ) -> None:
        if not cells:
            raise InvalidInput("cells", cells, "at least one problem is needed")
        self.problems = [problem for problem, _ in cells]
        self.policies = [_named(problem, policies) for problem, policies in cells]
        for problem, named in zip(self.problems, self.policies, strict=True):
            self.stop = check_stop(stop, problem, named)
        most_arms = max(len(problem.names) for problem in self.problems)
        self.horizon = whole_number("horizon", horizon, least=1, most=2**31 - 1)
        if self.horizon < most_arms:
            raise InvalidInput(
                "horizon", horizon, f"too short to pull each of {most_arms} arms once"
            )
        self.replicates = whole_number("replicates", replicates, least=1, most=2**31 - 1)
        self.seed = whole_number("seed", seed, most=2**64 - 1)
        self.checkpoints = _checkpoints(checkpoints, self.horizon)
        self.outlines = [self._outline(cell) for cell in range(len(cells))]

    def _outline(self, cell: int) -> Result:
        """Return a result of one step: what a result would refuse is so refused before any work."""
        named, problem = self.policies[cell], self.problems[cell]
        first_arm = np.eye(len(problem.names), dtype=np.int32)[0]
        never = [first_arm, np.zeros_like(first_arm)] if self.stop else []
        rows = np.tile([first_arm, *never], (len(named), 1, 1, 1))
        return self._result(cell, rows, np.array([1]), {})

    def run(self, workers: Workers, folder: str | os.PathLike[str] | None) -> list[Result]:
        """Simulate what the store does not have yet, and return one result per cell."""
        start = time.monotonic()
        store = None if folder is None else self.open(folder)
        length = len(self.checkpoints) + (STOP_ROWS if self.stop else 0)
        pulls = [
            np.empty((len(named), self.replicates, length, len(problem.names)), np.int32)
            for problem, named in zip(self.problems, self.policies, strict=True)
        ]
        tasks = [self._task(cell, name, store, pulls[cell]) for cell, name in self._places()]

        def save(finished: FinishedChunk) -> None:
            task, chunk = finished.task, finished.chunk
            if store is not None:
                self.save(store, finished)
            self._rows(task, pulls[task.cell])[chunk.start : chunk.stop] = finished.pulls

        workers.run(tasks, save)
        provenance = _provenance(time.monotonic() - start)
        return [
            self._result(cell, pulls[cell], self.checkpoints, provenance)
            for cell in range(len(self.problems))
        ]

    def missing_tasks(self, store: ChunkStore) -> list[PolicyTask]:
        """Return what the store does not have yet."""
        tasks = [self._task(cell, name, store, None) for cell, name in self._places()]
        return [task for task in tasks if task.missing]

    def save(self, store: ChunkStore, finished: FinishedChunk) -> None:
        """Save a chunk of this simulation in its store."""
        task, start = finished.task, finished.chunk.start
        store.save(task.cell, self._description(task), start, finished.pulls)

    def _places(self) -> Iterator[tuple[int, str]]:
        for cell, named in enumerate(self.policies):
            for name in named:
                yield cell, name

    def open(self, folder: str | os.PathLike[str]) -> ChunkStore:
        """Return the folder as the store of this simulation; refuse what it cannot store."""
        if not isinstance(folder, str | os.PathLike) or folder == "":
            raise InvalidInput("store", folder, "give the path of a folder")
        for named in self.policies:
            for name, policy in named.items():
                if not hasattr(policy, "to_dict"):
                    reason = f"policy {name!r} needs a to_dict() that tells it from others"
                    raise InvalidInput("store", str(folder), reason)
        return ChunkStore(folder, self.problems, self.seed, self.checkpoints, self.stop)

    def _task(
        self, cell: int, name: str, store: ChunkStore | None, pulls: Array | None
    ) -> PolicyTask:
        """Return what is missing of one policy, and fill in the pulls that the store has."""
        task = PolicyTask(self, cell, name, [range(self.replicates)])
        if store is None:
            return task
        done = np.zeros(self.replicates, dtype=bool)
        for start, chunk in store.chunks(cell, self._description(task)):
            wanted = slice(start, min(start + len(chunk), self.replicates))
            done[wanted] = True
            if pulls is not None:
                self._rows(task, pulls)[wanted] = chunk[: max(self.replicates - start, 0)]
        task.missing = _gaps(done)
        return task

    def _rows(self, task: PolicyTask, pulls: Array) -> Array:
        return np.asarray(pulls[list(self.policies[task.cell]).index(task.name)])

    def _description(self, task: PolicyTask) -> Any:
        return _describe(self.policies[task.cell][task.name])

    def _result(self, cell: int, rows: Array, times: Array, provenance: dict[str, Any]) -> Result:
        pulls, stops = (rows, None) if self.stop is None else split(rows, self.stop)
        return Result.from_pulls(
            pulls,
            problem=self.problems[cell],
            policies={name: _describe(p) for name, p in self.policies[cell].items()},
            times=times.tolist(),
            seed=self.seed,
            provenance=provenance,
            stops=stops,
        )


def run_chunk(
    problem: Problem,
    policy: Policy | OwnPolicy,
    seed: int,
    checkpoints: Array,
    stop: Certificate | None,
    chunk: range,
) -> tuple[Array, float]:
    """Return the pulls of some replicates and how many seconds they took, wherever this runs."""
    if isinstance(policy, Policy):
        run = _runner(policy, problem, seed, checkpoints, stop)
        shortest = checkpoints[:1]
        _runner(policy, problem, seed, shortest, stop)(0)  # the clock does not count compiling
    else:
        run = partial(run_own, policy, problem, seed, checkpoints, stop=stop)
    start = time.perf_counter()
    pulls = np.stack([run(replicate) for replicate in chunk])
    return pulls, time.perf_counter() - start


def _runner(
    policy: Policy, problem: Problem, seed: int, checkpoints: Array, stop: Certificate | None
) -> Run:
    if stop is None:
        return runner(policy, problem, seed, checkpoints)
    return stopping_runner(policy, problem, seed, checkpoints, stop)


def _chunks(pool: Executor, tasks: Sequence[PolicyTask], most: int) -> Iterator[FinishedChunk]:
    """Yield every chunk as it is finished; at most `most` are under way.

    Every task starts with one replicate, which tells its pace; then one after another is finished.
    """
    waiting = deque(task for task in tasks if task.missing)
    running: dict[Future[tuple[Array, float]], tuple[PolicyTask, range]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                task = waiting.popleft()
                known = task.pace is not None or task.running
                future, chunk = task.submit(pool)
                running[future] = (task, chunk)
                if task.missing:
                    (waiting.appendleft if known else waiting.append)(task)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, chunk = running.pop(future)
                pulls, seconds = future.result()
                task.record(len(chunk), seconds)
                yield FinishedChunk(task, chunk, pulls, seconds)
    finally:
        for future in running:
            future.cancel()


def _seconds_left(tasks: Sequence[PolicyTask]) -> float:
    """Return the seconds that one worker would need; a task without a pace counts as the mean."""
    paces = [task.pace for task in tasks if task.pace is not None]
    usual = sum(paces) / len(paces)
    return sum(task.left * (usual if task.pace is None else task.pace) for task in tasks)


@contextmanager
def _executor(executor: Executor | None, workers: int) -> Iterator[Executor]:
    """The caller's executor, left open, or threads of our own: the kernels release the lock."""
    if executor is not None:
        yield executor
        return
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _named(problem: Problem, policies: Policies) -> dict[str, Policy | OwnPolicy]:
    if not isinstance(problem, Problem):
        raise InvalidInput("problem", problem, "give a Problem")
    if isinstance(policies, str) or not isinstance(policies, Mapping | Sequence):
        raise InvalidInput("policies", policies, "give a list of policies, or {name: policy}")
    if isinstance(policies, Mapping):
        pairs = list(policies.items())
    else:
        pairs = [(getattr(p, "label", type(p).__name__), p) for p in policies]
    if not pairs:
        raise InvalidInput("policies", policies, "at least one policy is needed")
    names = [name for name, _ in pairs]
    for name, policy in pairs:
        if names.count(name) > 1:
            reason = "two policies have this name; give names in a mapping {name: policy}"
            raise InvalidInput("policies", name, reason)
        if isinstance(policy, Policy):
            policy.check_channels(problem.channels)
        else:
            check_own(policy)
    return dict(pairs)


def _describe(policy: Policy | OwnPolicy) -> dict[str, Any]:
    describe = getattr(policy, "to_dict", None)
    return describe() if describe else {"name": type(policy).__name__}


def _checkpoints(asked: ArrayLike | None, horizon: int) -> Array:
    if asked is None:
        return np.unique(np.geomspace(1, horizon, CHECKPOINTS).round().astype(np.int64))
    times = np.asarray(asked)
    whole = times.ndim == 1 and times.size > 0 and np.issubdtype(times.dtype, np.integer)
    if not whole or times.min() < 1 or times.max() > horizon or np.any(np.diff(times) <= 0):
        reason = f"give increasing whole numbers from 1 to the horizon, {horizon}"
        raise InvalidInput("checkpoints", asked, reason)
    return np.unique(np.append(times.astype(np.int64), horizon))


def _gaps(done: Array) -> list[range]:
    """The runs of replicates that are not done."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], done, [True]])))
    return [range(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]


def _provenance(seconds: float) -> dict[str, Any]:
    packages = ("whitelie", "numba", "numpy")
    return {
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "kernel": source_hash(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
    }
