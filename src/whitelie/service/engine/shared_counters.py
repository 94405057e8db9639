"""Counters of all workers of one command since its start, in memory that they share."""

import mmap

import numpy as np

COLUMNS = (
    "decisions",
    "accepted",
    "duplicate",
    "expired",
    "invalid",
    "commits",
    "failed_commits",
    "commit_seconds",
)


class SharedCounters:
    """Counters by name. Each process adds to its own `place`; all of them see the totals."""

    def __init__(self, workers: int = 1) -> None:
        memory = mmap.mmap(-1, workers * len(COLUMNS) * 8)  # processes that are forked share it
        self._sums = np.frombuffer(memory).reshape(workers, len(COLUMNS))
        self._index = {name: index for index, name in enumerate(COLUMNS)}
        self.place = 0

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter."""
        self._sums[self.place, self._index[name]] += amount

    def total(self, name: str) -> float:
        """Return the sum over all processes."""
        return float(self._sums[:, self._index[name]].sum())
