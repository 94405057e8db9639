"""Results of an experiment at work, or of one in a store."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from whitelie.service import wire
from whitelie.service.engine import Engine
from whitelie.service.experiment import Rules
from whitelie.service.learner import Learner
from whitelie.service.results import Results, Standing, results_of
from whitelie.service.store import Counts, Saved, Store

RECENT = 60
"""Minutes over which shares of traffic are taken."""

EVER = 2**40


class Seen(NamedTuple):
    """Results, and the state of affairs that they describe."""

    state: tuple[object, ...]
    results: Results


_LATEST: WeakKeyDictionary[Learner, Seen] = WeakKeyDictionary()


async def latest_results(engine: Engine, learner: Learner) -> Results:
    """Return what the committed reports say now; what many watch is computed once."""
    totals = int(learner.issued.sum()), int(learner.answered.sum())
    state = engine.minute, learner.saved, learner.closed_before, *totals
    seen = _LATEST.get(learner)
    if seen is None or seen.state != state:
        recent = await asyncio.to_thread(_recent, engine.store, learner.number, engine.minute)
        found = await asyncio.to_thread(_results, learner, _standing(learner, recent))
        seen = _LATEST[learner] = Seen(state, found)
    return seen.results


def warm_up() -> None:
    """Compile, or load from the cache, all that requests need, before the first one comes."""
    arms = [wire.NewArm(key="a"), wire.NewArm(key="b")]
    for policy in ("TS-CF", "kl-UCB-CF"):
        asked = wire.NewExperiment(
            name="-", arms=arms, epsilon=1.0, window=0, spread=0, policy=policy
        )
        definition = msgspec.json.encode(Rules().create(asked, 0, None)).decode()
        learner = Learner(Saved(0, "-", definition), {})
        learner.choose(1)
        _results(learner, _standing(learner, {}))


def stored_results(store: Store, saved: Saved, minute: int) -> Results:
    """Return what the reports in a store say."""
    learner = Learner(saved, store.totals(saved.number))
    before = learner.experiment.expired_before(minute)
    learner.close(store.totals(saved.number, before), before)
    return _results(learner, _standing(learner, _recent(store, saved.number, minute)))


def _recent(store: Store, number: int, minute: int) -> Mapping[int, Counts]:
    found = store.history(number, minute - RECENT, minute + 1, EVER)
    return {arm: counts for (_, arm), counts in found.items()}


def _standing(learner: Learner, recent: Mapping[int, Counts]) -> Standing:
    issued = [recent.get(arm, Counts()).issued for arm in range(len(learner.issued))]
    return Standing(
        keys=tuple(learner.experiment.positions),
        channels=learner.experiment.channels,
        retired=~learner.shown,
        issued=learner.issued.copy(),
        answered=learner.answered.copy(),
        ones=learner.ones.copy(),
        closed_issued=learner.closed_issued.copy(),
        closed_answered=learner.closed_answered.copy(),
        recent=np.array(issued),
    )


def _results(learner: Learner, standing: Standing) -> Results:
    experiment = learner.experiment
    return results_of(
        standing, experiment=learner.slug, name=experiment.name, status=experiment.status
    )
