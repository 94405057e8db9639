"""What a test starts can be interrupted and ends with it, also with make in the background."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from helpers.processes import started

SLEEPER = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(1000)"]
FAMILY = f"import subprocess, time; subprocess.run({SLEEPER!r})"


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_failing_test_leaves_no_process() -> None:
    def fail() -> None:
        with started([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            (child,) = psutil.Process(process.pid).children()
            pids.extend([process.pid, child.pid])
            raise AssertionError

    pids: list[int] = []
    with pytest.raises(AssertionError):
        fail()
    deadline = time.monotonic() + 60
    while not all(map(is_gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(map(is_gone, pids))


@pytest.mark.parametrize(("ignored", "code"), [(False, -signal.SIGINT), (True, None)])
def test_a_process_is_interrupted_unless_the_tests_ignore_interrupts(
    ignored: bool, code: int | None
) -> None:
    """A shell starts `make test &` with SIGINT ignored; conftest.py has undone that here."""
    before = signal.getsignal(signal.SIGINT)
    assert before is not signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with started(["sleep", "1000"]) as process:
            os.kill(process.pid, signal.SIGINT)
            try:
                assert process.wait(timeout=0.5 if ignored else 60) == code
            except subprocess.TimeoutExpired:
                assert ignored
    finally:
        signal.signal(signal.SIGINT, before)
