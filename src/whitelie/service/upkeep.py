"""Upkeep: what time brings, done beside the requests."""

import asyncio

from whitelie.service.engine import Engine
from whitelie.service.experiment import Experiment
from whitelie.service.learner import Learner
from whitelie.service.log import failure
from whitelie.service.store import Unavailable

HOUR = 60
DAY = 24 * HOUR


async def keep_up(engine: Engine) -> None:
    """Look for changes every second, let tokens expire every minute, join old minutes hourly."""
    last, trouble = -1, ""
    while not engine.is_closing:
        try:
            await engine.refresh()
            if not engine.writer.is_available:
                await engine.writer.probe()
            minute = engine.minute
            if minute != last:
                await expire(engine)
                if minute // HOUR != last // HOUR:
                    await join_old_minutes(engine)
                last = minute
            trouble = ""
        except Unavailable:
            pass  # the writer has logged it
        except Exception as error:  # whatever it is, upkeep must go on
            if repr(error) != trouble:
                failure(error)
            trouble = repr(error)
        await engine.pause(1)


async def expire(engine: Engine) -> None:
    """Count decisions as missing once they can no longer be answered, and forget their bits."""
    for learner in engine.roster:
        await close_expired(engine, learner)
    await engine.writer.begin(engine.store.forget_spent, engine.minute)


async def close_expired(engine: Engine, learner: Learner) -> None:
    """Take note of decisions whose minute of issue has expired since last time."""
    before = learner.experiment.expired_before(engine.minute)
    since = learner.closed_before
    found = await asyncio.to_thread(engine.store.history, learner.number, since, before, before)
    if learner.closed_before == since:  # and no rollback came between
        learner.close({arm: counts for (_, arm), counts in found.items()}, before)


async def join_old_minutes(engine: Engine) -> None:
    """Join minutes into days once they are older than the experiment keeps them."""
    for learner in engine.roster:
        before = joined_before(learner.experiment, engine.minute)
        await engine.writer.begin(engine.store.fold, learner.number, before, DAY)


def joined_before(experiment: Experiment, minute: int) -> int:
    """Return the day before which minutes are, or will be within the hour, joined into days."""
    old = minute - experiment.retention // 60
    before = min(old, experiment.expired_before(minute))
    return before - before % DAY
