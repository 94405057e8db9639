"""Traffic of a soak from a process of its own: `python -m helpers.soak_traffic`.

It says when it is ready, reads a job, and writes what it was told to a file when the job's time is
up.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import msgspec

from helpers.paths import ROOT
from helpers.service_process import run
from helpers.soak_caller import TIMEOUT, Job
from helpers.soak_honest import Honest
from helpers.soak_hostile import Hostile
from helpers.soak_record import Heard

LAST_REQUESTS_TIMEOUT_SECONDS = TIMEOUT
"""Seconds that visitors have to finish when time is up."""

HANG_TIMEOUT_SECONDS = 60.0
"""Seconds after its time in which a process must have written what it has heard."""

READY = b"ready\n"


class Maker:
    """A process that makes traffic; it ends by itself when the time of its job is up."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "helpers.soak_traffic"]
        self.process = subprocess.Popen(command, cwd=ROOT / "tests", stdin=pipe, stdout=pipe)

    def await_ready(self) -> None:
        """Wait until it has loaded what it needs."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == READY

    def begin(self, job: Job) -> None:
        """Give it a job."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(job))
        self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(HANG_TIMEOUT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def heard_by(job: Job) -> Heard:
    """Return what a process that has ended was told."""
    return msgspec.msgpack.decode(Path(job.file).read_bytes(), type=Heard)


async def do(job: Job) -> Heard:
    """Make the traffic of a job."""
    heard = Heard()
    await asyncio.sleep(max(0.0, job.start - time.monotonic()))
    traffic = Honest(job, heard) if job.side == "honest" else Hostile(job, heard)
    tasks = [asyncio.create_task(each) for each in traffic.work()]
    await asyncio.wait(
        tasks, timeout=max(0.0, job.end - time.monotonic()) + LAST_REQUESTS_TIMEOUT_SECONDS
    )
    for task in tasks:
        if not task.done():
            task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    return heard


def main() -> None:
    """Do the job that comes, and write down what was heard."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    heard = run(do(job), patience=job.end - time.monotonic() + HANG_TIMEOUT_SECONDS)
    Path(job.file).write_bytes(msgspec.msgpack.encode(heard))


if __name__ == "__main__":
    main()
