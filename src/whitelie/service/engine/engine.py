"""The engine of a server: it owns the parts that requests and maintenance share."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from whitelie.service.engine.clock import Clock, TrustedClock
from whitelie.service.engine.directory import ExperimentDirectory
from whitelie.service.engine.pipeline import CommitPipeline
from whitelie.service.engine.shared_counters import SharedCounters
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.engine.writer import Writer
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Store

LAST_COMMITS_TIMEOUT_SECONDS = 2.0
"""How long the last commits may take when the service ends."""


class Engine:
    """The parts of one server, from its start to its end; `secrets` returns those of tokens.

    `auto_ships` says whether it ships a certified arm of an experiment that was created so.
    """

    def __init__(
        self,
        store: Store,
        secrets: Callable[[], Sequence[bytes]],
        *,
        clock: Clock | None = None,
        steady: Clock | None = None,
        counters: SharedCounters | None = None,
        auto_ships: bool = True,
    ) -> None:
        self.store = store
        self.auto_ships = auto_ships
        self.clock = clock if isinstance(clock, TrustedClock) else TrustedClock(clock, steady)
        self.writer = Writer(store)
        self.directory = ExperimentDirectory(store)
        self.counters = counters or SharedCounters()
        self._read_secrets = secrets
        self._secrets = secrets()
        self.cipher = TokenCipher(self._secrets)
        self.pipeline = CommitPipeline(
            store, self.clock, self.writer, self.directory, self.cipher, self.counters
        )
        self._times_set_back = self.clock.times_set_back
        self._closing = asyncio.Event()

    @property
    def is_closing(self) -> bool:
        """Whether the service is about to end."""
        return self._closing.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than the service lives."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    def end_pauses(self) -> None:
        """End all waits in `pause`: the service is about to end."""
        self._closing.set()

    def reload_secrets(self) -> None:
        """Use the secrets as they are now; the known ones stay if they cannot be read."""
        secrets = self._read_secrets()
        if secrets != self._secrets:
            self._secrets = secrets
            self.cipher.replace(secrets)

    def follow_clock(self) -> None:
        """Tell all learners if the clock was set back: less has expired than it seemed."""
        minute = self.clock.minute
        if self._times_set_back != self.clock.times_set_back:
            self._times_set_back = self.clock.times_set_back
            for learner in self.directory:
                learner.set_clock_back(minute)

    async def close(self) -> None:
        """Commit all requests that have come, and close the store."""
        self.end_pauses()
        with suppress(Refusal, TimeoutError):
            async with asyncio.timeout(LAST_COMMITS_TIMEOUT_SECONDS):
                await self.pipeline.write(_after_all_commits)
        self.store.close()
        self.writer.close()


def _after_all_commits() -> None:
    """Do nothing: the writer does it when all commits before it are done."""
