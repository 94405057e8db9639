"""Results of an experiment at work; what many watch is computed once."""

import asyncio
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.service.engine import Engine
from whitelie.service.learner import Learner
from whitelie.service.results import Results, Standing, results_of

RECENT = 60
"""Minutes over which shares of traffic are taken."""

EVER = 2**40


@dataclass(frozen=True)
class Seen:
    """Results, and the state of affairs that they describe."""

    state: tuple[object, ...]
    results: Results


_LATEST: WeakKeyDictionary[Learner, Seen] = WeakKeyDictionary()


async def latest_results(engine: Engine, learner: Learner) -> Results:
    """Return what the committed reports say now."""
    experiment = learner.experiment
    totals = int(learner.issued.sum()), int(learner.answered.sum())
    state = engine.minute, learner.saved, *totals
    seen = _LATEST.get(learner)
    if seen is None or seen.state != state:
        counts = {
            name: getattr(learner, name).copy()
            for name in ("issued", "answered", "ones", "closed_issued", "closed_answered")
        }
        standing = Standing(
            keys=tuple(experiment.positions),
            channels=experiment.channels,
            retired=~learner.shown,
            recent=await _recent(engine, learner),
            **counts,
        )
        about = {"experiment": learner.slug, "name": experiment.name, "status": experiment.status}
        found = await asyncio.to_thread(results_of, standing, **about)
        seen = _LATEST[learner] = Seen(state, found)
    return seen.results


async def _recent(engine: Engine, learner: Learner) -> Array:
    now = engine.minute
    found = await asyncio.to_thread(
        engine.store.history, learner.number, now - RECENT, now + 1, EVER
    )
    issued = np.zeros(len(learner.issued), dtype=np.int64)
    for (_, arm), counts in found.items():
        issued[arm] += counts.issued
    return issued
