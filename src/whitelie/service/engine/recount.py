"""Counts taken anew from the store: what other servers have counted, what a rollback has left."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from whitelie.service.engine.engine import Engine
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.writer import WRITE_TIMED_OUT, WRITE_TIMEOUT_SECONDS
from whitelie.service.experiment.unanswered import stored_counts
from whitelie.service.store.contract import Counts, Store, Unavailable

EXPERIMENTS_PER_RECOUNT = 50
"""How many experiments the writer reads before it lets a commit come between."""


async def recount(engine: Engine, learners: Sequence[Learner]) -> float:
    """Give learners the counts of all servers; return how many seconds the writer read.

    The writer reads the counts, so they include all that was committed here before, and what is
    committed later is added to them.
    """
    seconds = 0.0
    for start in range(0, len(learners), EXPERIMENTS_PER_RECOUNT):
        some = learners[start : start + EXPERIMENTS_PER_RECOUNT]
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                counts, taken = await engine.writer.begin(_read_totals, engine.store, some)
        except TimeoutError:
            raise Unavailable(WRITE_TIMED_OUT) from None
        seconds += taken
        for learner, totals in zip(some, counts, strict=True):
            learner.recount(totals, engine.clock.minute)
    return seconds


def _read_totals(
    store: Store, learners: Sequence[Learner]
) -> tuple[list[Mapping[int, Counts]], float]:
    started = time.perf_counter()
    totals = [store.totals(learner.number) for learner in learners]
    return totals, time.perf_counter() - started


async def restart(engine: Engine, learner: Learner) -> None:
    """Take all counts from the store anew after a rollback, or after the clock was set back."""
    arguments = engine.store, learner.number, learner.experiment, engine.clock.minute
    learner.begin_restart()
    try:
        counts = await engine.writer.begin(stored_counts, *arguments)
    except BaseException:
        learner.require_restart()
        raise
    learner.restart_from(counts)
