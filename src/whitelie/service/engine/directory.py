"""The roster: experiments at work and keys that are good, as the store has them."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from whitelie.service.keys import Keyring
from whitelie.service.learner import Learner
from whitelie.service.refusal import Refusal, unavailable
from whitelie.service.store import Saved, Store, Unavailable
from whitelie.service.token import Decision
from whitelie.service.writer import STUCK


class Roster:
    """Experiments and keys in memory, read anew when anybody has changed those of the store."""

    def __init__(self, store: Store) -> None:
        self.keyring = Keyring()
        self._store = store
        self._by_slug: dict[str, Learner] = {}
        self._by_number: dict[int, Learner] = {}
        self.generation: int | None = None
        self.steps: dict[int, int] = {}
        self._refreshing = asyncio.Lock()
        self._asked = 0
        self._answered = 0

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

    async def seek(self, slug: str) -> Learner:
        """Return the experiment of this id, also if another server has just let it run."""
        learner = self._by_slug.get(slug)
        if learner is None or learner.experiment.status != "running":
            await self.refresh_or_refuse()
        return self.find(slug)

    def check(self, learner: Learner) -> None:
        """Refuse what is asked of an experiment that is gone."""
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

        Of those who wait for each other, one reads for all.
        """
        self._asked += 1
        mine = self._asked
        async with self._refreshing:
            if self._answered >= mine:
                return
            reading = self._asked
            await self._read()
            self._answered = reading

    async def _read(self) -> None:
        generation = await asyncio.to_thread(self._store.generation)
        if generation == self.generation:
            return
        saved = await asyncio.to_thread(self._store.experiments)
        self.keyring.replace(await asyncio.to_thread(self._store.keys))
        for each in saved:
            await self._take(each)
        there = {each.number for each in saved}
        for learner in self:
            if learner.number not in there:
                del self._by_number[learner.number]
                if self._by_slug[learner.slug] is learner:  # or there is a new one of this id
                    del self._by_slug[learner.slug]
        self.generation = generation
        self.steps = {learner.number: learner.experiment.step for learner in self}

    async def refresh_if_possible(self) -> None:
        """Read anew now what was changed; if the store fails meanwhile, upkeep does so later."""
        with suppress(Unavailable):
            await self.refresh()

    async def refresh_or_refuse(self) -> None:
        """Read anew now what was changed, because an answer depends on it."""
        try:
            async with asyncio.timeout(STUCK):
                await self.refresh()
        except (Unavailable, TimeoutError):
            raise unavailable() from None

    async def _take(self, saved: Saved) -> None:
        learner = self._by_number.get(saved.number)
        if learner is None:
            totals = await asyncio.to_thread(self._store.totals, saved.number)
            learner = Learner(saved, totals)
            self._by_slug[saved.slug] = self._by_number[saved.number] = learner
        elif learner.saved != saved:
            learner.define(saved)


def _unknown() -> Refusal:
    return Refusal("unknown_experiment", "there is no experiment of this id", "id")
