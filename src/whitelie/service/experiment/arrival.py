"""How late reports come: of the decisions of some ages, how many have been answered by now."""

import msgspec

from whitelie.service.experiment.definition import Experiment
from whitelie.service.experiment.unanswered import by_arm
from whitelie.service.minutes import DAY, HOUR
from whitelie.service.store.contract import Store

ARRIVAL_AGES = (HOUR, HOUR), (DAY, DAY), (7 * DAY, DAY)
"""How many minutes ago decisions were issued, and in a span of how many minutes."""


class Arrival(msgspec.Struct, frozen=True, rename={"start": "from", "stop": "to"}):
    """Of the decisions issued `from` … `to` seconds ago, how many have been answered by now."""

    start: int
    stop: int
    issued: int
    answered: int


def arrival_of(store: Store, number: int, experiment: Experiment, minute: int) -> list[Arrival]:
    """Return how many decisions of some ages were answered; joined minutes have no age."""
    arrival = []
    for age, width in ARRIVAL_AGES:
        stop = minute - age
        if stop - width < experiment.joined_before(minute):
            continue
        counts = by_arm(store, number, stop - width, stop).values()
        issued = sum(each.issued for each in counts)
        answered = sum(each.answered for each in counts)
        arrival.append(Arrival(60 * age, 60 * (age + width), issued, answered))
    return arrival
