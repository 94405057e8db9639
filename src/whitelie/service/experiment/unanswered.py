"""Decisions without a report: the one definition of pending, overdue and missing.

A decision is *pending* while its report may well be on its way: for its window and spread, and a
margin that depends on when clients send. After that it is *overdue*: it may still be answered. Once
its token has expired it is *missing*. The learner, snapshots, and so /results, /metrics, the stream
and the shell, all use `unanswered`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.service.experiment.definition import Experiment
from whitelie.service.minutes import HOUR
from whitelie.service.store.contract import Counts, Store

ALL_MINUTES = 2**40
"""More minutes than any history has: as a limit it excludes none, as a width it joins all."""


class Unanswered(NamedTuple):
    """How many decisions of each arm have no report."""

    pending: Array
    overdue: Array
    missing: Array


def unanswered(
    *,
    issued: Array,
    answered: Array,
    expired_issued: Array,
    expired_answered: Array,
    overdue: Array,
) -> Unanswered:
    """Return how many decisions without a report are pending, overdue and missing.

    No number is negative, and their sum is issued − answered. This needs limits: answers to
    rolled-back decisions, or a server whose clock is behind, may make a part larger than the whole.
    """
    rest = np.maximum(issued - answered, 0)
    missing = np.clip(expired_issued - expired_answered, 0, rest)
    overdue = np.clip(overdue, 0, rest - missing)
    return Unanswered(
        np.asarray(rest - missing - overdue), np.asarray(overdue), np.asarray(missing)
    )


class Ages(NamedTuple):
    """Counts of decisions by arm: `recent` are not yet overdue, `late` became overdue lately."""

    recent: Mapping[int, Counts]
    late: Mapping[int, Counts]


def ages_of(store: Store, number: int, experiment: Experiment, minute: int) -> Ages:
    """Return how old the decisions of an experiment are in a minute.

    "Lately" is as many minutes as a decision can be pending, and at least an hour.
    """
    before = experiment.overdue_before(minute)
    since = before - _lately(experiment)
    return Ages(by_arm(store, number, before, ALL_MINUTES), by_arm(store, number, since, before))


class StoredCounts(NamedTuple):
    """All counts of an experiment as a store has them, by arm, and what became of the decisions.

    `expired` are the counts of decisions issued before the minute `expired_before`.
    """

    totals: Mapping[int, Counts]
    expired: Mapping[int, Counts]
    expired_before: int
    ages: Ages


def stored_counts(store: Store, number: int, experiment: Experiment, minute: int) -> StoredCounts:
    """Return the counts of an experiment in a minute."""
    before = experiment.expired_before(minute)
    totals, expired = store.totals(number), store.totals(number, before)
    # Ages are read last: decisions that other servers issue meanwhile are then not overdue.
    return StoredCounts(totals, expired, before, ages_of(store, number, experiment, minute))


def likely_answers(ages: Ages, experiment: Experiment) -> float:
    """Return how many answers pending decisions may have, all arms together.

    It is the number of answers to decisions that stopped pending lately, scaled to the minutes that
    can be pending, and one more, lest a new experiment seems hopeless. How many of those decisions
    were never answered does not matter: tokens that somebody collected yesterday must not make the
    decisions of today count for less. If none stopped pending lately, nothing is known, and any
    number is likely.
    """
    if not any(counts.issued for counts in ages.late.values()):
        return math.inf
    answered = sum(counts.answered for counts in ages.late.values())
    return answered * experiment.horizon / _lately(experiment) + 1


def _lately(experiment: Experiment) -> int:
    return max(experiment.horizon, HOUR)


def by_arm(store: Store, number: int, start: int, stop: int) -> Mapping[int, Counts]:
    """Return the counts of the decisions that were issued in the minutes start … stop − 1."""
    history = store.history(number, max(start, 0), stop, ALL_MINUTES)
    return {arm: counts for (_, arm), counts in history.items()}
