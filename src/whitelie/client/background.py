"""A background thread that sends reports while the program does something else."""

import threading
from collections.abc import Callable

from whitelie.client.outbox import Outbox
from whitelie.client.warn_once import WhitelieWarning

MAX_SLEEP_SECONDS = 60.0
"""After this long the thread looks again: another process may have stored a report."""

BLOCKED_SLEEP_SECONDS = 5.0
"""How long the thread sleeps if a report is due but may not be sent, as without consent."""


class Background:
    """A thread that flushes an outbox whenever a report may be sent."""

    def __init__(self, outbox: Outbox, now: Callable[[], int]) -> None:
        self._outbox = outbox
        self._now = now
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._is_ending = False

    def start(self) -> None:
        """Start the thread; a second start changes nothing."""
        if self._thread is None:
            self._is_ending = False
            self._thread = threading.Thread(target=self._run, daemon=True, name="whitelie-reports")
            self._thread.start()

    def wake(self) -> None:
        """Make the thread look at once: something has changed."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._is_ending = True
            self.wake()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._is_ending:
            self._woken.clear()
            try:
                self._outbox.flush()
                due = self._outbox.next_attempt()
            except WhitelieWarning:  # the program turns warnings into errors: keep the thread
                due = None
            pause = MAX_SLEEP_SECONDS if due is None else (due - self._now()) / 1000
            if pause <= 0:
                pause = BLOCKED_SLEEP_SECONDS
            if not self._is_ending:
                self._woken.wait(min(pause, MAX_SLEEP_SECONDS))
