"""The writer: one thread that changes the store, in order, and knows whether it can."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from whitelie.service.log import event, failure
from whitelie.service.refusal import Refusal
from whitelie.service.store import Stale, Store, Unavailable

STUCK = 2.0
"""Seconds after which work that has not ended means that the store does not work."""

SILENT = f"it has not answered for {STUCK:.0f} seconds"

Answer = TypeVar("Answer")


class Writer:
    """Does the store's writing work beside the event loop, one piece after the other.

    So work begun between two commits sees all of the first and nothing of the second; and their
    callbacks on the event loop come in the same order.
    """

    def __init__(self, store: Store) -> None:
        self.is_available = True
        self._store = store
        self._thread = ThreadPoolExecutor(1, "whitelie-writer")

    def begin(self, work: Callable[..., Answer], *arguments: Any) -> "asyncio.Future[Answer]":
        """Let the thread do some work after all that was begun before."""
        loop = asyncio.get_running_loop()
        begun = loop.run_in_executor(self._thread, work, *arguments)
        watch = loop.call_later(STUCK, self.miss, SILENT)
        begun.add_done_callback(lambda _: watch.cancel())
        begun.add_done_callback(self._notice_trouble)
        return begun

    async def probe(self) -> None:
        """Find out whether the store works again.

        Nothing else tells: on a nearly full disk one commit fits where the next does not.
        """
        await self.begin(self._store.probe)
        if not self.is_available:
            event("store_available")
        self.is_available = True

    def miss(self, reason: str) -> None:
        """Take note that the store does not do its work."""
        if self.is_available:
            event("store_unavailable", reason=reason)
        self.is_available = False

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()

    def _notice_trouble(self, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, Unavailable):
            self.miss(str(error))
        elif error is not None and not isinstance(error, Refusal | Stale):  # which are answers
            failure(error)
