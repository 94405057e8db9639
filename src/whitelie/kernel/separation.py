"""When the confidence intervals of all arms have told one arm from the others."""

import math
from typing import NamedTuple

from whitelie.kernel.arms import Array
from whitelie.kernel.divergence import divergence
from whitelie.kernel.interval import feedback_interval, log_largest_probability
from whitelie.kernel.jit import jit
from whitelie.kernel.words import ZERO


class Looks(NamedTuple):
    """Counts of one replicate by time (row) and arm (column), under one increasing channel."""

    pulls: Array
    successes: Array
    at_zero: float
    at_one: float


@jit
def may_exclude(pulls: int, successes: int, rate: float, alpha: float) -> bool:
    """Whether the interval of these counts at level alpha ends before another arm's rate."""
    if pulls == 0:
        return False
    largest = log_largest_probability(float(pulls), float(successes))
    radius = -math.log(alpha) + math.log1p(pulls) + largest
    return pulls * divergence(successes / pulls, rate) > radius


@jit
def leader_of(pulls: Array, successes: Array) -> int:
    """Return the arm of the largest rate; one without feedback has none."""
    leader, largest = ZERO, -1.0
    for k in range(len(pulls)):
        if pulls[k] > 0 and successes[k] / pulls[k] > largest:
            leader, largest = k, successes[k] / pulls[k]
    return leader


@jit
def separates(looks: Looks, row: int, leader: int, alpha: float) -> bool:
    """Whether the leader's interval of mean rewards is above all others, each at level alpha.

    As `reward_interval` clips them to [0, 1]. Two intervals that end before each other's rates are
    needed for that, which is quick to see and seldom so: only then are the ends solved for.
    """
    pulls, successes = looks.pulls[row], looks.successes[row]
    if pulls[leader] == 0:
        return False
    own = successes[leader] / pulls[leader]
    for k in range(len(pulls)):
        if k == leader:
            continue
        if not may_exclude(pulls[k], successes[k], own, alpha):
            return False
        other = successes[k] / pulls[k]
        if not may_exclude(pulls[leader], successes[leader], other, alpha):
            return False
    lower = feedback_interval(pulls[leader], successes[leader], alpha)[0]
    for k in range(len(pulls)):
        if k == leader:
            continue
        upper = feedback_interval(pulls[k], successes[k], alpha)[1]
        if not (lower > max(upper, looks.at_zero) and upper < looks.at_one):
            return False
    return True


@jit
def first_separation(looks: Looks, alpha: float) -> tuple[int, int]:
    """Return the first row at which one arm is told from all others, and the arm; −1 for never."""
    for row in range(len(looks.pulls)):
        leader = leader_of(looks.pulls[row], looks.successes[row])
        if separates(looks, row, leader, alpha):
            return row, leader
    return -1, -1
