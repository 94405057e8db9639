"""Starts several processes that do the same work, and restarts those that die."""

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

FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 0.1, 5.0
"""Pauses before a process that has ended is restarted; each is twice the one before."""

STABLE_AFTER_SECONDS = 10.0
"""A process that has run for so long is restarted after the first pause again."""

POLL_SECONDS = 0.05
"""Between two looks at the processes."""

STOP_SIGNALS = signal.SIGINT, signal.SIGTERM

_PARENT_DEATH = 1  # PR_SET_PDEATHSIG of Linux


@dataclass
class Worker:
    """A process: its index, when it started or will be restarted, and the pause after its end."""

    index: int
    pid: int | None = None
    since: float = 0.0
    pause: float = FIRST_RESTART_SECONDS


class Supervisor:
    """Runs `work(index)` in each of several processes, and restarts those that die.

    It calls `on_poll` all the time: a process that it forks inherits what that has learnt.
    """

    def __init__(
        self, work: Callable[[int], None], workers: int, on_poll: Callable[[], object]
    ) -> None:
        self._work = work
        self._on_poll = on_poll
        self._workers = [Worker(index) for index in range(workers)]
        self._is_ending = False

    def run(self) -> None:
        """Return when all processes have ended after a signal."""
        for each in STOP_SIGNALS:
            signal.signal(each, self._stop)
        while not self._is_ending or any(worker.pid for worker in self._workers):
            self._reap()
            self._on_poll()
            for worker in self._workers:
                if worker.pid is None and time.monotonic() >= worker.since:
                    self._start(worker)
            time.sleep(POLL_SECONDS)

    def _reap(self) -> None:
        """Reap processes that have ended, also those that this one adopted as process 1."""
        with suppress(ChildProcessError):  # there is no child process
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for worker in self._workers:
                    if worker.pid == ended[0]:
                        self._schedule_restart(worker, os.waitstatus_to_exitcode(ended[1]))

    def _schedule_restart(self, worker: Worker, code: int) -> None:
        now = time.monotonic()
        if now - worker.since > STABLE_AFTER_SECONDS:
            worker.pause = FIRST_RESTART_SECONDS
        worker.pid, worker.since = None, now + worker.pause
        worker.pause = min(2 * worker.pause, MAX_RESTART_SECONDS)
        if not self._is_ending:
            event("worker_ended", worker=worker.index, code=code)

    def _start(self, worker: Worker) -> None:
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until the pid is known
        try:
            if self._is_ending:
                return
            worker.since = time.monotonic()
            worker.pid = os.fork() or None
            if worker.pid is None:
                os.setpgid(0, 0)  # Ctrl-C reaches the parent only, which then signals us
                for each in STOP_SIGNALS:
                    signal.signal(each, signal.SIG_DFL)  # until the server handles them
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
                self._run_worker(worker.index, parent)
        except OSError as error:  # too many processes: try again later
            failure(error)
            worker.since = time.monotonic() + MAX_RESTART_SECONDS
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _run_worker(self, index: int, parent: int) -> NoReturn:
        """Do the work in this process, which ends with the work or with its parent."""
        code = 1
        try:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGTERM)
            if os.getppid() == parent:
                self._work(index)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except WhitelieError as refused:
            event("worker_refused", worker=index, reason=str(refused))
        except BaseException as error:
            failure(error)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Stop all processes; a second signal kills them."""
        how = signal.SIGKILL if self._is_ending else signal.SIGTERM
        self._is_ending = True
        for worker in self._workers:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, how)
