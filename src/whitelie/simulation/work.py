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

from whitelie.errors import InvalidInput, whole_number
from whitelie.kernel.arms import Array
from whitelie.kernel.jit import source_hash
from whitelie.kernel.run import runner
from whitelie.own_policy import OwnPolicy, run_own
from whitelie.policy import Policy
from whitelie.problem import Problem
from whitelie.progress import progress as show_progress
from whitelie.result import Result
from whitelie.store import Store

Policies = Sequence[Policy | OwnPolicy] | Mapping[str, Policy | OwnPolicy]

CHUNK_SECONDS = 1.0
TAIL = 8
CHECKPOINTS = 200


def simulate(  # noqa: PLR0913 (what users expect to tune, all by name)
    problem: Problem,
    policies: Policies,
    *,
    horizon: int,
    replicates: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
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

    >>> from whitelie import KLUCB, RandomizedResponse, TS
    >>> problem = Problem([0.9, 0.6], RandomizedResponse.from_epsilon(2))
    >>> result = simulate(problem, [KLUCB(), TS()], horizon=1000, replicates=20, seed=1)
    >>> list(result.policies)
    ['kl-UCB-CF', 'TS-CF']
    """
    work = Work([(problem, policies)], horizon, replicates, seed, checkpoints)
    return work.run(Workers(jobs, executor, progress), store)[0]


def simulate_many(  # noqa: PLR0913 (what users expect to tune, all by name)
    cells: Sequence[tuple[Problem, Policies]],
    *,
    coordinate: str,
    values: Sequence[float],
    horizon: int,
    replicates: int,
    seed: int,
    checkpoints: ArrayLike | None = None,
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
    work = Work(cells, horizon, replicates, seed, checkpoints)
    Result.stack(work.outlines, coordinate, values)
    results = work.run(Workers(jobs, executor, progress), store)
    return Result.stack(results, coordinate, values)


@dataclass
class Line:
    """What is left to do for one policy in one cell; chunks grow to about a second."""

    work: "Work"
    cell: int
    name: str
    missing: list[range]
    under_way: int = 0
    size: int = 1
    pace: float | None = None

    @property
    def left(self) -> int:
        """How many replicates are not finished."""
        return sum(map(len, self.missing)) + self.under_way

    def submit(self, pool: Executor) -> "tuple[Future[tuple[Array, float]], range]":
        """Start the next replicates: fewer towards the end, so that all workers end then."""
        left = sum(map(len, self.missing))
        size = min(self.size, max(1, left // TAIL))
        first = self.missing[0]
        chunk, rest = first[:size], first[size:]
        self.missing[:1] = [rest] if rest else []
        self.under_way += len(chunk)
        work = self.work
        problem, policy = work.problems[self.cell], work.policies[self.cell][self.name]
        return pool.submit(run_chunk, problem, policy, work.seed, work.checkpoints, chunk), chunk

    def learn(self, done: int, seconds: float) -> None:
        """Choose the next chunk's size from how long one took."""
        self.under_way -= done
        self.pace = max(seconds, 1e-9) / done
        self.size = min(max(1, int(CHUNK_SECONDS / self.pace)), 2 * self.size)


@dataclass(frozen=True)
class Finished:
    """Replicates of a line that are done, their pulls, and the seconds they took."""

    line: Line
    chunk: range
    pulls: Array
    seconds: float


@dataclass(frozen=True)
class Workers:
    """Who does the work: threads of our own, all cores unless told, or an executor."""

    jobs: int | None = None
    executor: Executor | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise InvalidInput("executor", self.executor, "give a concurrent.futures.Executor")
        if self.jobs is not None:
            whole_number("jobs", self.jobs, least=1)

    def do(self, lines: Sequence[Line], keep: Callable[[Finished], None]) -> None:
        """Do all lines, and hand over every chunk as it is finished."""
        workers = self.jobs or os.cpu_count() or 1
        total = sum(line.left for line in lines)
        with (
            show_progress("replicates", total, shown=self.progress) as advance,
            _executor(self.executor, workers) as pool,
        ):
            for finished in _chunks(pool, lines, 2 * workers):
                keep(finished)
                advance(len(finished.chunk), _seconds_left(lines) / workers)


class Work:
    """All that one call has to simulate, validated before any of it starts."""

    def __init__(
        self,
        cells: Sequence[tuple[Problem, Policies]],
        horizon: int,
        replicates: int,
        seed: int,
        checkpoints: ArrayLike | None,
    ) -> None:
        if not cells:
            raise InvalidInput("cells", cells, "at least one problem is needed")
        self.problems = [problem for problem, _ in cells]
        self.policies = [_named(problem, policies) for problem, policies in cells]
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
        """Return a result of one step, so that what a result would refuse is refused now."""
        named, problem = self.policies[cell], self.problems[cell]
        first_arm = np.eye(len(problem.names), dtype=np.int32)[0]
        pulls = np.tile(first_arm, (len(named), 1, 1, 1))
        return self._result(cell, pulls, np.array([1]), {})

    def run(self, workers: Workers, folder: str | os.PathLike[str] | None) -> list[Result]:
        """Do what the store does not have yet, and return one result per cell."""
        start = time.monotonic()
        store = None if folder is None else self.open(folder)
        pulls = [
            np.empty(
                (len(named), self.replicates, len(self.checkpoints), len(problem.names)), np.int32
            )
            for problem, named in zip(self.problems, self.policies, strict=True)
        ]
        lines = [self._line(cell, name, store, pulls[cell]) for cell, name in self._places()]

        def keep(finished: Finished) -> None:
            line, chunk = finished.line, finished.chunk
            if store is not None:
                self.save(store, finished)
            self._rows(line, pulls[line.cell])[chunk.start : chunk.stop] = finished.pulls

        workers.do(lines, keep)
        provenance = _provenance(time.monotonic() - start)
        return [
            self._result(cell, pulls[cell], self.checkpoints, provenance)
            for cell in range(len(self.problems))
        ]

    def missing_lines(self, store: Store) -> list[Line]:
        """Return what the store does not have yet."""
        lines = [self._line(cell, name, store, None) for cell, name in self._places()]
        return [line for line in lines if line.missing]

    def save(self, store: Store, finished: Finished) -> None:
        """Keep a chunk of this work in its store."""
        line, start = finished.line, finished.chunk.start
        store.save(line.cell, self._description(line), start, finished.pulls)

    def _places(self) -> Iterator[tuple[int, str]]:
        for cell, named in enumerate(self.policies):
            for name in named:
                yield cell, name

    def open(self, folder: str | os.PathLike[str]) -> Store:
        """Return the folder as the store of this work; refuse what it cannot keep."""
        if not isinstance(folder, str | os.PathLike) or folder == "":
            raise InvalidInput("store", folder, "give the path of a folder")
        for named in self.policies:
            for name, policy in named.items():
                if not hasattr(policy, "to_dict"):
                    reason = f"policy {name!r} needs a to_dict() that tells it from others"
                    raise InvalidInput("store", str(folder), reason)
        return Store(folder, self.problems, self.seed, self.checkpoints)

    def _line(self, cell: int, name: str, store: Store | None, pulls: Array | None) -> Line:
        """Return what is missing of one policy, and fill in the pulls that the store has."""
        line = Line(self, cell, name, [range(self.replicates)])
        if store is None:
            return line
        done = np.zeros(self.replicates, dtype=bool)
        for start, chunk in store.chunks(cell, self._description(line)):
            wanted = slice(start, min(start + len(chunk), self.replicates))
            done[wanted] = True
            if pulls is not None:
                self._rows(line, pulls)[wanted] = chunk[: max(self.replicates - start, 0)]
        line.missing = _gaps(done)
        return line

    def _rows(self, line: Line, pulls: Array) -> Array:
        return np.asarray(pulls[list(self.policies[line.cell]).index(line.name)])

    def _description(self, line: Line) -> Any:
        return _describe(self.policies[line.cell][line.name])

    def _result(self, cell: int, pulls: Array, times: Array, provenance: dict[str, Any]) -> Result:
        return Result.from_pulls(
            pulls,
            problem=self.problems[cell],
            policies={name: _describe(p) for name, p in self.policies[cell].items()},
            times=times.tolist(),
            seed=self.seed,
            provenance=provenance,
        )


def run_chunk(
    problem: Problem, policy: Policy | OwnPolicy, seed: int, checkpoints: Array, chunk: range
) -> tuple[Array, float]:
    """Return the pulls of some replicates and how many seconds they took, wherever this runs."""
    if isinstance(policy, Policy):
        run = runner(policy, problem, seed, checkpoints)
        shortest = checkpoints[:1]
        runner(policy, problem, seed, shortest)(0)  # the clock is for the work, not for compiling
    else:
        run = partial(run_own, policy, problem, seed, checkpoints)
    start = time.perf_counter()
    pulls = np.stack([run(replicate) for replicate in chunk])
    return pulls, time.perf_counter() - start


def _chunks(pool: Executor, lines: Sequence[Line], most: int) -> Iterator[Finished]:
    """Yield every chunk as it is finished; at most `most` are under way.

    Every line starts with one replicate, which tells its pace; then one after another is finished.
    """
    waiting = deque(line for line in lines if line.missing)
    running: dict[Future[tuple[Array, float]], tuple[Line, range]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                line = waiting.popleft()
                known = line.pace is not None or line.under_way
                future, chunk = line.submit(pool)
                running[future] = (line, chunk)
                if line.missing:
                    (waiting.appendleft if known else waiting.append)(line)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                line, chunk = running.pop(future)
                pulls, seconds = future.result()
                line.learn(len(chunk), seconds)
                yield Finished(line, chunk, pulls, seconds)
    finally:
        for future in running:
            future.cancel()


def _seconds_left(lines: Sequence[Line]) -> float:
    """Return the seconds that one worker would need; a line without a pace counts as the mean."""
    paces = [line.pace for line in lines if line.pace is not None]
    usual = sum(paces) / len(paces)
    return sum(line.left * (usual if line.pace is None else line.pace) for line in lines)


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
        elif not isinstance(policy, OwnPolicy) or isinstance(policy, type):
            reason = "give a policy, or an object with choose(pulls, successes, channels, t, words)"
            raise InvalidInput("policies", policy, reason)
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
