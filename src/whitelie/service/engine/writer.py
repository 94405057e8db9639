"""The writer: the one thread that changes the store, and whether the store can be written."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from whitelie.service.log import event, failure
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Stale, Store, Unavailable

WRITE_TIMEOUT_SECONDS = 2.0
"""How long the writer may take for one piece of work before the store is called unavailable."""

WRITE_TIMED_OUT = f"it has not answered for {WRITE_TIMEOUT_SECONDS:.0f} seconds"

Answer = TypeVar("Answer")


class Writer:
    """Writes to the store in a thread beside the event loop, one piece of work after the other.

    So work that begins between two commits sees all of the first and nothing of the second, and
    callbacks on the event loop come in the order of the work.
    """

    def __init__(self, store: Store) -> None:
        self.is_available = True
        self._store = store
        self._thread = ThreadPoolExecutor(1, "whitelie-writer")

    def begin(self, work: Callable[..., Answer], *arguments: Any) -> "asyncio.Future[Answer]":
        """Let the thread do some work after all that it was given before."""
        loop = asyncio.get_running_loop()
        work_done = loop.run_in_executor(self._thread, work, *arguments)
        timeout = loop.call_later(WRITE_TIMEOUT_SECONDS, self.note_failure, WRITE_TIMED_OUT)
        work_done.add_done_callback(lambda _: timeout.cancel())
        work_done.add_done_callback(self._check_result)
        return work_done

    async def probe(self) -> None:
        """Find out whether the store can be written again.

        A commit that succeeds does not tell: on a nearly full disk the next one may not fit.
        """
        await self.begin(self._store.probe)
        if not self.is_available:
            event("store_available")
        self.is_available = True

    def note_failure(self, reason: str) -> None:
        """Note that the store cannot be written, and log it once."""
        if self.is_available:
            event("store_unavailable", reason=reason)
        self.is_available = False

    def close(self) -> None:
        """Finish all work that was given."""
        self._thread.shutdown()

    def _check_result(self, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, Unavailable):
            self.note_failure(str(error))
        elif error is not None and not isinstance(error, Refusal | Stale):  # which callers handle
            failure(error)
