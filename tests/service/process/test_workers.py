"""Several workers on one PostgreSQL: crashes, outages, cut lines, and starts, good and bad.

Whatever happens to a process or to the network, nothing acknowledged is lost or counted twice, and
nothing refused is counted. No test says how fast anything is, but that a server ends in time; waits
are bounded by minutes.
"""

import asyncio
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil
import pytest
from psycopg.conninfo import conninfo_to_dict

from helpers.cuttable_connection import CuttableLine
from helpers.in_process_service import Clock
from helpers.postgres_server import Postgres, free_port, lives
from helpers.processes import started
from helpers.service_process import (
    ADMIN_KEY,
    HANG_TIMEOUT_SECONDS,
    HOST,
    SECRET,
    Answer,
    Connection,
    Ledger,
    Redeemed,
    Server,
    Visitor,
    message,
    refusal,
    run,
    together,
    until,
)
from whitelie.service import wire
from whitelie.service.engine import administration, keys, maintenance
from whitelie.service.engine.certification import certify_where_due
from whitelie.service.engine.engine import LAST_COMMITS_TIMEOUT_SECONDS, Engine
from whitelie.service.engine.keys import hash_of
from whitelie.service.engine.learner import Learner
from whitelie.service.engine.recount import recount
from whitelie.service.engine.tokens import TokenCipher, fingerprint
from whitelie.service.experiment import changes
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.process.server import SHUTDOWN_TIMEOUT_SECONDS, make_first_key
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Counts, Key
from whitelie.service.store.postgresql.store import PostgresStore

CIPHER = TokenCipher([SECRET.encode()])
SCHEMA_VERSION = 2
OTHER_SECRET = "tests only: 1e2d3c4b5a6f7988 another"


@dataclass
class Home:
    """Where workers live: a database that they share, and a folder in which each has its log."""

    address: str
    folder: Path
    started: list[Server] = field(default_factory=list)

    def server(self, *arguments: str, address: str | None = None, **options: Any) -> Server:
        log = self.folder / f"log-{len(self.started)}"
        self.started.append(Server(address or self.address, log, *arguments, **options))
        return self.started[-1]

    def servers(self, *addresses: str | None) -> list[Server]:
        """Start servers at once; return when all of them are ready."""
        return [server.ready() for server in [self.server(address=each) for each in addresses]]

    def store(self) -> PostgresStore:
        return PostgresStore(self.address)

    @property
    def said(self) -> str:
        return "".join(server.log.read_text(encoding="utf-8") for server in self.started)

    def close(self) -> None:
        for server in self.started:
            if server.process.poll() is None:
                family = [psutil.Process(server.process.pid), *children(server)]
                for each in family:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
                server.kill()


@pytest.fixture
def home(postgres: Postgres, tmp_path: Path) -> Iterator[Home]:
    with closing(Home(postgres.new_database(), tmp_path)) as home:
        yield home


def children(server: Server) -> list[Any]:
    """Return the processes that a server has started."""
    return list(psutil.Process(server.process.pid).children())


def counted(home: Home, number: int = 1) -> Counts:
    """Return the counts of all arms of an experiment together."""
    with closing(home.store()) as store:
        totals = store.totals(number).values()
    return Counts(*map(sum, zip(*totals, strict=True)))


async def asked(server: Server, method: str, path: str) -> Answer:
    """Send one request from within an event loop."""
    connection = await Connection.opened(server.port)
    try:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        return await connection.ask(message(method, path, None, headers))
    finally:
        connection.close()


async def turns(server: Server, is_ready: bool) -> None:
    """Wait until a server says that it is ready, or that it is not."""
    async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
        while ((await asked(server, "GET", "/readyz")).status == 200) != is_ready:
            await asyncio.sleep(0.05)


def epochs_of(tokens: Sequence[str]) -> set[int]:
    """Return the epochs of servers that have issued tokens."""
    return {decision.epoch for token in tokens if (decision := CIPHER.open(token))}


async def meanwhile(
    ledger: Ledger, ports: Sequence[int], experiment: str, work: Awaitable[None]
) -> None:
    """Keep visitors busy at every port while something happens; the ports may change."""
    happening = asyncio.ensure_future(work)

    async def keep_busy(place: int) -> None:
        while not happening.done():
            await ledger.load(ports[place], experiment, 8, 0.5, again=True)

    await asyncio.gather(happening, *map(keep_busy, range(len(ports))))


def check_refusals(refusals: Sequence[Answer]) -> None:
    """Check that whoever was refused was told why, and when to come again."""
    for answer in refusals:
        assert answer.status == 503
        assert msgspec.json.decode(answer.body)["error"]["code"] == "store_unavailable"
        assert re.search(rb"\r\nretry-after: [1-9]\d*(\r\n|$)", answer.head)


def check_settled(home: Home, ledger: Ledger, ports: int | Sequence[int]) -> None:
    """Check that all that visitors were told is true, and that what is open can be settled."""
    assert not ledger.faults(home.store)
    before = len(ledger.refusals)
    run(ledger.settle(ports))
    assert len(ledger.refusals) == before
    assert not ledger.unknown
    assert not ledger.refused
    assert not ledger.faults(home.store)
    answered = counted(home).answered
    assert answered == len(ledger.accepted) > 10


# Exactly once -----------------------------------------------------------------------------------


@pytest.mark.promise("Many workers, one truth")
def test_of_64_clients_at_two_workers_each_token_is_accepted_from_one(home: Home) -> None:
    redeemed, tokens = Redeemed(), list[str]()

    async def decide(visitor: Visitor) -> None:
        tokens.extend(decision.token for decision in await visitor.decide(experiment, 500))

    servers = home.servers(None, None)
    ports = [server.port for server in servers]
    experiment = servers[0].create()
    run(together(ports, [decide, decide]))
    assert len(epochs_of(tokens)) == 2
    sizes = [(2, 7, 20, 50)[each // 2 % 4] for each in range(64)]
    run(together(ports, [redeemed.by(tokens, size) for size in sizes]))
    redeemed.check(1000)
    assert counted(home) == (1000, 1000, sum(redeemed.accepted.values()))
    with closing(home.store()) as store:
        assert store.spent_bits() == 1000
    assert [server.stop() for server in servers] == [0, 0]
    assert '"level":"error"' not in home.said


# Killed workers ---------------------------------------------------------------------------------


def survive_kills_of_a_server(home: Home, rounds: int) -> None:
    servers = home.servers(None, None)
    ports = [server.port for server in servers]
    ledger, experiment = Ledger(), servers[0].create()

    async def crash(place: int) -> None:
        await asyncio.sleep(random.uniform(0.2, 1.5))
        servers[place].kill()
        servers[place] = await asyncio.to_thread(home.server().ready)
        before, known = epochs_of(ledger.issued), len(ledger.issued)
        ports[place] = servers[place].port
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while epochs_of(ledger.issued[known:]) <= before:
                await asyncio.sleep(0.05)

    for _ in range(rounds):
        run(meanwhile(ledger, ports, experiment, crash(random.randrange(2))))
        assert not ledger.faults(home.store)
    check_settled(home, ledger, ports)
    assert len(epochs_of(ledger.issued)) == 2 + rounds
    assert not ledger.refusals
    assert '"level":"error"' not in home.said


def test_kills_of_one_of_two_servers_lose_nothing(home: Home) -> None:
    survive_kills_of_a_server(home, 3)


@pytest.mark.long
def test_ten_kills_of_one_of_two_servers_lose_nothing(home: Home) -> None:
    survive_kills_of_a_server(home, 10)


def survive_kills_of_a_worker(home: Home, rounds: int) -> None:
    server = home.server("--workers", "2").ready()
    ledger, experiment = Ledger(), server.create()

    async def crash() -> None:
        await asyncio.sleep(random.uniform(0.2, 1.5))
        alive = children(server)
        random.choice(alive).kill()
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while home.said.count('"event":"serving"') < ended + 3:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    until(lambda: home.said.count('"event":"serving"') == 2)
    for ended in range(rounds):
        run(meanwhile(ledger, [server.port], experiment, crash()))
        assert not ledger.faults(home.store)
        assert home.said.count('"event":"worker_ended"') == ended + 1
        assert len(children(server)) == 2
    check_settled(home, ledger, server.port)
    assert len(epochs_of(ledger.issued)) > 1
    assert not ledger.refusals
    assert server.stop() == 0
    assert home.said.count('"event":"stopped"') == 2
    assert '"level":"error"' not in home.said


def test_a_killed_worker_is_started_again_and_nothing_is_lost(home: Home) -> None:
    survive_kills_of_a_worker(home, 2)


@pytest.mark.long
def test_ten_killed_workers_are_started_again_and_nothing_is_lost(home: Home) -> None:
    survive_kills_of_a_worker(home, 10)


def test_workers_end_with_a_killed_supervisor_and_a_new_one_serves_on(home: Home) -> None:
    ledger, server = Ledger(), home.server("--workers", "2").ready()
    experiment, family = server.create(), until(lambda: children(server))

    async def crash() -> None:
        load = asyncio.create_task(ledger.load(server.port, experiment, 16, HANG_TIMEOUT_SECONDS))
        await asyncio.sleep(random.uniform(0.2, 1.5))
        server.kill()
        await load

    run(crash())
    assert len(family) == 2
    until(lambda: not any(map(lives, family)))
    assert not ledger.faults(home.store)
    server = home.server("--workers", "2").ready()
    run(ledger.load(server.port, experiment, 8, 0.3))
    check_settled(home, ledger, server.port)
    assert server.stop() == 0
    assert '"level":"error"' not in home.said


def test_an_interrupt_from_a_terminal_ends_all_workers_and_loses_nothing(home: Home) -> None:
    """A terminal sends it to the supervisor's group, to which workers do not belong."""
    ledger, server = Ledger(), home.server("--workers", "2").ready()
    until(lambda: home.said.count('"event":"serving"') == 2)
    experiment = server.create()

    async def interrupt() -> None:
        load = asyncio.create_task(ledger.load(server.port, experiment, 16, HANG_TIMEOUT_SECONDS))
        await asyncio.sleep(random.uniform(0.3, 0.6))
        group = os.getpgid(server.process.pid)
        assert all(os.getpgid(each.pid) != group for each in children(server))
        server.process.send_signal(signal.SIGINT)
        await load

    run(interrupt())
    assert server.process.wait(HANG_TIMEOUT_SECONDS) == 0
    assert home.said.count('"event":"stopped"') == 2
    assert not ledger.faults(home.store)
    assert '"level":"error"' not in home.said
    check_settled(home, ledger, home.server().ready().port)


# A killed database ------------------------------------------------------------------------------


def survive_kills_of_the_database(folder: Path, rounds: int) -> None:
    with Postgres() as postgres, closing(Home(postgres.new_database(), folder)) as home:
        servers = home.servers(None, None)
        ports = [server.port for server in servers]
        ledger, experiment = Ledger(), servers[0].create()

        async def crash(is_long: bool) -> None:
            await asyncio.sleep(random.uniform(0.2, 1))
            await asyncio.to_thread(postgres.kill)
            if is_long:
                for server in servers:
                    await turns(server, is_ready=False)
                    decisions = f"/v1/experiments/{experiment}/decisions"
                    for method, path in (("GET", "/readyz"), ("POST", decisions)):
                        check_refusals([await asked(server, method, path)])
                    assert (await asked(server, "GET", "/healthz")).status == 200
                    metrics = (await asked(server, "GET", "/metrics")).body
                    assert b"whitelie_store_available 0.0" in metrics
            else:
                await asyncio.sleep(random.uniform(0.2, 2))
            await asyncio.to_thread(postgres.start)
            for server in servers:
                await turns(server, is_ready=True)
            await asyncio.sleep(0.5)

        for round in range(rounds):
            run(meanwhile(ledger, ports, experiment, crash(round % 2 == 0)))
            assert not ledger.faults(home.store)
        check_refusals(ledger.refusals)
        check_settled(home, ledger, ports)
        assert [server.stop() for server in servers] == [0, 0]
        assert home.said.count("store_unavailable") == home.said.count("store_available") >= 2
        assert home.said.count('"event":"serving"') == 2
        assert '"level":"error"' not in home.said


def test_kills_of_the_database_lose_nothing_and_workers_recover_by_themselves(
    tmp_path: Path,
) -> None:
    survive_kills_of_the_database(tmp_path, 2)


@pytest.mark.long
def test_ten_kills_of_the_database_lose_nothing(tmp_path: Path) -> None:
    survive_kills_of_the_database(tmp_path, 10)


# A cut line -------------------------------------------------------------------------------------


@pytest.fixture
def lines(home: Home) -> Iterator[dict[bool, CuttableLine]]:
    """A line that will be cut silently, and one that will not."""
    with CuttableLine(home.address) as silent, CuttableLine(home.address) as loud:
        yield {True: silent, False: loud}


def test_broken_connections_to_the_database_lose_nothing(
    home: Home, lines: Mapping[bool, CuttableLine]
) -> None:
    addresses = [line.address_of(home.address) for line in lines.values()]
    *far, near = home.servers(*addresses, None)
    ports = [server.port for server in (*far, near)]
    ledger, experiment = Ledger(), near.create()

    async def refuses(server: Server, early: Sequence[str]) -> None:
        async def one(visitor: Visitor) -> None:
            assert not await ledger.decide(visitor, experiment, 1)
            for token in early:
                await ledger.report(visitor, [(token, 1)])
            assert set(early) <= ledger.refused.keys()

        await turns(server, is_ready=False)
        check_refusals([await asked(server, "GET", "/readyz")])
        await together(server.port, [one])

    async def serves(server: Server) -> None:
        async def one(visitor: Visitor) -> None:
            (token,) = await ledger.decide(visitor, experiment, 1)
            await ledger.report(visitor, [(token, 1)])
            assert token in ledger.accepted

        await turns(server, is_ready=True)
        await together(server.port, [one])

    async def cut() -> None:
        early: list[str] = []

        async def decide_early(visitor: Visitor) -> None:
            early.extend(await ledger.decide(visitor, experiment, 20))

        await together(ports[0], [decide_early])
        await asyncio.sleep(random.uniform(0.2, 0.5))
        for silently, line in lines.items():
            line.cut(silently)
        end = time.monotonic() + 5
        await asyncio.gather(refuses(far[0], early[:10]), refuses(far[1], early[10:]))
        while time.monotonic() < end:
            for server in far:
                assert (await asked(server, "GET", "/healthz")).status == 200
                assert (await asked(server, "GET", "/readyz")).status == 503
            await serves(near)
            await asyncio.sleep(0.2)
        for line in lines.values():
            line.mend()
        await asyncio.gather(*map(serves, far))

    run(meanwhile(ledger, ports, experiment, cut()))
    check_refusals(ledger.refusals)
    check_settled(home, ledger, ports)
    assert [server.stop() for server in (*far, near)] == [0, 0, 0]
    assert home.said.count("store_unavailable") == home.said.count("store_available") >= 2
    assert '"level":"error"' not in home.said


def test_idle_workers_say_that_the_database_cannot_be_reached(
    home: Home, lines: Mapping[bool, CuttableLine]
) -> None:
    servers = home.servers(*(line.address_of(home.address) for line in lines.values()))

    async def cut() -> None:
        for silently, line in lines.items():
            line.cut(silently)
        await asyncio.gather(*(turns(server, is_ready=False) for server in servers))
        for line in lines.values():
            line.mend()
        await asyncio.gather(*(turns(server, is_ready=True) for server in servers))

    run(cut())


def test_a_worker_without_its_database_does_not_say_that_an_experiment_is_unknown(
    home: Home, lines: Mapping[bool, CuttableLine]
) -> None:
    far, near = home.servers(lines[False].address_of(home.address), None)
    lines[False].cut(silently=False)
    experiment = near.create()
    item = {"token": decide(near, experiment), "bit": 1}
    asks = ("/v1/feedback", item), (f"/v1/experiments/{experiment}/decisions", None)
    check_refusals([far.ask("POST", path, body) for path, body in asks])
    lines[False].mend()
    until(lambda: far.ask("POST", *asks[0]).status == 200)
    assert report(near, str(item["token"])) == "duplicate"


def test_a_worker_that_is_killed_while_the_line_is_cut_comes_back_with_it(
    home: Home, lines: Mapping[bool, CuttableLine]
) -> None:
    line, ledger = lines[False], Ledger()
    server = home.server("--workers", "2", address=line.address_of(home.address)).ready()
    until(lambda: home.said.count('"event":"serving"') == 2)
    experiment = server.create()

    async def crash() -> None:
        await asyncio.sleep(0.5)
        line.cut(silently=False)
        children(server)[0].kill()
        await asyncio.to_thread(until, lambda: '"event":"worker_refused"' in home.said)
        line.mend()
        await asyncio.to_thread(until, lambda: home.said.count('"event":"serving"') == 3)
        await turns(server, is_ready=True)

    run(meanwhile(ledger, [server.port], experiment, crash()))
    check_refusals(ledger.refusals)
    run(ledger.load(server.port, experiment, 8, 0.3))
    check_settled(home, ledger, server.port)
    assert server.stop() == 0
    assert '"level":"error"' not in home.said


def test_a_signal_ends_servers_without_a_database(
    home: Home, lines: Mapping[bool, CuttableLine]
) -> None:
    servers = home.servers(*(line.address_of(home.address) for line in lines.values()))
    ledger, experiment = Ledger(), servers[0].create()

    async def cut_and_end() -> float:
        ports = [server.port for server in servers]
        load = asyncio.create_task(ledger.load(ports, experiment, 16, HANG_TIMEOUT_SECONDS))
        await asyncio.sleep(0.5)
        for silently, line in lines.items():
            line.cut(silently)
        for server in servers:
            await turns(server, is_ready=False)
        started = time.monotonic()
        for server in servers:
            server.process.send_signal(signal.SIGTERM)
        await load
        return started

    started = run(cut_and_end())
    for server in servers:
        assert server.process.wait(HANG_TIMEOUT_SECONDS) == 0
    assert time.monotonic() - started < 2 * (
        SHUTDOWN_TIMEOUT_SECONDS + 2 * LAST_COMMITS_TIMEOUT_SECONDS
    )
    for line in lines.values():
        line.mend()  # what was under way may arrive now
    check_refusals([answer for answer in ledger.refusals if answer.status != 500])
    check_settled(home, ledger, home.server().ready().port)


# Starts -----------------------------------------------------------------------------------------


STARTER = """
import sys
from whitelie.service.store.postgresql.store import PostgresStore

for address in sys.stdin:
    store = PostgresStore(address.strip())
    print(store.new_epoch(), flush=True)
    store.close()
"""


def test_ten_processes_make_the_schema_of_an_empty_database_once(postgres: Postgres) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                started(
                    [sys.executable, "-c", STARTER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for _ in range(10)
        ]

        def epochs(address: str) -> set[int]:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{address}\n")
            return {int(p.stdout.readline()) for p in processes if p.stdout is not None}

        epochs(postgres.new_database())  # now all of them have imported what they need
        for address in [postgres.new_database() for _ in range(3)]:
            assert epochs(address) == set(range(1, 11))
            versions = postgres.execute(address, "SELECT version FROM whitelie.state")
            assert versions == [(SCHEMA_VERSION,)]
        for process in processes:
            process.communicate(timeout=HANG_TIMEOUT_SECONDS)
            assert process.returncode == 0


@pytest.mark.long
def test_ten_servers_start_at_once_on_an_empty_database(home: Home, postgres: Postgres) -> None:
    servers = home.servers(*[None] * 10)
    versions = postgres.execute(home.address, "SELECT version FROM whitelie.state")
    assert versions == [(SCHEMA_VERSION,)]
    assert len(set(re.findall(r'"epoch":(\d+)', home.said))) == 10
    ledger, experiment = Ledger(), servers[0].create()
    ports = [server.port for server in servers]
    run(ledger.load(ports, experiment, 20, 1))
    check_settled(home, ledger, ports)
    assert [server.stop() for server in servers] == [0] * 10
    assert '"level":"error"' not in home.said


def test_of_servers_that_start_at_once_one_makes_the_first_key(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "admin-key"
    with ExitStack() as stack, ThreadPoolExecutor(6) as threads:
        stores = [stack.enter_context(closing(home.store())) for _ in range(6)]
        list(threads.map(lambda store: make_first_key(store, file), stores))
        (key,) = stores[0].keys()
        assert key == Key("first", "admin", hash_of(file.read_text().strip()))


def test_a_worker_that_may_not_come_back_leaves_its_visitors_to_the_others(home: Home) -> None:
    """Its secret has been replaced meanwhile, by servers that know both."""
    server = home.server("--workers", "2").ready()
    until(lambda: home.said.count('"event":"serving"') == 2)
    with closing(home.store()) as store:
        store.claim([b"the fingerprint of a new secret", fingerprint(SECRET.encode())])
    children(server)[0].kill()
    until(lambda: "worker_refused" in home.said)
    assert [server.ask("GET", "/healthz").status for _ in range(20)] == [200] * 20
    assert server.stop() == 0


def test_a_signal_while_workers_die_ends_the_supervisor_in_order(home: Home) -> None:
    server = home.server("--workers", "4").ready()
    family = until(lambda: children(server) if len(children(server)) == 4 else None)
    for each in family[:3]:
        each.kill()
    assert server.stop() == 0
    until(lambda: not any(map(lives, family)))


@pytest.mark.parametrize("rest", ["hush-hush@[db/decide", "hush%hush@db/decide"])
def test_a_malformed_address_is_refused_without_its_password(rest: str) -> None:
    line = refusal(f"postgresql://shop:{rest}")
    assert line.startswith("store=")
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in line
    assert "hush" not in line


@pytest.mark.parametrize(
    "address",
    [
        "host=localhost password=hush-hush",
        "postgresql://shop:hush/hush@localhost/decide",
        "postgresql://shop:hush@hush@localhost/decide",
        f"postgresql://shop:hush-hush@{HOST}:1/decide?connect_timeout=abc",
        "mysql://shop:hush-hush@localhost/decide",
    ],
)
def test_whatever_is_wrong_with_an_address_its_password_is_not_shown(address: str) -> None:
    assert "hush" not in refusal(address)


def test_a_database_that_may_only_be_read_is_refused(home: Home, postgres: Postgres) -> None:
    home.store().close()
    name = conninfo_to_dict(home.address)["dbname"]
    postgres.execute(home.address, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "read-only" in refusal(home.address)


def test_an_unknown_host_is_refused() -> None:
    line = refusal("postgresql://shop:hush-hush@nowhere.invalid/decide")
    assert "nowhere.invalid" in line
    assert "hush" not in line


def test_a_port_where_nobody_listens_is_refused() -> None:
    port = free_port()
    line = refusal(f"postgresql://shop:hush-hush@{HOST}:{port}/decide")
    assert f'"{HOST}", port {port} failed: Connection refused' in line
    assert "hush" not in line


def test_a_wrong_password_is_refused_and_not_shown(home: Home, postgres: Postgres) -> None:
    role = postgres.new_role(home.address, "right-and-hush")
    line = refusal(role.replace("right-and-hush", "wrong-and-hush"))
    assert "password authentication failed" in line
    assert "hush" not in line


def test_an_unknown_database_is_refused(postgres: Postgres) -> None:
    assert '"nowhere" does not exist' in refusal(postgres.address("nowhere"))


@pytest.mark.parametrize("is_made", [True, False], ids=["made by another", "not made"])
def test_a_role_without_privileges_is_refused(
    home: Home, postgres: Postgres, is_made: bool
) -> None:
    if is_made:
        home.store().close()
    line = refusal(postgres.new_role(home.address, "hush-hush"))
    assert "permission denied" in line
    assert "hush" not in line


def test_a_newer_schema_is_refused(home: Home, postgres: Postgres) -> None:
    home.store().close()
    postgres.execute(home.address, "UPDATE whitelie.state SET version = 99")
    assert "newer" in refusal(home.address)


@pytest.mark.parametrize("table", ["diary", "state"])
def test_tables_of_another_program_are_refused_and_left_as_they_are(
    home: Home, postgres: Postgres, table: str
) -> None:
    postgres.execute(home.address, f"CREATE SCHEMA whitelie CREATE TABLE {table} (entry text)")
    assert "another program" in refusal(home.address)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'whitelie'"
    assert postgres.execute(home.address, tables) == [(table,)]


def test_a_shared_store_needs_a_secret_from_outside(home: Home) -> None:
    assert "WHITELIE_SECRET" in refusal(home.address, WHITELIE_SECRET=None)


def test_workers_on_one_sqlite_file_are_refused(tmp_path: Path) -> None:
    assert "SQLite" in refusal(tmp_path / "whitelie.db", "--workers", "2")
    assert not list(tmp_path.iterdir())


def test_a_server_with_another_secret_is_refused_and_one_with_the_same_is_not(home: Home) -> None:
    first = home.server().ready()
    line = refusal(home.address, WHITELIE_SECRET=OTHER_SECRET)
    assert "WHITELIE_SECRET" in line
    assert OTHER_SECRET not in line
    second = home.server().ready()
    ledger, experiment = Ledger(), first.create()
    run(ledger.load([first.port, second.port], experiment, 4, 0.2))
    check_settled(home, ledger, [second.port, first.port])


def test_a_secret_is_rotated_in_two_steps_without_a_pause(home: Home) -> None:
    new_known, new_first = f"{SECRET},{OTHER_SECRET}", f"{OTHER_SECRET},{SECRET}"
    old = home.server().ready()
    experiment = old.create()
    knowing = home.server(environment={"WHITELIE_SECRET": new_known}).ready()
    tokens = [decide(server, experiment) for server in (old, knowing)]
    assert [report(old, token) for token in tokens] == ["accepted", "accepted"]
    tokens.append(decide(old, experiment))
    old.stop()
    sealing = home.server(environment={"WHITELIE_SECRET": new_first}).ready()
    tokens.append(decide(sealing, experiment))
    assert CIPHER.open(tokens[-1]) is None
    statuses = [report(knowing, token) for token in tokens]
    assert statuses == ["duplicate", "duplicate", "accepted", "accepted"]
    assert {report(sealing, token) for token in tokens} == {"duplicate"}
    assert "WHITELIE_SECRET" in refusal(home.address)


def decide(server: Server, experiment: str) -> str:
    answer = server.ask("POST", f"/v1/experiments/{experiment}/decisions")
    assert answer.status == 200, answer
    return str(msgspec.json.decode(answer.body)["decisions"][0]["token"])


def report(server: Server, token: str) -> str:
    answer = server.ask("POST", "/v1/feedback", {"items": [{"token": token, "bit": 1}]})
    return str(msgspec.json.decode(answer.body)["items"][0]["status"])


# What one worker changes, the other knows -------------------------------------------------------


def code(answer: Answer) -> str:
    return str(msgspec.json.decode(answer.body)["error"]["code"])


def test_what_one_worker_changes_the_other_knows_at_once(home: Home) -> None:
    one, other = home.servers(None, None)
    for _ in range(4):
        experiment = one.create()
        path = f"/v1/experiments/{experiment}"
        token = decide(other, experiment)
        assert report(one, token) == "accepted"
        assert report(other, token) == "duplicate"
        assert one.ask("PATCH", path, {"status": "paused"}).status == 200
        assert code(other.ask("POST", f"{path}/decisions")) == "experiment_paused"
        assert other.ask("PATCH", path, {"status": "running"}).status == 200
        token = decide(one, experiment)
        assert one.ask("DELETE", path).status == 204
        assert code(other.ask("POST", f"{path}/decisions")) == "unknown_experiment"
        assert report(other, token) == "invalid"


@pytest.mark.promise("Optimistic concurrency")
def test_after_a_pause_at_one_worker_the_other_commits_no_decision(home: Home) -> None:
    one, other = home.servers(None, None)
    experiment, ledger = one.create(), Ledger()
    path = f"/v1/experiments/{experiment}"

    async def pause() -> None:
        for _ in range(2):
            await asyncio.sleep(random.uniform(0.3, 0.6))
            paused = await asyncio.to_thread(one.ask, "PATCH", path, {"status": "paused"})
            issued = (await asyncio.to_thread(counted, home)).issued
            assert paused.status == 200
            refused = len(ledger.refusals)
            async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
                while len(ledger.refusals) < refused + 20:
                    await asyncio.sleep(0.05)
            assert (await asyncio.to_thread(counted, home)).issued == issued
            again = await asyncio.to_thread(one.ask, "PATCH", path, {"status": "running"})
            assert again.status == 200

    run(meanwhile(ledger, [other.port], experiment, pause()))
    assert {code(answer) for answer in ledger.refusals} == {"experiment_paused"}
    run(ledger.load(other.port, experiment, 8, 0.3))
    check_settled(home, ledger, [one.port, other.port])


def test_after_a_deletion_at_one_worker_the_other_counts_nothing(
    home: Home, postgres: Postgres
) -> None:
    one, other = home.servers(None, None)

    def left(number: int) -> list[tuple[Any, ...]]:
        tables = ("counts", "totals")
        query = " UNION ALL ".join(
            f"SELECT experiment, issued, answered FROM whitelie.{table} WHERE experiment = {number}"
            for table in tables
        )
        return postgres.execute(home.address, query)

    async def delete(number: int) -> None:
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while not await asyncio.to_thread(left, number):
                await asyncio.sleep(0.05)
        await asyncio.sleep(random.uniform(0.1, 0.4))
        deleted = await asyncio.to_thread(one.ask, "DELETE", f"/v1/experiments/{experiment}")
        assert deleted.status == 204
        for _ in range(5):
            assert not await asyncio.to_thread(left, number)
            await asyncio.sleep(0.2)

    for number in (1, 2):
        experiment, ledger = one.create(), Ledger()
        run(meanwhile(ledger, [other.port], experiment, delete(number)))
        assert not left(number)
        assert {code(answer) for answer in ledger.refusals} <= {
            "unknown_experiment",
            "invalid_token",
        }
        assert set(ledger.surprises) <= {
            "a report was invalid",
            "a report that was accepted before is now invalid",
        }
    assert '"level":"error"' not in home.said


BITS: tuple[Literal[0], Literal[1]] = (0, 1)


@dataclass
class Worker:
    """An engine on a store of its own, at a time of one's choice."""

    engine: Engine

    @classmethod
    async def opened(cls, home: Home, clock: Clock) -> "Worker":
        worker = cls(Engine(home.store(), lambda: [SECRET.encode()], clock=clock))
        await worker.engine.directory.refresh()
        return worker

    @property
    def learner(self) -> Learner:
        (learner,) = self.engine.directory
        return learner

    async def decide(self, count: int) -> list[str]:
        return [token for _, token in await self.engine.pipeline.decide(self.learner, count)]

    async def report(self, tokens: Sequence[str]) -> list[str]:
        items = [wire.Report(token, random.choice(BITS)) for token in tokens]
        return list(await self.engine.pipeline.report(items))


def create(store: PostgresStore, clock: Clock, **fields: Any) -> None:
    arms = [wire.NewArm(key="a"), wire.NewArm(key="b")]
    new = wire.NewExperiment(name="x", arms=arms, epsilon=1.0, window=0, spread=0, **fields)
    changes.create(store, ExperimentValidator().create(new, int(clock() // 60), None))


@pytest.mark.anyio
@pytest.mark.promise("Counts of others")
async def test_workers_know_what_others_have_issued_and_counted(home: Home) -> None:
    clock = Clock()
    with closing(home.store()) as store:
        create(store, clock)
        one, other = [await Worker.opened(home, clock) for _ in range(2)]
        tokens = await one.decide(100)
        assert other.learner.unanswered.pending.sum() == 0
        keeping = asyncio.create_task(maintenance.maintain(other.engine))
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            while not other.learner.unanswered.pending.any():  # nobody asks for it
                await asyncio.sleep(0.02)
        other.engine.end_pauses()
        await keeping
        assert list(other.learner.unanswered.pending) == list(one.learner.unanswered.pending)
        assert other.learner.unanswered.pending.sum() == 100
        assert set(await other.report(tokens[:40])) == {"accepted"}
        one.learner.is_asked = True
        await maintenance.recount_where_due(one.engine)
        for name in ("issued", "answered", "ones", "expected"):
            mine, others = getattr(one.learner, name), getattr(other.learner, name)
            assert list(mine) == list(others)
        assert one.learner.answered.sum() == 40
        assert one.learner.last_report == other.learner.last_report == one.engine.clock.minute
        clock.forward(60 * (one.learner.experiment.horizon + 2))
        for worker in (one, other):
            await maintenance.expire(worker.engine)
            pending, overdue, missing = [int(each.sum()) for each in worker.learner.unanswered]
            assert (pending, overdue, missing) == (0, 60, 0)
            assert worker.learner.likely_answers == 41
        clock.forward(60 * one.learner.experiment.lifetime)
        for worker in (one, other):
            await maintenance.expire(worker.engine)
            assert worker.learner.unanswered.pending.sum() == 0
            assert worker.learner.expired_issued.sum() == 100
            await worker.engine.close()


def test_results_and_metrics_of_every_worker_have_what_one_has_counted(home: Home) -> None:
    one, other = home.servers(None, None)
    experiment = one.create()
    until(lambda: other.ask("GET", f"/v1/experiments/{experiment}").status == 200)
    assert report(one, decide(one, experiment)) == "accepted"
    for server in (one, other):
        results = server.ask("GET", f"/v1/experiments/{experiment}/results").body
        assert msgspec.json.decode(results)["reports"] == 1
        metrics = server.ask("GET", "/metrics").body.decode()
        answered = re.findall(r"^whitelie_arm_answered\S* (\S+)$", metrics, re.MULTILINE)
        assert sum(map(float, answered)) == 1


def test_the_metrics_of_one_command_are_sums_over_its_workers(home: Home) -> None:
    server = home.server("--workers", "2").ready()
    until(lambda: home.said.count('"event":"serving"') == 2)
    ledger, experiment = Ledger(), server.create()
    run(ledger.load(server.port, experiment, 16, 0.3))
    for _ in range(10):  # whichever answers
        metrics = server.ask("GET", "/metrics").body.decode()
        assert f"whitelie_decisions_total {float(len(ledger.issued))}\n" in metrics
        assert f'{{outcome="accepted"}} {float(len(ledger.accepted))}\n' in metrics


def test_a_key_that_is_made_or_revoked_is_so_for_all_workers(home: Home) -> None:
    servers = home.servers(None, None)
    with closing(home.store()) as store:
        asked = Key("watcher", "reader", b"")
        authorization = {"Authorization": f"Bearer {keys.create(store, asked)}"}
        for status in (200, 401):
            for server in servers:
                path = "/v1/experiments"
                until(lambda: server.ask("GET", path, **authorization).status == status)
            if status == 200:
                keys.revoke(store, "watcher")


@pytest.mark.anyio
@pytest.mark.parametrize("lag", [0, 30], ids=["clocks agree", "the other's is slow"])
async def test_a_span_that_one_worker_rolls_back_stays_empty_while_the_other_counts(
    home: Home, lag: int
) -> None:
    clock, slow = Clock(), Clock()
    with closing(home.store()) as store:
        create(store, clock)
        one, other = await Worker.opened(home, clock), await Worker.opened(home, slow)
        outcomes: Counter[str] = Counter()

        async def visit(tokens: Sequence[str]) -> None:
            for start in range(0, len(tokens), 2):
                outcomes.update(await other.report(tokens[start : start + 2]))
                await other.decide(1)

        async def left() -> Mapping[Any, Counts]:
            return await asyncio.to_thread(store.history, 1, minute, minute + 1)

        for minute in range(int(clock() // 60), int(clock() // 60) + 10, 2):
            clock.now = 60 * minute + 50
            slow.now = clock.now - lag
            old = await one.decide(200) + await other.decide(200)
            clock.forward(15)
            slow.forward(15)
            visits = asyncio.gather(*(visit(old[place::8]) for place in range(8)))
            await asyncio.sleep(random.uniform(0, 0.1))
            await administration.roll_back(one.engine, one.learner, minute, minute + 1)
            assert not await left()
            await visits
            assert set(await other.report(old)) == {"expired"}
            assert not await left()
        assert outcomes.keys() == {"accepted", "expired"}
        history, totals = store.history(1, 0, 10**8).values(), store.totals(1).values()
        sums = [list(map(sum, zip(*counts, strict=True))) for counts in (history, totals)]
        assert sums[0] == sums[1]
        for worker in (one, other):
            await recount(worker.engine, [worker.learner])
            assert worker.learner.issued.sum() == sums[0][0]
            await worker.engine.close()


async def count_clearly(worker: Worker) -> None:
    """Let reports come of which one arm has far more ones."""
    opened = [(token, worker.engine.cipher.open(token)) for token in await worker.decide(2000)]
    places = [0, 0]
    items = []
    for token, decision in opened:
        assert decision is not None
        places[decision.arm] += 1
        is_one = places[decision.arm] % 10 < (7, 3)[decision.arm]
        items.append(wire.Report(token=token, bit=1 if is_one else 0))
    assert set(await worker.engine.pipeline.report(items)) == {"accepted"}


@pytest.mark.anyio
@pytest.mark.parametrize("others_arm", [None, "b"], ids=["nobody else", "the other ships"])
async def test_any_worker_certifies_what_all_have_counted_and_one_notes_it(
    home: Home, others_arm: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whitelie.service")
    clock = Clock()
    with closing(home.store()) as store:
        create(store, clock, then="ship")
        one, other = [await Worker.opened(home, clock) for _ in range(2)]
        await count_clearly(one)
        assert other.learner.answered.sum() == 0
        if others_arm is not None:
            shipped = other.learner.experiment.with_shipped(others_arm, one.engine.clock.minute)
            await administration.change(other.engine, other.learner, shipped)
        await asyncio.gather(*(certify_where_due(worker.engine) for worker in (one, other)))
        for worker in (one, other):  # whoever was late looks again
            await worker.engine.directory.refresh()
            await certify_where_due(worker.engine)
            experiment = worker.learner.experiment
            assert experiment.certified is not None
            assert experiment.certified.arm == "a"
            assert experiment.shipped is not None
            assert experiment.shipped.arm == (others_arm or "a")
            with pytest.raises(Refusal, match="shipped"):
                await worker.decide(1)
            await worker.engine.close()
        assert [record.msg for record in caplog.records].count("certified") == 1
