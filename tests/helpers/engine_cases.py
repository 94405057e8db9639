"""An engine with one experiment, a store that fails, and what both have counted."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.in_process_service import SECRET, START, Served
from whitelie.service import wire
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.requests import Issued
from whitelie.service.store.contract import Batch, Counts, Unavailable
from whitelie.service.store.sqlite.store import SQLiteStore

MINUTE = 60


class FailingStore:
    """The commits of a store, which fail or take long when they are told to."""

    def __init__(self, store: SQLiteStore) -> None:
        self.batches: list[Batch] = []
        self.fails = False
        self.seconds = 0.0
        self._commit, self._probe = store.commit, store.probe
        self._fold, self._forget = store.join_minutes, store.forget_spent
        store.commit = self.commit  # type: ignore[method-assign]  # the store is made to fail
        store.probe = self.probe  # type: ignore[method-assign]  # the store is made to fail
        store.join_minutes = self.join_minutes  # type: ignore[method-assign]  # the store is made to fail
        store.forget_spent = self.forget_spent  # type: ignore[method-assign]  # the store is made to fail

    def commit(self, batch: Batch) -> Sequence[bool]:
        self.batches.append(batch)
        time.sleep(self.seconds)
        self._check()
        return self._commit(batch)

    def probe(self) -> None:
        self._check()
        self._probe()

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        self._check()
        self._fold(experiment, before, width)

    def forget_spent(self, before: int) -> int:
        self._check()
        return self._forget(before)

    def _check(self) -> None:
        if self.fails:
            raise Unavailable("the disk is full")


@dataclass
class Secrets:
    """A file of secrets, which cannot be read while it is broken."""

    broken: bool = False

    def __call__(self) -> list[bytes]:
        if self.broken:
            raise OSError("the file of secrets cannot be read")
        return [SECRET]


def reports(issued: Issued, bit: int = 1) -> list[wire.Report]:
    return [wire.Report(token=token, bit=1 if bit else 0) for _, token in issued]


async def button(served: Served) -> tuple[Engine, Learner]:
    created = await served.create()
    return served.engine, served.engine.directory.find(created["id"])


def counted(served: Served, learner: Learner) -> Mapping[int, Counts]:
    """Return what the store has counted, after checking that memory says the same."""
    totals = served.store.totals(learner.number)
    for arm in range(len(learner.issued)):
        remembered = learner.issued[arm], learner.answered[arm], learner.ones[arm]
        assert tuple(map(int, remembered)) == totals.get(arm, Counts())
    assert not learner.in_flight.any()
    return totals


def span() -> tuple[int, int]:
    return int(START // 60), int(START // 60) + 1
