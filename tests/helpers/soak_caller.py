"""What makers of a soak's traffic share: the job, and visitors who are heard.

Visitors call from many loopback addresses, so that limits per address see many people.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Self

import msgspec

from helpers.service_process import HOST, Answer, Visitor
from helpers.soak_record import NO_ANSWER, Heard, Request, retry_after
from whitelie.service import wire

TIMEOUT = 1.0
"""Seconds that a visitor waits for an answer, as the clients do."""


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
