"""Decisions without a report: the one definition of pending, overdue and missing.

A decision is *pending* while its report may well be on its way: for its window and spread, and a
margin that depends on when clients send. After that it is *overdue*: it may still be answered. Once
its token has expired it is *missing*.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from whitelie.kernel.arms import Array
from whitelie.service.experiment import Experiment
from whitelie.service.moment import HOUR
from whitelie.service.store import Counts, Store

EVER = 2**40
"""Minutes that are more than any history has."""


class Unanswered(NamedTuple):
    """How many decisions of each arm have no report, by what may still come."""

    pending: Array
    overdue: Array
    missing: Array


def unanswered(
    *, issued: Array, answered: Array, closed_issued: Array, closed_answered: Array, overdue: Array
) -> Unanswered:
    """Return the decisions without a report, from those that have expired and those overdue.

    None is negative, and together they are all: answers to rolled-back decisions, or a server whose
    clock is behind, may make a part larger than the whole.
    """
    rest = np.maximum(issued - answered, 0)
    missing = np.clip(closed_issued - closed_answered, 0, rest)
    late = np.clip(overdue, 0, rest - missing)
    return Unanswered(np.asarray(rest - missing - late), np.asarray(late), np.asarray(missing))


class Ages(NamedTuple):
    """Counts of decisions by arm: those not yet overdue, and those that became so lately."""

    recent: Mapping[int, Counts]
    late: Mapping[int, Counts]


def ages_of(store: Store, number: int, experiment: Experiment, minute: int) -> Ages:
    """Return how old the decisions of an experiment are in a minute.

    Those that became overdue lately are of as many minutes as can be pending, and an hour at least.
    """
    before = experiment.overdue_before(minute)
    since = before - _lately(experiment)
    return Ages(by_arm(store, number, before, EVER), by_arm(store, number, since, before))


def likely_answers(ages: Ages, experiment: Experiment) -> float:
    """Return how many answers pending decisions may have, all arms together.

    It is as many as those had that stopped pending lately, for as many minutes as can be pending,
    and one more, lest what is new seems hopeless. How many of them were never answered does not
    matter: whoever collected tokens yesterday must not make those of today count for less. If none
    stopped pending lately, nothing is known, and any number is likely.
    """
    if not any(counts.issued for counts in ages.late.values()):
        return math.inf
    answered = sum(counts.answered for counts in ages.late.values())
    return answered * experiment.horizon / _lately(experiment) + 1


def _lately(experiment: Experiment) -> int:
    return max(experiment.horizon, HOUR)


def by_arm(store: Store, number: int, start: int, stop: int) -> Mapping[int, Counts]:
    """Return the counts of the decisions that were issued in the minutes start … stop − 1."""
    found = store.history(number, max(start, 0), stop, EVER)
    return {arm: counts for (_, arm), counts in found.items()}
