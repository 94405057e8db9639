"""Several processes that do the same work, kept alive until a signal to end."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from whitelie.errors import WhitelieError
from whitelie.service.log import event, failure

PAUSES = 0.1, 5.0
"""The first and the longest pause before a process that has ended is started again, in seconds."""

STEADY = 10.0
"""Seconds after which a process is taken to work well."""

TICK = 0.05
"""Seconds between two looks at the processes."""

ENDS = signal.SIGINT, signal.SIGTERM

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of Linux


@dataclass
class Worker:
    """A process and its place: when it was started, or is to be, and the pause before the next."""

    place: int
    pid: int | None = None
    since: float = 0.0
    pause: float = PAUSES[0]


class Supervisor:
    """Runs `work` in processes, each of which knows its place, and starts those anew that die.

    `look` is done all the time: a process has by inheritance what this one knows.
    """

    def __init__(
        self, work: Callable[[int], None], workers: int, look: Callable[[], object]
    ) -> None:
        self._work = work
        self._look = look
        self._workers = [Worker(place) for place in range(workers)]
        self._is_ending = False

    def run(self) -> None:
        """Return when all processes have ended after a signal."""
        for each in ENDS:
            signal.signal(each, self._end)
        while not self._is_ending or any(worker.pid for worker in self._workers):
            self._reap()
            self._look()
            for worker in self._workers:
                if worker.pid is None and time.monotonic() >= worker.since:
                    self._start(worker)
            time.sleep(TICK)

    def _reap(self) -> None:
        """Take note of processes that have ended; the first process of a machine adopts others."""
        with suppress(ChildProcessError):  # there is none
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for worker in self._workers:
                    if worker.pid == ended[0]:
                        self._note_end(worker, os.waitstatus_to_exitcode(ended[1]))

    def _note_end(self, worker: Worker, code: int) -> None:
        now = time.monotonic()
        if now - worker.since > STEADY:
            worker.pause = PAUSES[0]
        worker.pid, worker.since = None, now + worker.pause
        worker.pause = min(2 * worker.pause, PAUSES[1])
        if not self._is_ending:
            event("worker_ended", worker=worker.place, code=code)

    def _start(self, worker: Worker) -> None:
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # until it is known whom to tell
        try:
            if self._is_ending:
                return
            worker.since = time.monotonic()
            worker.pid = os.fork() or None
            if worker.pid is None:
                os.setpgid(0, 0)  # what a terminal interrupts is the parent, which tells us
                for each in ENDS:
                    signal.signal(each, signal.SIG_DFL)  # until there is a server to tell
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
                self._become(worker.place, parent)
        except OSError as error:  # too many processes: later, perhaps
            failure(error)
            worker.since = time.monotonic() + PAUSES[1]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)

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
        for worker in self._workers:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, how)
