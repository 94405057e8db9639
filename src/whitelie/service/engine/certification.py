"""Who notices that an arm is known to be best, and notes it in the definition.

A look is at the counts of all arms at one time: one read of the store, between two commits. So all
servers of a store look along one order of reports, and the probability that any of them is ever
wrong is that of the certificate. Steps, which readers see, are not of one time; and the counts in a
server's memory are in an order of their own. Nobody certifies from these.
"""

import asyncio
from contextlib import suppress

from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import Experiment
from whitelie.service.experiment.results import alarms, doubt
from whitelie.service.experiment.snapshot import Snapshot, reports_by_arm
from whitelie.service.log import event
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Store


async def certify_where_due(engine: Engine) -> None:
    """Look at every experiment on which a step of reports has come since the last look."""
    for learner in engine.directory:
        await certify_if_due(engine, learner, least=learner.experiment.step)


async def certify_if_due(engine: Engine, learner: Learner, least: int = 1) -> None:
    """Note the arm that is known to be best, if at least so many reports came since the last look.

    If that fails, if somebody changes the experiment meanwhile, or if nothing may be said now, the
    next look is due at once.
    """
    experiment, saved = learner.experiment, learner.saved
    if experiment.certified is not None or not engine.clock.is_trusted:
        return
    if not learner.is_look_due(least):
        return
    learner.note_look()
    minute, snapshot = engine.clock.minute, learner.snapshot({})
    is_done = False
    try:
        if experiment.lacks_beginning:
            changed = experiment.with_new_beginning(minute)
        elif doubt(alarms(snapshot)) is not None:
            return
        else:
            winner = await asyncio.to_thread(winner_of, engine.store, saved.number, snapshot)
            if winner is None:
                is_done = True
                return
            changed = certified(experiment, winner, minute, ships=engine.auto_ships)
        with suppress(Refusal):
            await engine.pipeline.write(changes.change, engine.store, saved, changed)
            is_done = True
            log_certified(saved.slug, experiment, changed, auto_ships=engine.auto_ships)
    finally:
        if not is_done:
            learner.require_look()
    await engine.directory.refresh_if_possible()


def winner_of(store: Store, number: int, snapshot: Snapshot) -> str | None:
    """Return the arm that is known to be best by the counts in the store."""
    counts = snapshot.read_since_beginning(store, number)
    if counts is None:
        totals = store.totals(number)
        counts = reports_by_arm(totals, len(snapshot.keys))
    winner = snapshot.reading(counts).conclude().winner
    return None if winner is None else str(winner)


def certified(experiment: Experiment, arm: str, minute: int, *, ships: bool) -> Experiment:
    """Return the experiment with a certified arm, shipped if it was created so and is running."""
    noted = experiment.with_certificate(arm, minute)
    if ships and experiment.then == "ship" and experiment.status == "running":
        return noted.with_shipped(arm, minute)
    return noted


def log_certified(slug: str, before: Experiment, after: Experiment, *, auto_ships: bool) -> None:
    """Log that an arm was certified, if one was, and what came of it."""
    if after.certified is None:
        return
    known = {"id": slug, "arm": after.certified.arm}
    terms = {"delta": after.delta, **({"tolerance": after.tolerance} if after.tolerance else {})}
    event("certified", **known, **terms)
    if after.shipped != before.shipped:
        event("shipped", **known, by="certificate")
    elif after.then == "ship":
        event("not_shipped", **known, reason=after.status if auto_ships else "no-auto-ship")
