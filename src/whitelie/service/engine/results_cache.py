"""Results of experiments at work: what many want to see at once is computed once.

Admins see every report at once, all others see them in steps.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from whitelie.service.engine import Engine
from whitelie.service.learner import Learner
from whitelie.service.results import Results
from whitelie.service.standing import recent, results_now, standing_of
from whitelie.service.store import Step

FRESH = 1.0
"""Seconds for which those who watch are content with the same results."""


@dataclass
class Seen:
    """The latest results of an experiment, when they were computed, and from which state."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    results: Results | None = None
    state: tuple[object, ...] = ()
    computed: float = 0.0


_LATEST: WeakKeyDictionary[Learner, dict[bool, Seen]] = WeakKeyDictionary()
"""By experiment, and whether they are an admin's."""


def _seen(learner: Learner, is_admin: bool) -> Seen:
    return _LATEST.setdefault(learner, {}).setdefault(is_admin, Seen())


async def latest_results(engine: Engine, learner: Learner, *, is_admin: bool) -> Results:
    """Return what the committed reports say now."""
    seen = _seen(learner, is_admin)
    async with seen.lock:
        if engine.store.is_shared:
            await engine.recount([learner])
        shown = None
        if not is_admin:
            shown = await asyncio.to_thread(engine.store.shown, learner.number)
        state = _state(engine, learner, shown)
        if seen.results is None or seen.state != state:
            seen.results = await _computed(engine, learner, shown)
            seen.state, seen.computed = state, time.monotonic()
        return seen.results


async def watched_results(engine: Engine, learner: Learner, *, is_admin: bool) -> Results:
    """Return what the committed reports said at most a second ago."""
    seen = _seen(learner, is_admin)
    if seen.results is not None and time.monotonic() < seen.computed + FRESH:
        return seen.results
    return await latest_results(engine, learner, is_admin=is_admin)


def _state(
    engine: Engine, learner: Learner, shown: Mapping[int, Step] | None
) -> tuple[object, ...]:
    """Return what results depend on.

    For readers it is only what they see: how long an answer takes would tell them of anything else.
    """
    seen = engine.minute, engine.clock.is_trusted, learner.saved, learner.issued.tolist()
    if shown is not None:
        return *seen, shown
    totals = int(learner.answered.sum()), int(learner.overdue.sum())
    return *seen, learner.closed_before, learner.restarts, *totals


async def _computed(engine: Engine, learner: Learner, shown: Mapping[int, Step] | None) -> Results:
    lately = await asyncio.to_thread(recent, engine.store, learner.number, engine.minute)
    standing, is_trusted = standing_of(learner, lately), engine.clock.is_trusted
    return await asyncio.to_thread(
        results_now, standing, learner, shown, is_clock_trusted=is_trusted
    )
