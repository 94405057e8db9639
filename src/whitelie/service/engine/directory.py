"""The directory: the experiments and keys of a store, in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from whitelie.service.engine.keys import Keyring
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.writer import WRITE_TIMEOUT_SECONDS
from whitelie.service.refusals import Refusal, unavailable
from whitelie.service.store.contract import Decision, Store, StoredExperiment, Unavailable


class ExperimentDirectory:
    """Experiments and keys, read anew whenever anybody has changed those of the store.

    `generation` is the store's generation that was read; `steps` has the step of each experiment.
    """

    def __init__(self, store: Store) -> None:
        self.keyring = Keyring()
        self._store = store
        self._by_slug: dict[str, Learner] = {}
        self._by_number: dict[int, Learner] = {}
        self.generation: int | None = None
        self.steps: dict[int, int] = {}
        self._refreshing = asyncio.Lock()
        self._requested = 0
        self._completed = 0

    def __iter__(self) -> Iterator[Learner]:
        return iter(tuple(self._by_number.values()))

    def __contains__(self, learner: Learner) -> bool:
        return self._by_number.get(learner.number) is learner

    def find(self, slug: str) -> Learner:
        """Return the experiment of this id, or refuse the request."""
        learner = self._by_slug.get(slug)
        if learner is None:
            raise _unknown()
        return learner

    def has(self, slug: str) -> bool:
        """Whether there is an experiment of this id."""
        return slug in self._by_slug

    async def find_or_refresh(self, slug: str) -> Learner:
        """Return the experiment of this id, even if another server has only now created it.

        One that another server may have resumed is read anew. One that is shipped is not: it is
        decided about without the store.
        """
        learner = self._by_slug.get(slug)
        if learner is None or learner.experiment.status in ("paused", "stopped"):
            await self.refresh_or_refuse()
        return self.find(slug)

    def check(self, learner: Learner) -> None:
        """Refuse a request for an experiment that was deleted."""
        if learner not in self:
            raise _unknown()

    def knows(self, decision: Decision) -> bool:
        """Whether the experiment and the arm of a decision are known here."""
        learner = self._by_number.get(decision.experiment)
        return learner is not None and decision.arm < len(learner.issued)

    def numbered(self, number: int) -> Learner | None:
        """Return the experiment of this number, if there is one."""
        return self._by_number.get(number)

    async def refresh(self) -> None:
        """Read experiments and keys anew, if anybody has changed them.

        Of several tasks that wait for this, one reads for all.
        """
        self._requested += 1
        mine = self._requested
        async with self._refreshing:
            if self._completed >= mine:
                return
            latest = self._requested
            await self._read()
            self._completed = latest

    async def _read(self) -> None:
        generation = await asyncio.to_thread(self._store.generation)
        if generation == self.generation:
            return
        saved = await asyncio.to_thread(self._store.experiments)
        self.keyring.replace(await asyncio.to_thread(self._store.keys))
        for each in saved:
            await self._define(each)
        numbers = {each.number for each in saved}
        for learner in self:
            if learner.number not in numbers:
                del self._by_number[learner.number]
                if self._by_slug[learner.slug] is learner:  # or there is a new one of this id
                    del self._by_slug[learner.slug]
        self.generation = generation
        self.steps = {learner.number: learner.experiment.step for learner in self}

    async def refresh_if_possible(self) -> None:
        """Refresh now; if the store fails meanwhile, maintenance does it later."""
        with suppress(Unavailable):
            await self.refresh()

    async def refresh_or_refuse(self) -> None:
        """Refresh now, or refuse the request whose answer depends on it."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await self.refresh()
        except (Unavailable, TimeoutError):
            raise unavailable() from None

    async def _define(self, saved: StoredExperiment) -> None:
        learner = self._by_number.get(saved.number)
        if learner is None:
            totals = await asyncio.to_thread(self._store.totals, saved.number)
            learner = Learner(saved, totals)
            self._by_slug[saved.slug] = self._by_number[saved.number] = learner
        elif learner.saved != saved:
            learner.define(saved)


def _unknown() -> Refusal:
    return Refusal("unknown_experiment", "there is no experiment of this id", "id")
