"""Traffic of a soak from a process of its own, until a given time: `python soak_traffic.py JOB`.

Every visitor calls from a loopback address of their own choice, so that limits per address see
many people. A process writes what it was told to a file when it ends.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from process import HOST, Answer, Visitor, run
from soak_record import NO_ANSWER, Heard, Request, retry_after
from whitelie.service import wire

TIMEOUT = 1.0
"""Seconds that a visitor waits for an answer, as the clients do."""

FAREWELL = TIMEOUT
"""Seconds that visitors have to finish when time is up."""

PATIENCE = 60.0
"""Seconds after its time in which a process must have written what it has heard."""


class Job(msgspec.Struct, frozen=True):
    """What to do: `side` is honest or hostile, `per_second` how many honest visitors come."""

    side: str
    port: int
    experiment: str
    admin_key: str
    page_key: str
    start: float
    end: float
    per_second: float
    flood: int
    """Bytes of a flood of headers."""
    file: str

    @property
    def is_over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() >= self.end


class Caller(Visitor):
    """A visitor who calls from an address, with a key, and is heard."""

    heard: Heard
    kind: str
    headers: Mapping[str, str]
    since: float
    wait: int = 0
    """Seconds to wait that the last answer asked for, if it did."""

    @classmethod
    async def from_address(
        cls, address: str, job: Job, heard: Heard, kind: str, key: str | None = None
    ) -> Self:
        """Connect; a key is the page's unless another is given."""
        since = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TIMEOUT):
                connecting = loop.create_connection(cls, HOST, job.port, local_addr=(address, 0))
                _, caller = await connecting
        except (OSError, TimeoutError):
            heard.count(kind, "not connected")
            heard.requests.append(Request(since, time.monotonic() - since, NO_ANSWER))
            raise ConnectionRefusedError from None
        caller.heard, caller.kind, caller.since = heard, kind, since
        caller.headers = {"Authorization": f"Bearer {key or job.page_key}"}
        return caller

    @property
    def is_gone(self) -> bool:
        """Whether either side has closed the connection."""
        return self._is_lost or self._transport.is_closing()

    async def decide(
        self, experiment: str, count: int = 1, headers: Mapping[str, str] | None = None
    ) -> list[wire.Decision]:
        """Return decisions, with this caller's key."""
        return await super().decide(experiment, count, headers or self.headers)

    async def ask(self, request: bytes) -> Answer:
        """Send a request, wait for its answer as long as a client does, and write down how long.

        The first request has waited for its connection too.
        """
        since, self.since = self.since or time.monotonic(), 0.0
        status, outcome = NO_ANSWER, "cut"
        try:
            if self.is_gone:
                raise ConnectionResetError
            async with asyncio.timeout(TIMEOUT):
                answer = await super().ask(request)
            status, outcome = answer.status, str(answer.status)
            self.wait = retry_after(answer)
            self.heard.note_error(self.kind, answer)
            return answer
        except TimeoutError:
            outcome = "late"
            self.close()
            raise ConnectionAbortedError from None
        finally:
            self.heard.requests.append(Request(since, time.monotonic() - since, status))
            self.heard.count(self.kind, outcome)


def spawn(job: Job) -> "subprocess.Popen[bytes]":
    """Start a process that does a job; it ends by itself when time is up."""
    command = [sys.executable, __file__, msgspec.json.encode(job).decode()]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def heard_by(job: Job) -> Heard:
    """Return what a process that has ended was told."""
    return msgspec.msgpack.decode(Path(job.file).read_bytes(), type=Heard)


async def do(job: Job) -> Heard:
    """Make the traffic of a job."""
    from soak_honest import Honest  # noqa: PLC0415 (both import this module)
    from soak_hostile import Hostile  # noqa: PLC0415

    heard = Heard()
    random.seed()
    await asyncio.sleep(max(0.0, job.start - time.monotonic()))
    traffic = Honest(job, heard) if job.side == "honest" else Hostile(job, heard)
    tasks = [asyncio.create_task(each) for each in traffic.work()]
    await asyncio.wait(tasks, timeout=max(0.0, job.end - time.monotonic()) + FAREWELL)
    for task in tasks:
        if not task.done():
            task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    return heard


def main() -> None:
    """Do the job that the command line gives, and write down what was heard."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    heard = run(do(job), patience=job.end - time.monotonic() + PATIENCE)
    Path(job.file).write_bytes(msgspec.msgpack.encode(heard))


if __name__ == "__main__":
    main()
