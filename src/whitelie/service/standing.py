"""Where an experiment stands: from its counts to its results."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from whitelie.service.learner import Learner
from whitelie.service.moment import time_of
from whitelie.service.results import Results, Standing, results_of
from whitelie.service.store import Counts, Saved, Step, Store

RECENT = 60
"""Minutes over which shares of traffic are taken."""

EVER = 2**40


def stored_results(store: Store, saved: Saved, minute: int) -> Results:
    """Return what the reports in a store say."""
    learner = Learner(saved, store.totals(saved.number))
    before = learner.experiment.expired_before(minute)
    learner.close(store.totals(saved.number, before), before)
    return results_now(standing_of(learner, recent(store, saved.number, minute)), learner)


def recent(store: Store, number: int, minute: int) -> Mapping[int, Counts]:
    """Return the counts of recent decisions, by arm."""
    found = store.history(number, minute - RECENT, minute + 1, EVER)
    return {arm: counts for (_, arm), counts in found.items()}


def standing_of(learner: Learner, recent: Mapping[int, Counts]) -> Standing:
    """Return a copy of all counts, which do not change any more."""
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


def as_shown(standing: Standing, learner: Learner, shown: Mapping[int, Step]) -> Standing:
    """Return the counts that readers see: reports in steps, missing ones rounded down likewise.

    Decisions are as they are: that one was issued says nothing about an answer.
    """
    step = learner.experiment.step
    sums = [shown.get(arm, Step()) for arm in range(len(standing.keys))]
    return replace(
        standing,
        answered=np.array([each.answered for each in sums]),
        ones=np.array([each.ones for each in sums]),
        closed_answered=standing.closed_issued - standing.missing // step * step,
        step=step,
    )


def shown_results(standing: Standing, learner: Learner, shown: Mapping[int, Step]) -> Results:
    """Return what readers see of the counts of an experiment."""
    last = max((step.minute for step in shown.values()), default=None)
    return _results(as_shown(standing, learner, shown), learner, last)


def results_now(standing: Standing, learner: Learner) -> Results:
    """Return what the counts of an experiment say."""
    return _results(standing, learner, learner.last_report)


def _results(standing: Standing, learner: Learner, last: int | None) -> Results:
    experiment = learner.experiment
    return results_of(
        standing,
        experiment=learner.slug,
        name=experiment.name,
        status=experiment.status,
        last_report=None if last is None else time_of(last),
    )
