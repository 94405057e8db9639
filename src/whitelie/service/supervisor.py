"""Several processes that do the same work, kept alive until a signal to end."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from whitelie.errors import WhitelieError
from whitelie.service.log import event, failure

PAUSES = 0.1, 5.0
"""The first and the longest pause before a process that has ended is started again, in seconds."""

STEADY = 10.0
"""Seconds after which a process is taken to work well."""

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of Linux


class Supervisor:
    """Runs `work` in processes, each of which knows its place, and starts those anew that die.

    `release` gives up what is held for processes to come, once there will be none.
    """

    def __init__(
        self, work: Callable[[int], None], workers: int, release: Callable[[], None]
    ) -> None:
        self._work = work
        self._workers = workers
        self._release = release
        self._places: dict[int, int] = {}
        self._is_ending = False

    def run(self) -> None:
        """Return when all processes have ended after a signal."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._end)
        for place in range(self._workers):
            self._start(place)
        pause, started = PAUSES[0], time.monotonic()
        while self._places:
            pid, status = os.wait()
            if pid not in self._places:  # an orphan of others, which the first process adopts
                continue
            place = self._places.pop(pid)
            if self._is_ending:
                continue
            event("worker_ended", worker=place, code=os.waitstatus_to_exitcode(status))
            if time.monotonic() - started > STEADY:
                pause = PAUSES[0]
            time.sleep(pause)
            pause, started = min(2 * pause, PAUSES[1]), time.monotonic()
            self._start(place)

    def _start(self, place: int) -> None:
        ends = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # until it is known whom to tell
        try:
            if self._is_ending:
                return
            parent = os.getpid()
            if pid := os.fork():
                self._places[pid] = place
            else:
                os.setpgid(0, 0)  # what a terminal interrupts is the parent, which tells us
                for each in ends:
                    signal.signal(each, lambda *_: sys.exit(0))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
                self._become(place, parent)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)

    def _become(self, place: int, parent: int) -> NoReturn:
        """Do the work in this process, and end with it, or when its parent does."""
        code = 1
        try:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGTERM)
            if os.getppid() == parent:
                self._work(place)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except WhitelieError as refused:
            event("worker_refused", worker=place, reason=str(refused))
        except BaseException as error:
            failure(error)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Tell all processes to end; a second signal does not wait for them."""
        how = signal.SIGKILL if self._is_ending else signal.SIGTERM
        self._is_ending = True
        self._release()
        for pid in self._places:
            os.kill(pid, how)
