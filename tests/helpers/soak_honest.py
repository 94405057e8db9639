"""Honest visitors of a soak: they come at random, see a page, and report later, once."""

import asyncio
import random
import time
from collections.abc import Coroutine, Iterator
from itertools import count
from typing import Any

from helpers.service_process import message
from helpers.soak_caller import Caller, Job
from helpers.soak_record import NO_ANSWER, Heard, Request
from whitelie.service.api.static_files import plotly_path

PEOPLE = 250
"""Addresses of people who visit pages; each comes less than once a second."""

SHOPS = 20
"""Addresses of programs that ask for many decisions, with an admin key."""

MOST = 1000
"""Visitors who are there at the same time; whoever comes beyond is counted as not answered."""

REPORTING = 0.9
"""The share of decisions that are answered."""

GLANCES = 3.0
"""Seconds between two looks at the dashboard."""


class Honest:
    """Visits, at random times, a third of them of programs, and somebody at the dashboard."""

    def __init__(self, job: Job, heard: Heard) -> None:
        self._job = job
        self._heard = heard
        self._numbers = count()
        self._there: set[asyncio.Task[None]] = set()

    def work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what is to be done at the same time."""
        yield self._arrivals()
        yield self._dashboard()

    async def _arrivals(self) -> None:
        due = time.monotonic()
        async with asyncio.TaskGroup() as visits:
            while not self._job.is_over:
                due += random.expovariate(self._job.per_second)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if len(self._there) < MOST:
                    visit = visits.create_task(self._visit())
                    self._there.add(visit)
                    visit.add_done_callback(self._there.discard)
                else:
                    self._heard.requests.append(Request(time.monotonic(), 0.0, NO_ANSWER))

    async def _visit(self) -> None:
        number = next(self._numbers)
        if number % 3:
            address, size = f"127.0.1.{1 + number % PEOPLE}", 1
        else:
            address, size = f"127.0.2.{1 + number % SHOPS}", random.randint(1, 8)
        key = None if number % 3 else self._job.admin_key
        try:
            caller = await self._call(address, key)
        except ConnectionError:
            return
        try:
            tokens = await self._heard.ledger.decide(caller, self._job.experiment, size)
        except ConnectionError:
            tokens = []
        finally:
            if random.random() < 0.5:  # the others report on the same connection
                caller.close()
        answered = [token for token in tokens if random.random() < REPORTING]
        reports = [(token, random.getrandbits(1)) for token in answered]
        if reports:
            await asyncio.sleep(random.uniform(0.05, 1.5))
            await self._report(caller, address, reports)
        caller.close()

    async def _report(self, caller: Caller, address: str, reports: list[tuple[str, int]]) -> None:
        """Report, and again with the same bits until it is acknowledged."""
        ledger = self._heard.ledger
        while not self._job.is_over:
            wait = 1
            try:
                if caller.is_gone:
                    caller = await self._call(address)
                await ledger.report(caller, reports)
                wait = caller.wait or 1
            except ConnectionError:
                pass
            caller.close()
            if reports[0][0] in ledger.accepted:
                break
            await asyncio.sleep(wait + random.random())

    async def _dashboard(self) -> None:
        """Look at the dashboard, with its script, and at the results."""
        compressed = {"Accept-Encoding": "gzip"}
        key = {"Authorization": f"Bearer {self._job.admin_key}"}
        results = f"/v1/experiments/{self._job.experiment}/results"
        while not self._job.is_over:
            try:
                caller = await self._call("127.0.3.1", self._job.admin_key)
                for path, headers in (("/", {}), (plotly_path(), compressed), (results, key)):
                    await caller.ask(message("GET", str(path), headers=headers))
                caller.close()
            except ConnectionError:
                pass
            await asyncio.sleep(GLANCES)

    async def _call(self, address: str, key: str | None = None) -> Caller:
        return await Caller.from_address(address, self._job, self._heard, "visitor", key)
