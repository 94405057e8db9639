"""A design simulated in batches, and what the runs are asked: lost, known, told apart, wrong."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from whitelie.channel import RandomizedResponse
from whitelie.errors import whole_number
from whitelie.estimate import ALPHA
from whitelie.kernel.arms import Array
from whitelie.kernel.batch import run_batches
from whitelie.kernel.game import Game, game_of
from whitelie.kernel.separation import Looks, first_separation
from whitelie.planning.design import Design

SHARE = 0.01
"""A batch is this share of the reports before it."""

RECENT = 10
"""The recent reports are the last 1/RECENT of all."""

KNOWN = 0.9
"""An arm is settled on when its share of the recent reports is above this."""

CHUNK = 20
"""Replicates that one task runs."""


def batch_ends(horizon: int, arms: int, share: float = SHARE) -> Array:
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
    before = np.searchsorted(times, times * (RECENT - 1) // RECENT, side="right")
    padded = np.concatenate([np.zeros_like(pulls[..., :1, :]), pulls], axis=-2)
    return np.asarray(pulls - padded[..., before, :])


def best_shares(pulls: Array, times: Array, best: tuple[int, ...]) -> Array:
    """Return the share of the recent reports that the best arms had, at every time."""
    recent = recent_pulls(pulls, times)
    return np.asarray(recent[..., list(best)].sum(axis=-1) / recent.sum(axis=-1))


@dataclass(frozen=True)
class Runs:
    """What became of every replicate (row).

    Time counts the answers that are reported on, when they are asked for. By time (column): the
    regret, and whether the best arm had more than 90 % of the recent ones. Then: when the intervals
    told one arm from all others, the last report needed having arrived, infinity for never, and
    whether the arm with most of the last recent reports was a wrong one.
    """

    times: Array
    regret: Array
    known: Array
    separated: Array
    wrong: Array


@dataclass(frozen=True)
class Laboratory:
    """Where designs are simulated: how many replicates, from which seed, by which workers."""

    replicates: int
    seed: int
    pool: Executor

    def fresh(self, number: int) -> Self:
        """Return a laboratory with random numbers of its own, one for each number."""
        return replace(self, seed=(self.seed + 1 + number) % 2**64)

    def run(
        self, design: Design, channel: RandomizedResponse, *, reports: int | None = None
    ) -> Runs:
        """Return the runs of a year, or of its batches that end within so many reports.

        Replicate r depends on the design, the channel, the seed and r alone.
        """
        ends = batch_ends(design.horizon, len(design.rates))
        if reports is not None:
            ends = ends[: max(1, int(np.searchsorted(ends, reports, side="right")))]
        game = game_of(design.policy, design.problem(channel))
        looks = sorted((channel.mean_feedback(0.0), channel.mean_feedback(1.0)))
        if not channel.increasing:
            looks = [1 - looks[1], 1 - looks[0]]
        chunks = [
            range(start, min(start + CHUNK, self.replicates))
            for start in range(0, self.replicates, CHUNK)
        ]
        tasks = [
            self.pool.submit(_run_chunk, game, design, self.seed, ends, (chunk, looks, channel))
            for chunk in chunks
        ]
        parts = [task.result() for task in tasks]
        return Runs(ends, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _run_chunk(
    game: Game,
    design: Design,
    seed: int,
    ends: Array,
    what: tuple[range, list[float], RandomizedResponse],
) -> tuple[Array, ...]:
    chunk, (at_zero, at_one), channel = what
    gaps = np.array(design.problem(channel).gaps)
    key, lag = np.uint64(seed), design.lag
    histories = [run_batches(game, key, replicate, ends, lag) for replicate in chunk]
    pulls = np.stack([history[0] for history in histories])
    separated = np.full(len(chunk), np.inf)
    for i, (pulled, ones) in enumerate(histories):
        successes = ones if channel.increasing else pulled - ones
        looks = Looks(pulled, successes, at_zero, at_one)
        row, _ = first_separation(looks, ALPHA / len(gaps))
        if row >= 0:
            separated[i] = ends[row] + lag
    favourite = recent_pulls(pulls, ends)[:, -1].argmax(axis=1)
    return (
        pulls @ gaps,
        best_shares(pulls, ends, design.best) > KNOWN,
        separated,
        gaps[favourite] > 0,
    )


@contextmanager
def laboratory(replicates: int, seed: int, jobs: int | None) -> Iterator[Laboratory]:
    """A laboratory of `jobs` threads, all cores unless given: the kernels release the lock."""
    workers = whole_number("jobs", os.cpu_count() if jobs is None else jobs, least=1)
    pool = ThreadPoolExecutor(workers)
    try:
        yield Laboratory(
            whole_number("replicates", replicates, least=100, most=10**5),
            whole_number("seed", seed, most=2**64 - 1),
            pool,
        )
    finally:
        pool.shutdown(cancel_futures=True)
