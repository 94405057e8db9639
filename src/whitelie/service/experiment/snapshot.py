"""Where an experiment stands: from its counts to its results."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from whitelie.service.experiment import Experiment
from whitelie.service.learner import Learner
from whitelie.service.moment import DAY, HOUR, time_of
from whitelie.service.results import Arrival, Results, Standing, results_of
from whitelie.service.store import Counts, Saved, Step, Store
from whitelie.service.unanswered import ages_of, by_arm

RECENT = 60
"""Minutes over which shares of traffic are taken."""

AGES = (HOUR, HOUR), (DAY, DAY), (7 * DAY, DAY)
"""How long ago decisions were made, and over how many minutes, whose answers tell the delay."""


def stored_results(store: Store, saved: Saved, minute: int) -> Results:
    """Return what the reports in a store say."""
    learner = Learner(saved, store.totals(saved.number))
    before = learner.experiment.expired_before(minute)
    learner.close(store.totals(saved.number, before), before)
    learner.age(ages_of(store, saved.number, learner.experiment, minute))
    return results_now(standing_of(learner, recent(store, saved.number, minute)), learner)


def recent(store: Store, number: int, minute: int) -> Mapping[int, Counts]:
    """Return the counts of recent decisions, by arm."""
    return by_arm(store, number, minute - RECENT, minute + 1)


def arrival_of(store: Store, number: int, experiment: Experiment, minute: int) -> list[Arrival]:
    """Return how many decisions of some ages were answered; joined minutes have no age."""
    found = []
    for age, width in AGES:
        stop = minute - age
        if stop - width < experiment.joined_before(minute):
            continue
        counts = by_arm(store, number, stop - width, stop).values()
        issued = sum(each.issued for each in counts)
        answered = sum(each.answered for each in counts)
        found.append(Arrival(60 * age, 60 * (age + width), issued, answered))
    return found


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
        overdue=learner.overdue.copy(),
        recent=np.array(issued),
    )


def as_shown(standing: Standing, shown: Mapping[int, Step]) -> Standing:
    """Return the counts that readers see: the reports that were shown, and nothing of lateness.

    How many decisions are overdue or missing moves with single reports, however it is rounded.
    Decisions are as they are: that one was issued says nothing about an answer.
    """
    sums = [shown.get(arm, Step()) for arm in range(len(standing.keys))]
    unknown = np.zeros_like(standing.issued)
    return replace(
        standing,
        answered=np.array([each.answered for each in sums]),
        ones=np.array([each.ones for each in sums]),
        closed_issued=unknown,
        closed_answered=unknown,
        overdue=unknown,
    )


def results_now(
    standing: Standing,
    learner: Learner,
    shown: Mapping[int, Step] | None = None,
    *,
    is_clock_trusted: bool = True,
) -> Results:
    """Return what the counts of an experiment say: to readers, where it is given what is shown."""
    experiment, last = learner.experiment, learner.last_report
    if shown is not None:
        standing = as_shown(standing, shown)
        last = max((step.minute for step in shown.values()), default=None)
    found = results_of(
        standing,
        experiment=learner.slug,
        name=experiment.name,
        status=experiment.status,
        last_report=None if last is None else time_of(last),
        is_clock_trusted=is_clock_trusted,
    )
    if shown is None:
        return found
    arms = [msgspec.structs.replace(arm, overdue=None, missing=None) for arm in found.arms]
    return msgspec.structs.replace(found, arms=arms)
