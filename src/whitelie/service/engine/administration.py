"""What operators do to experiments: create, change, delete, roll back.

Each of these is one piece of the writer's work, after all requests that came before it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import restart
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import Experiment
from whitelie.service.experiment.unanswered import ALL_MINUTES
from whitelie.service.store.contract import Counts, StoredExperiment, Unavailable


async def create(
    engine: Engine, experiment: Experiment, former: str | None = None
) -> tuple[StoredExperiment, bool]:
    """Store a new experiment; return it, or that of the same request, and whether it is new."""
    created = await engine.pipeline.write(changes.create, engine.store, experiment, former)
    await engine.directory.refresh_if_possible()
    return created


async def change(engine: Engine, learner: Learner, changed: Experiment) -> None:
    """Store a changed definition, unless somebody else has changed the experiment meanwhile."""
    try:
        await engine.pipeline.write(changes.change, engine.store, learner.saved, changed)
    finally:
        await engine.directory.refresh_if_possible()


async def delete(engine: Engine, learner: Learner) -> None:
    """Delete an experiment; requests for it that come meanwhile are refused."""
    await engine.pipeline.write(engine.store.delete, learner.number)
    await engine.directory.refresh_if_possible()


async def roll_back(
    engine: Engine, learner: Learner, start: int, stop: int
) -> Mapping[int, Counts]:
    """Remove the counts of the minutes start … stop − 1, whose tokens expire; return the counts."""
    minute = engine.clock.minute
    # Decisions of a time in which the clock was ahead: whoever rolls back has seen them, too.
    ahead = await asyncio.to_thread(engine.store.history, learner.number, minute, ALL_MINUTES)
    latest = max((issued for issued, _ in ahead), default=minute)
    changed = learner.experiment.with_rollback(start, stop, latest)
    arguments = engine.store, learner.saved, changed, (start, stop), minute
    removed = await engine.pipeline.write(changes.roll_back, *arguments)
    with suppress(Unavailable):  # then maintenance does it later
        await engine.directory.refresh()
        if learner.must_restart:
            await restart(engine, learner)
    return removed
