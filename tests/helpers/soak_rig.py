"""A soak: a service under honest and hostile traffic, whose processes are killed and start again.

On SQLite the server is killed, on PostgreSQL by turns a worker and the database. Of two workers the
younger is killed, so that the memory of the other is seen from the beginning to the end.
"""

import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil

from helpers.postgres_server import Postgres
from helpers.service_process import ADMIN_KEY, HANG_TIMEOUT_SECONDS, HOST, Server, run, until
from helpers.soak_caller import Job
from helpers.soak_hostile import KINDS
from helpers.soak_record import Life, Outage, Record, merged, miscounted
from helpers.soak_traffic import Maker, heard_by
from whitelie.service.engine import keys
from whitelie.service.store.contract import Key, Store
from whitelie.service.store.postgresql.store import PostgresStore
from whitelie.service.store.sqlite.store import SQLiteStore

PORTS = 20_000, 32_000
"""Below those that the kernel gives to connections: one of a client cannot take a dead server's."""

IN_A_ROW = 10
"""Connections on which the service must be ready: each finds one of the workers."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how hard: seconds, visitors a second, bytes of a flood of headers.

    For the first `calm` seconds all visitors are honest: the level of memory at the start. Restarts
    come `every` so many seconds.
    """

    seconds: float
    calm: float
    every: float
    per_second: float
    flood: int


@dataclass
class Site:
    """A service that can be killed, and what is known of its processes.

    `killed` counts the workers that were killed; a server that the tests have not killed must live.
    """

    store: Callable[[], Store]
    start: Callable[[], Server]
    kills: Mapping[str, Callable[["Site"], None]]
    database: Postgres | None = None
    server: Server = field(init=False)
    killed: int = 0
    lives: dict[Any, Life] = field(default_factory=dict)
    noticed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = self.start()

    @property
    def workers(self) -> list[Any]:
        """The processes that a server has started, by age."""
        children = psutil.Process(self.server.process.pid).children()
        return sorted(children, key=lambda child: (child.create_time(), child.pid))

    @property
    def said(self) -> str:
        return self.server.log.read_text(encoding="utf-8")

    def await_ready(self) -> None:
        """Wait until whoever asks is told that the service is ready."""

        def is_ready() -> bool:
            with suppress(ConnectionError):
                asked = (self.server.ask("GET", "/readyz") for _ in range(IN_A_ROW))
                return all(answer.status == 200 for answer in asked)
            return False

        until(is_ready)

    def watch(self) -> None:
        """Write down how much memory processes have, and which have ended."""
        if self.server.process.poll() is not None:
            self.noticed.append(f"the server has ended with code {self.server.process.returncode}")
            self.server = self.start()
        if self.database is not None and self.database.process is not None:
            assert self.database.process.poll() is None, "PostgreSQL has ended"
        workers = self.workers
        self._weigh(psutil.Process(self.server.process.pid), "supervisor" if workers else "server")
        for worker in workers:
            self._weigh(worker, "worker")

    def sample(self) -> None:
        """Write down what no store may say at any time."""
        with closing(self.store()) as store:
            for arm, counts in store.totals(1).items():
                if not counts.ones <= counts.answered <= counts.issued:
                    self.noticed.append(f"arm {arm} has {counts}")

    def _weigh(self, process: Any, role: str) -> None:
        with suppress(psutil.NoSuchProcess):
            size = process.memory_info().rss
            now = time.monotonic()
            self.lives.setdefault(process, Life(role, now)).memory.append((now, size))

    def check_log(self) -> None:
        """Write down what the log says and should not."""
        ended = self.said.count('"event":"worker_ended"') - self.killed
        if ended:
            self.noticed.append(f"{ended} workers have ended by themselves")
        lines = (json.loads(line) for line in self.said.splitlines() if '"level":"error"' in line)
        errors = Counter((line["event"], line.get("error"), *line.get("at", ())) for line in lines)
        self.noticed += [f"the log has {error} {times} times" for error, times in errors.items()]


# Kills ------------------------------------------------------------------------------------------


def kill_server(site: Site) -> None:
    site.server.kill()
    time.sleep(random.uniform(0, 1))
    site.server = site.start()


def kill_worker(site: Site) -> None:
    serving = site.said.count('"event":"serving"')
    site.workers[-1].kill()
    site.killed += 1
    until(lambda: site.said.count('"event":"serving"') > serving)


def kill_database(site: Site) -> None:
    assert site.database is not None
    site.database.kill()
    time.sleep(random.uniform(0.5, 3))
    site.database.start()


# Sites ------------------------------------------------------------------------------------------


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Site]:
    """One server on a file."""
    file, port = folder / "whitelie.db", str(_free_port())

    def start() -> Server:
        return Server(file, folder / "log", "--port", port).ready()

    with _ended(Site(lambda: SQLiteStore(file), start, {"killed server": kill_server})) as site:
        yield site


@contextmanager
def on_postgresql(folder: Path) -> Iterator[Site]:
    """Two workers on a database of their own."""
    with Postgres() as database:
        address, port = database.new_database(), str(_free_port())

        def start() -> Server:
            server = Server(address, folder / "log", "--port", port, "--workers", "2").ready()
            until(lambda: server.log.read_text().count('"event":"serving"') == 2)
            return server

        kills = {"killed database": kill_database, "killed worker": kill_worker}
        with _ended(Site(lambda: PostgresStore(address), start, kills, database)) as site:
            yield site


@contextmanager
def _ended(site: Site) -> Iterator[Site]:
    try:
        yield site
    finally:
        if site.server.process.poll() is None:
            family = [*site.workers, psutil.Process(site.server.process.pid)]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            site.server.process.wait(HANG_TIMEOUT_SECONDS)


def _free_port() -> int:
    while True:
        port = random.randrange(*PORTS)
        with suppress(OSError), socket.create_server((HOST, port)):
            return port


# A run ------------------------------------------------------------------------------------------


def soak(site: Site, plan: Plan, folder: Path) -> Record:
    """Run a soak and stop the server; what is stored at the end has been compared."""
    with closing(site.store()) as store:
        page_key = keys.create(store, Key("page", "publishable", b"", (), 100_000))
    experiment = site.server.create()
    with Maker() as honest, Maker() as hostile:
        makers = {"honest": honest, "hostile": hostile}
        for maker in makers.values():
            maker.await_ready()
        site.await_ready()
        start = time.monotonic()
        end = start + plan.seconds
        jobs = [
            Job(
                side=side,
                port=site.server.port,
                experiment=experiment,
                admin_key=ADMIN_KEY,
                page_key=page_key,
                start=start if side == "honest" else start + plan.calm,
                end=end,
                per_second=plan.per_second,
                flood=plan.flood,
                file=str(folder / side),
            )
            for side in makers
        ]
        for job in jobs:
            makers[job.side].begin(job)
        kills = list(zip(_due(start, plan), cycle(site.kills), strict=False))
        outages = [Outage("start", start, start), *_restarts(site, kills)]
        _watch_until(site, end)
        for maker in makers.values():
            assert maker.process.wait(HANG_TIMEOUT_SECONDS) == 0, "the traffic has failed"
    heard = [heard_by(each) for each in jobs]
    ledger = merged([each.ledger for each in heard])
    run(ledger.settle(site.server.port))
    site.watch()
    code = site.server.stop()
    if code:
        site.noticed.append(f"the server has ended with code {code}")
    site.check_log()
    return Record(
        heard,
        planned=int(2 * plan.seconds * plan.per_second),
        kinds=["visitor", *KINDS, *(kind for _, kind in kills)],
        settled=len(ledger.accepted),
        outages=outages,
        lives=list(site.lives.values()),
        noticed=site.noticed + miscounted(ledger, site.store),
    )


def _restarts(site: Site, kills: Iterable[tuple[float, str]]) -> Iterator[Outage]:
    """Kill one after the other, each at its time, and yield when all was well again."""
    for at, kind in kills:
        _watch_until(site, at)
        since = time.monotonic()
        site.kills[kind](site)
        site.await_ready()
        yield Outage(kind, since, time.monotonic())
        site.sample()


def _due(start: float, plan: Plan) -> Iterator[float]:
    """Yield when something is killed: not so late that nobody would see how it comes back."""
    for number in range(1, int(plan.seconds / plan.every) + 1):
        at = start + number * plan.every + random.uniform(-0.1, 0.1) * plan.every
        if at + plan.every / 3 <= start + plan.seconds:
            yield at


def _watch_until(site: Site, end: float) -> None:
    while True:
        site.watch()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, 1.0))
