"""Upkeep: what time brings, done beside the requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from whitelie.service.engine import Engine
from whitelie.service.learner import Learner
from whitelie.service.log import failure
from whitelie.service.moment import DAY, HOUR
from whitelie.service.refusal import Refusal
from whitelie.service.store import Unavailable
from whitelie.service.unanswered import ages_of, by_arm
from whitelie.service.writer import SILENT, STUCK

TICK = 0.25
"""Seconds between two looks at what others have changed."""

RECOUNT = 0.02
"""Seconds between two looks at what others have counted, while decisions are asked for."""

IDLE = 2.0
"""Seconds after which counts are taken anew though nobody has asked for a decision."""

SHARE = 0.1
"""The largest share of the writer's time that taking counts may have."""


async def keep_up(engine: Engine) -> None:
    """Look for changes all the time, let tokens expire every minute, join old minutes hourly."""
    await asyncio.gather(
        _repeat(engine, Chores(engine).do), _repeat(engine, lambda: recount(engine))
    )


async def _repeat(engine: Engine, work: Callable[[], Awaitable[float]]) -> None:
    """Do some work again and again, after the pauses for which it asks, whatever happens to it."""
    said = ""
    while not engine.is_closing:
        pause = TICK
        try:
            pause = await work()
            said = ""
        except Refusal:
            pass  # the writer has logged it
        except (Unavailable, TimeoutError) as error:
            engine.writer.miss(str(error) or SILENT)
        except Exception as error:
            if repr(error) != said:
                failure(error)
            said = repr(error)
        await engine.pause(pause)


@dataclass
class Chores:
    """What is done all the time, once a minute and once an hour; `minute` is the last done."""

    engine: Engine
    minute: int = -1

    async def do(self) -> float:
        """Notice what others have changed, and what time has."""
        engine = self.engine
        async with asyncio.timeout(STUCK):
            await engine.roster.refresh()
        if not engine.writer.is_available:
            await engine.writer.probe()
        minute = engine.minute
        if minute != self.minute:
            await expire(engine)
            if minute // HOUR != self.minute // HOUR:
                await join_old_minutes(engine)
            self.minute = minute
        engine.take_secrets()
        return TICK


async def recount(engine: Engine) -> float:
    """Take over what other servers have counted, and what a rollback has left."""
    for learner in engine.roster:
        if learner.must_restart:
            await engine.restart(learner)
    if not engine.store.is_shared:
        return TICK
    old = time.monotonic() - IDLE
    wanted = [
        learner
        for learner in engine.roster
        if learner.experiment.status == "running" and (learner.is_asked or learner.counted < old)
    ]
    return max(RECOUNT, await engine.recount(wanted) / SHARE if wanted else 0)


async def expire(engine: Engine) -> None:
    """Take note of decisions that are overdue or missing by now, and forget what has expired.

    The bits stay for another day, lest a clock that is set back makes their tokens good again, and
    for as long as the clock is in doubt.
    """
    for learner in engine.roster:
        await close_expired(engine, learner)
        await look_at_ages(engine, learner)
    if engine.clock.may_forget:
        await engine.write(engine.store.forget_spent, engine.minute - DAY)


async def close_expired(engine: Engine, learner: Learner) -> None:
    """Take note of decisions whose minute of issue has expired since last time."""
    before = learner.experiment.expired_before(engine.minute)
    since, restarts = learner.closed_before, learner.restarts
    if before <= since:
        return
    closed = await asyncio.to_thread(by_arm, engine.store, learner.number, since, before)
    if learner.restarts == restarts:  # no rollback came between
        learner.close(closed, before)


async def look_at_ages(engine: Engine, learner: Learner) -> None:
    """Take note of decisions that are overdue by now, if any is without a report."""
    if not (learner.unanswered.pending + learner.unanswered.overdue).any():
        return
    restarts, wanted = learner.restarts, (learner.number, learner.experiment, engine.minute)
    issued = learner.issued.copy()
    ages = await asyncio.to_thread(ages_of, engine.store, *wanted)
    if learner.restarts == restarts and len(learner.issued) == len(issued):  # nothing came between
        learner.age(ages, issued)


async def join_old_minutes(engine: Engine) -> None:
    """Join minutes into days once they are older than the experiment keeps them.

    Nobody could roll them back any more one by one, so nothing is joined by a clock in doubt.
    """
    if not engine.clock.may_forget:
        return
    for learner in engine.roster:
        before = learner.experiment.joined_before(engine.minute)
        await engine.write(engine.store.fold, learner.number, before, DAY)
