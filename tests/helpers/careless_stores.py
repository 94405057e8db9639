"""Stores with one mistake each: the negative control of the tests that ship for stores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings

from whitelie.service.store.contract import Batch, Decision, ReportedBit, Store
from whitelie.testing.store_model import Opener, play


class FindsMistakes:
    """Beside `StoreContract`: the random games find every mistake of the stores below."""

    @pytest.mark.parametrize("mistake", range(9))
    def test_the_model_finds_a_mistake(self, fresh: Callable[[], Opener], mistake: int) -> None:
        thorough = settings(
            max_examples=1000,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
        )
        with pytest.raises(AssertionError, match=r"^(counts|bits|answers|return|steps)"):
            play(lambda: careless(fresh(), MISTAKES[mistake]), thorough)


class Careless:
    """A correct store; each subclass makes one mistake."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class CarelessInOneBatch(Careless):
    """Counts two reports on one decision twice if they come together."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        seen: set[Decision] = set()
        reports = []
        for one, bit in batch.reports:
            reports.append(ReportedBit(one._replace(epoch=99) if one in seen else one, bit))
            seen.add(one)
        return self.store.commit(replace(batch, reports=reports))


class CarelessAcrossProcesses(Careless):
    """Keeps spent bits of its own, which no other process sees."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.own = 1000 * store.new_epoch()

    def commit(self, batch: Batch) -> Sequence[bool]:
        own = [
            ReportedBit(one._replace(epoch=one.epoch + self.own), bit) for one, bit in batch.reports
        ]
        return self.store.commit(replace(batch, reports=own))


class CarelessReturn(Careless):
    """Says of every report that its bit was free."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        self.store.commit(batch)
        return [True] * len(batch.reports)


class CarelessForgetting(Careless):
    """Drops blocks in the last minute in which a report may come."""

    def forget_spent(self, before: int) -> int:
        return self.store.forget_spent(before + 1)


class CarelessRollBack(Careless):
    """Takes `stop` for the last minute."""

    def roll_back(self, *arguments: Any) -> object:
        experiment, start, stop, *rest = arguments
        return self.store.roll_back(experiment, start, stop + 1, *rest)


class CarelessJoin(Careless):
    """Joins the bucket that is still growing."""

    def join_minutes(self, experiment: int, before: int, width: int) -> None:
        self.store.join_minutes(experiment, before + width - 1, width)


class CarelessSteps(Careless):
    """Publishes every report at once."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        return self.store.commit(replace(batch, steps=dict.fromkeys(batch.steps, 1)))


class CarelessDating(Careless):
    """Dates a step by the minute before."""

    def commit(self, batch: Batch) -> Sequence[bool]:
        return self.store.commit(replace(batch, minute=batch.minute - 1))


class CarelessRestating(Careless):
    """Publishes what a rollback leaves, however few reports it is."""

    def roll_back(self, *arguments: Any) -> object:
        changed = [*arguments[:-1], arguments[-1]._replace(step=1)]
        return self.store.roll_back(*changed)


MISTAKES: list[type[Careless]] = [
    CarelessInOneBatch,
    CarelessAcrossProcesses,
    CarelessReturn,
    CarelessForgetting,
    CarelessRollBack,
    CarelessJoin,
    CarelessSteps,
    CarelessDating,
    CarelessRestating,
]


def careless(opened: Opener, mistake: type[Careless]) -> Opener:
    return lambda: mistake(opened())
