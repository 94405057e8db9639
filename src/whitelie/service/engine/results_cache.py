"""The results cache: results that many ask for at once are computed once.

Admins see every report at once; readers see reports in steps, so they have results of their own.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from whitelie.service.engine.certification import certify_if_due
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import recount
from whitelie.service.experiment.results import Results, results_of
from whitelie.service.experiment.snapshot import recent_counts
from whitelie.service.store.contract import Step

CACHE_SECONDS = 1.0
"""For how long streams are given the same results."""


@dataclass
class CachedResults:
    """The latest results of an experiment, when they were computed, and from which state."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    results: Results | None = None
    state: tuple[object, ...] = ()
    computed: float = 0.0


_CACHE: WeakKeyDictionary[Learner, dict[bool, CachedResults]] = WeakKeyDictionary()
"""By experiment, and whether they are an admin's."""


def _cached(learner: Learner, is_admin: bool) -> CachedResults:
    return _CACHE.setdefault(learner, {}).setdefault(is_admin, CachedResults())


async def latest_results(engine: Engine, learner: Learner, *, is_admin: bool) -> Results:
    """Return what the committed reports say now."""
    cached = _cached(learner, is_admin)
    async with cached.lock:
        if engine.store.is_shared:
            await recount(engine, [learner])
        if is_admin:
            await certify_if_due(engine, learner)
        shown = None
        if not is_admin:
            shown = await asyncio.to_thread(engine.store.published, learner.number)
        state = _state(engine, learner, shown)
        if cached.results is None or cached.state != state:
            cached.results = await _compute(engine, learner, shown)
            cached.state, cached.computed = state, time.monotonic()
        return cached.results


async def cached_results(engine: Engine, learner: Learner, *, is_admin: bool) -> Results:
    """Return what the committed reports said at most a second ago."""
    cached = _cached(learner, is_admin)
    if cached.results is not None and time.monotonic() < cached.computed + CACHE_SECONDS:
        return cached.results
    return await latest_results(engine, learner, is_admin=is_admin)


def _state(
    engine: Engine, learner: Learner, shown: Mapping[int, Step] | None
) -> tuple[object, ...]:
    """Return what results depend on.

    For readers it is only what they see: how long an answer takes would tell them of anything else.
    """
    seen = engine.clock.minute, engine.clock.is_trusted, learner.saved, learner.issued.tolist()
    if shown is not None:
        return *seen, shown
    reports = learner.answered.tolist(), learner.ones.tolist()
    late = learner.overdue.tolist(), learner.expired_before, learner.restarts
    return *seen, *reports, *late


async def _compute(engine: Engine, learner: Learner, shown: Mapping[int, Step] | None) -> Results:
    minute = engine.clock.minute
    recent = await asyncio.to_thread(recent_counts, engine.store, learner.number, minute)
    snapshot, is_trusted = learner.snapshot(recent), engine.clock.is_trusted
    if shown is not None:
        snapshot = snapshot.for_readers(shown)

    def computed() -> Results:
        complete = snapshot.with_evidence(engine.store, learner.number, minute)
        return results_of(complete, is_clock_trusted=is_trusted)

    return await asyncio.to_thread(computed)
