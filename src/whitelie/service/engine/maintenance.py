"""Maintenance: periodic tasks beside the requests.

Four times a second they read what others have changed, up to fifty times a second what others have
counted. Once a minute tokens expire and evidence is looked at; once an hour old minutes are joined
into days.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from whitelie.service.engine.certification import certify_where_due
from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import recount, restart
from whitelie.service.engine.writer import WRITE_TIMED_OUT, WRITE_TIMEOUT_SECONDS
from whitelie.service.experiment.unanswered import ages_of, by_arm
from whitelie.service.log import failure
from whitelie.service.minutes import DAY, HOUR
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Unavailable

MAINTENANCE_INTERVAL_SECONDS = 0.25
"""How often changes that others have made are looked for."""

BUSY_RECOUNT_INTERVAL_SECONDS = 0.02
"""How often counts of other servers are taken while decisions are asked for."""

IDLE_RECOUNT_INTERVAL_SECONDS = 2.0
"""How often counts of other servers are taken while nobody asks for decisions."""

MOST_RECOUNT_SHARE = 0.1
"""The largest share of the writer's time that recounts may have."""


async def maintain(engine: Engine) -> None:
    """Repeat all tasks until the service ends."""
    await asyncio.gather(
        _repeat(engine, PeriodicTasks(engine).run),
        _repeat(engine, lambda: recount_where_due(engine)),
    )


async def _repeat(engine: Engine, task: Callable[[], Awaitable[float]]) -> None:
    """Run a task again and again, whether it fails or not, after the pauses that it returns."""
    logged = ""
    while not engine.is_closing:
        pause = MAINTENANCE_INTERVAL_SECONDS
        try:
            pause = await task()
            logged = ""
        except Refusal:
            pass  # the writer has logged it
        except (Unavailable, TimeoutError) as error:
            engine.writer.note_failure(str(error) or WRITE_TIMED_OUT)
        except Exception as error:
            if repr(error) != logged:
                failure(error)
            logged = repr(error)
        await engine.pause(pause)


@dataclass
class PeriodicTasks:
    """Tasks of every interval, every minute and every hour; `minute` is the last one done."""

    engine: Engine
    minute: int = -1

    async def run(self) -> float:
        """Read what others have changed, and do what is due; return the pause."""
        engine = self.engine
        async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
            await engine.directory.refresh()
        if not engine.writer.is_available:
            await engine.writer.probe()
        minute = engine.clock.minute
        if minute != self.minute:
            await expire(engine)
            await certify_where_due(engine)
            if minute // HOUR != self.minute // HOUR:
                await join_old_minutes(engine)
            self.minute = minute
        engine.reload_secrets()
        return MAINTENANCE_INTERVAL_SECONDS


async def recount_where_due(engine: Engine) -> float:
    """Take counts anew where a rollback or another server has changed them; return the pause."""
    engine.follow_clock()
    for learner in engine.directory:
        if learner.must_restart:
            await restart(engine, learner)
    if not engine.store.is_shared:
        return MAINTENANCE_INTERVAL_SECONDS
    old = time.monotonic() - IDLE_RECOUNT_INTERVAL_SECONDS
    due = [
        learner
        for learner in engine.directory
        if learner.experiment.status == "running" and (learner.is_asked or learner.recounted < old)
    ]
    seconds = await recount(engine, due) if due else 0.0
    return max(BUSY_RECOUNT_INTERVAL_SECONDS, seconds / MOST_RECOUNT_SHARE)


async def expire(engine: Engine) -> None:
    """Note which decisions are overdue or missing by now, and forget bits of expired tokens.

    The bits stay for another day, lest a clock that is set back makes their tokens good again, and
    for as long as the clock is in doubt.
    """
    for learner in engine.directory:
        await note_expired(engine, learner)
        await note_ages(engine, learner)
    if engine.clock.may_forget:
        forgotten = engine.clock.minute - DAY
        await engine.pipeline.write(engine.store.forget_spent, forgotten)


async def note_expired(engine: Engine, learner: Learner) -> None:
    """Tell a learner of the decisions that have expired since last time."""
    before = learner.experiment.expired_before(engine.clock.minute)
    since, restarts = learner.expired_before, learner.restarts
    if before <= since:
        return
    expired = await asyncio.to_thread(by_arm, engine.store, learner.number, since, before)
    if learner.restarts == restarts:  # no rollback came between
        learner.expire(expired, before)


async def note_ages(engine: Engine, learner: Learner) -> None:
    """Tell a learner how old its decisions are, if any has no report."""
    if not (learner.unanswered.pending + learner.unanswered.overdue).any():
        return
    restarts, wanted = learner.restarts, (learner.number, learner.experiment, engine.clock.minute)
    issued = learner.issued.copy()
    ages = await asyncio.to_thread(ages_of, engine.store, *wanted)
    if learner.restarts == restarts and len(learner.issued) == len(issued):  # nothing came between
        learner.age(ages, issued)


async def join_old_minutes(engine: Engine) -> None:
    """Join minutes into days once they are older than the experiment keeps them.

    Afterwards nobody can roll back a single one of them, so nothing is joined by a clock in doubt.
    """
    if not engine.clock.may_forget:
        return
    for learner in engine.directory:
        before = learner.experiment.joined_before(engine.clock.minute)
        await engine.pipeline.write(engine.store.join_minutes, learner.number, before, DAY)
