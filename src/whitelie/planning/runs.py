"""A design simulated in batches: rewards lost, when traffic settles, when an arm is certified."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from whitelie.certificate import packed
from whitelie.channel import RandomizedResponse
from whitelie.errors import whole_number
from whitelie.kernel.arms import Array
from whitelie.kernel.batch import run_batches
from whitelie.kernel.stopping import first_certified
from whitelie.planning.design import Design

BATCH_SHARE = 0.01
"""A batch is this share of the reports before it."""

RECENT_DIVISOR = 10
"""The recent reports are the last 1/RECENT_DIVISOR of all."""

SETTLED_SHARE = 0.9
"""Traffic has settled when the best arm's share of the recent reports is above this."""

REPLICATES_PER_TASK = 20
"""Replicates that one task runs."""

MOST_COMPARED_REPLICATES = 100
"""Replicates of what is compared or searched for a certificate, which takes long to simulate."""

HEADROOM = 2.0
"""A replicate is first simulated for so many times as long as others took to their certificate."""

ROUNDING = 1e-12
"""Gaps that exceed a tolerance by no more than this are equal to it."""

Play = Callable[[int, Array], tuple[Array, Array]]
"""(replicate, batch ends) -> pulls and successes of each arm (column) at every end (row)."""


def batch_ends(horizon: int, arms: int, share: float = BATCH_SHARE) -> Array:
    """Return after how many reports each batch ends: one by one at first, then `share` more.

    >>> batch_ends(205, 5)[[0, 1, 100, 199, 200, 201]].tolist()
    [1, 2, 101, 200, 202, 204]
    """
    ends, t = [], 0
    while t < horizon:
        t = min(horizon, t + (max(1, int(share * t)) if t >= arms else 1))
        ends.append(t)
    return np.array(ends, dtype=np.int64)


def recent_pulls(pulls: Array, times: Array) -> Array:
    """Return the pulls (…, time, arm) within the recent reports at every time t.

    These are all after u, the last of the times that is at most 0.9·t; 0 before the first.
    """
    before = np.searchsorted(times, times * (RECENT_DIVISOR - 1) // RECENT_DIVISOR, side="right")
    padded = np.concatenate([np.zeros_like(pulls[..., :1, :]), pulls], axis=-2)
    return np.asarray(pulls - padded[..., before, :])


def best_shares(pulls: Array, times: Array, best: tuple[int, ...]) -> Array:
    """Return the share of the recent reports that the best arms had, at every time."""
    recent = recent_pulls(pulls, times)
    return np.asarray(recent[..., list(best)].sum(axis=-1) / recent.sum(axis=-1))


@dataclass(frozen=True)
class Runs:
    """What became of every replicate (row).

    Time counts the answers that are reported on, when they are asked for. By time (column):
    `regret`, and `settled`, whether the best arm had more than 90 % of the recent reports. `wrong`:
    whether the arm with most of the last recent reports was not the best. If the goal is to know,
    these are with the winner shipped: shown alone since its certificate.

    `certified`: when the last report arrived that a certificate needed, infinity for never;
    `error`: whether it was wrong; `until`: the regret by then, or by the end; `shipped`: the regret
    by the end with the winner shipped.
    """

    times: Array
    regret: Array
    settled: Array
    wrong: Array
    certified: Array
    error: Array
    until: Array
    shipped: Array


class Played(NamedTuple):
    """Pulls by time and arm; the certificate's time (infinity for never) and its winner."""

    pulls: Array
    certified: float
    winner: int


@dataclass(frozen=True)
class DesignSimulator:
    """Simulates designs: so many replicates, from this seed, by these workers."""

    replicates: int
    seed: int
    pool: Executor

    def fresh(self, number: int) -> Self:
        """Return a simulator whose random numbers are its own, one for each number."""
        return replace(self, seed=(self.seed + 1 + number) % 2**64)

    def compared(self) -> Self:
        """Return a simulator of fewer replicates, for what is compared with a plan's options."""
        return replace(self, replicates=min(self.replicates, MOST_COMPARED_REPLICATES))

    def run(
        self, design: Design, channel: RandomizedResponse, *, reports: int | None = None
    ) -> Runs:
        """Return the runs of a year, or of its batches that end within so many reports.

        Replicate r depends on the design, the channel, the seed and r alone.
        """
        problem, lag, key = design.problem(channel), design.lag, np.uint64(self.seed)
        game = design.policy.game(problem, design.horizon)
        return self._run(
            design,
            channel,
            lambda replicate, ends: run_batches(game, key, replicate, ends, lag),
            reports,
        )

    def run_equal_shares(self, design: Design, channel: RandomizedResponse) -> Runs:
        """Return the runs of a year in which all arms are shown in turn until the certificate."""
        feedback = np.array(design.problem(channel).feedback_means)

        def play(replicate: int, ends: Array) -> tuple[Array, Array]:
            draws = np.random.default_rng((self.seed, replicate))
            size = len(feedback)
            pulls = (ends[:, None] + np.arange(size - 1, -1, -1)) // size
            ones = draws.binomial(np.diff(pulls, axis=0, prepend=0), feedback)
            return pulls, ones.cumsum(axis=0)

        return self._run(design, channel, play, None)

    def _run(
        self, design: Design, channel: RandomizedResponse, play: Play, reports: int | None
    ) -> Runs:
        ends = batch_ends(design.horizon, len(design.rates))
        if reports is not None:
            ends = ends[: max(1, int(np.searchsorted(ends, reports, side="right")))]
        chunks = [
            range(start, min(start + REPLICATES_PER_TASK, self.replicates))
            for start in range(0, self.replicates, REPLICATES_PER_TASK)
        ]
        tasks = [self.pool.submit(_run_chunk, design, channel, play, ends, c) for c in chunks]
        parts = [task.result() for task in tasks]
        return Runs(ends, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _run_chunk(
    design: Design, channel: RandomizedResponse, play: Play, ends: Array, chunk: range
) -> tuple[Array, ...]:
    """Return, by replicate, all columns of `Runs` but the times."""
    gaps = np.array(design.problem(channel).gaps)
    played = _played(design, channel, play, ends, chunk)
    certified = np.array([one.certified for one in played])
    winner = np.array([one.winner for one in played])
    reached = certified < np.inf
    shown = [shipped(one, ends) for one in played]
    pulls = np.stack(shown if design.goal.ships else [one.pulls for one in played])
    favourite = recent_pulls(pulls, ends)[:, -1].argmax(axis=1)
    until = [pulls_at(one.pulls, ends, min(one.certified, float(ends[-1]))) for one in played]
    return (
        pulls @ gaps,
        best_shares(pulls, ends, design.best) > SETTLED_SHARE,
        gaps[favourite] > 0,
        certified,
        reached & (gaps[winner] > design.goal.certificate.tolerance + ROUNDING),
        np.stack(until) @ gaps,
        np.stack([pulls[-1] for pulls in shown]) @ gaps,
    )


def _played(
    design: Design, channel: RandomizedResponse, play: Play, ends: Array, chunk: range
) -> list[Played]:
    """Return the replicates of a chunk.

    If the winner is shipped, what comes after the certificate need not be simulated. So only the
    first replicate is played to the end, and another only if `HEADROOM` times as long as those
    before it took is not enough. The beginning is the same either way.
    """
    channels = design.problem(channel).channels
    arms = packed(channels)
    test = design.goal.certificate.test(channels, np.zeros(len(channels), dtype=bool))
    played: list[Played] = []
    for replicate in chunk:
        longest = max((one.certified for one in played), default=np.inf)
        enough = int(np.searchsorted(ends, HEADROOM * longest + design.lag)) + 1
        prefixes = [ends[:enough], ends] if design.goal.ships and enough < len(ends) else [ends]
        for prefix in prefixes:
            pulls, successes = play(replicate, prefix)
            row, winner = first_certified(arms, test, pulls, successes)
            certified = float(ends[row] + design.lag) if row >= 0 else np.inf
            if certified <= prefix[-1]:
                break
        if certified > ends[-1]:
            certified, winner = np.inf, -1
        if len(pulls) < len(ends):
            missing = np.repeat(pulls[-1:], len(ends) - len(pulls), axis=0)
            pulls = np.concatenate([pulls, missing])
        played.append(Played(pulls, certified, winner))
    return played


def pulls_at(pulls: Array, times: Array, time: float) -> Array:
    """Return each arm's pulls at a time between two batch ends, on a straight line."""
    return np.array([np.interp(time, times, column) for column in pulls.T])


def shipped(played: Played, times: Array) -> Array:
    """Return the pulls if the winner alone is shown from its certificate on.

    >>> played = Played(np.array([[1, 1], [2, 2], [5, 3]]), 3.0, 1)
    >>> shipped(played, np.array([2, 4, 8])).tolist()
    [[1.0, 1.0], [1.5, 2.5], [1.5, 6.5]]
    """
    if played.certified == np.inf:
        return played.pulls
    pulls = played.pulls.astype(float)
    after = times > played.certified
    pulls[after] = pulls_at(played.pulls, times, played.certified)
    pulls[after, played.winner] += times[after] - played.certified
    return pulls


@contextmanager
def design_simulator(replicates: int, seed: int, jobs: int | None) -> Iterator[DesignSimulator]:
    """Yield a simulator that works in `jobs` threads; the kernels release Python's lock."""
    workers = whole_number("jobs", os.cpu_count() if jobs is None else jobs, least=1)
    pool = ThreadPoolExecutor(workers)
    try:
        yield DesignSimulator(
            whole_number("replicates", replicates, least=100, most=10**5),
            whole_number("seed", seed, most=2**64 - 1),
            pool,
        )
    finally:
        pool.shutdown(cancel_futures=True)
