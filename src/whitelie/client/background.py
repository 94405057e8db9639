"""A thread that sends reports by itself, while the program does something else."""

import threading
from collections.abc import Callable

from whitelie.client.outbox import Outbox
from whitelie.client.trouble import WhitelieWarning

LONGEST_SLEEP = 60.0
"""Seconds after which the thread looks again: another process may have stored a report."""

SLEEP_WHEN_HELD = 5.0
"""Seconds between looks at what is due and may not be sent."""


class Background:
    """A thread that flushes an outbox whenever it may send a report."""

    def __init__(self, outbox: Outbox, now: Callable[[], int]) -> None:
        self._outbox = outbox
        self._now = now
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._is_ending = False

    def start(self) -> None:
        """Begin; a second start changes nothing."""
        if self._thread is None:
            self._is_ending = False
            self._thread = threading.Thread(target=self._run, daemon=True, name="whitelie-reports")
            self._thread.start()

    def wake(self) -> None:
        """Look at once: something has changed."""
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
            except WhitelieWarning:  # a program that makes errors of warnings keeps its reports
                due = None
            pause = LONGEST_SLEEP if due is None else (due - self._now()) / 1000
            if pause <= 0:  # it is due and was not sent, as without consent
                pause = SLEEP_WHEN_HELD
            if not self._is_ending:
                self._woken.wait(min(pause, LONGEST_SLEEP))
