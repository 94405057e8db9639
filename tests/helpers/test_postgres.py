"""The tools with which stores on PostgreSQL are tested do what they say."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from helpers.cuttable_connection import CuttableLine
from helpers.postgres_server import Postgres, free_port, lives
from helpers.service_process import (
    HANG_TIMEOUT_SECONDS,
    HOST,
    Ledger,
    Visitor,
    message,
    run,
    together,
    until,
)

Later = Callable[..., Future[Any]]


@pytest.fixture
def later() -> Iterator[Later]:
    """Calls in threads, as a call may hang."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@pytest.fixture
def line(postgres: Postgres) -> Iterator[CuttableLine]:
    with CuttableLine(postgres.address("postgres")) as line:
        yield line


@pytest.fixture
def far(postgres: Postgres, line: CuttableLine) -> str:
    """A database at the other end of the line."""
    return line.address_of(postgres.new_database())


def number(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT 42").fetchone()
    assert row is not None
    return int(row[0])


# The server -------------------------------------------------------------------------------------


def test_databases_are_new(postgres: Postgres) -> None:
    addresses = {postgres.new_database() for _ in range(2)}
    assert len(addresses) == 2
    for address in addresses:
        assert postgres.execute(address, "CREATE TABLE notes (note TEXT)") == []
        postgres.execute(address, "INSERT INTO notes VALUES (%s)", ("100 %",))
        assert postgres.execute(address, "SELECT note FROM notes") == [("100 %",)]


def test_commits_are_durable_unless_a_setting_says_otherwise() -> None:
    with Postgres() as postgres:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            shown = postgres.execute(postgres.address("postgres"), f"SHOW {setting}")
            assert shown == [("on",)]


def test_a_role_has_no_privileges_and_needs_its_password(postgres: Postgres) -> None:
    address = postgres.new_database()
    role = postgres.new_role(address)
    (row,) = postgres.execute(role, "SELECT current_user, current_database()")
    assert f"//{row[0]}:" in role
    assert f"/{row[1]}?" in address
    with pytest.raises(InsufficientPrivilege):
        postgres.execute(role, "CREATE TABLE notes (note TEXT)")
    other = postgres.new_role(address, "another one")
    with pytest.raises(psycopg.OperationalError, match="password"):
        postgres.execute(other.replace("another", "wrong"), "SELECT 1")


def test_what_was_committed_survives_kills() -> None:
    with Postgres({"max_connections": "30"}, tcp=True) as server:
        address = server.new_database()
        server.execute(address, "CREATE TABLE notes (note INT)")
        for note in range(3):
            with closing(psycopg.connect(address)) as open_one:
                open_one.execute("INSERT INTO notes VALUES (-1)")
                server.execute(address, "INSERT INTO notes VALUES (%s)", (note,))
                assert server.process is not None
                family = psutil.Process(server.process.pid).children()
                server.kill()
                assert len(family) > 3
                assert not any(map(lives, family))
                with pytest.raises(psycopg.OperationalError):
                    server.execute(address, "SELECT 1")
                with pytest.raises(psycopg.OperationalError):
                    open_one.execute("SELECT 1")
            assert (server.data / "postmaster.pid").exists()
            server.start()
            notes = server.execute(address, "SELECT note FROM notes ORDER BY note")
            assert notes == [(each,) for each in range(note + 1)]
        server.stop()
        server.start()
        assert server.execute(address, "SHOW max_connections") == [("30",)]
        server.kill()
    assert not server.folder.exists()


def test_a_server_does_not_outlive_the_process_that_owns_it() -> None:
    script = (
        "import time\nfrom helpers import postgres_server\n"
        "server = postgres_server.Postgres()\n"
        "print(server.process.pid, server.folder, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        try:
            assert owner.stdout is not None
            pid, folder = owner.stdout.readline().split()
            family = psutil.Process(int(pid)).children()
            assert lives(family[0])
        finally:
            owner.kill()
    until(lambda: not Path(folder).exists())
    assert not any(map(lives, family))


# The line ---------------------------------------------------------------------------------------


def test_a_line_carries_every_byte_both_ways(far: str) -> None:
    text = "0123456789abcdef" * 500_000
    assert Postgres.execute(far, "SELECT %s::text || 'g'", (text,)) == [(f"{text}g",)]


def test_a_line_keeps_the_rest_of_an_address(postgres: Postgres, line: CuttableLine) -> None:
    role = postgres.new_role(postgres.new_database())
    far = line.address_of(f"{role}&application_name=whitelie")
    assert f"@{HOST}:{line.port}/" in far
    rows = Postgres.execute(far, "SELECT current_user, current_setting('application_name')")
    assert rows[0][0].startswith("role_")
    assert rows[0][1] == "whitelie"


def test_a_line_reaches_a_server_on_a_port() -> None:
    with socket.create_server((HOST, 0)) as server:
        address = f"postgresql://postgres@{HOST}:{server.getsockname()[1]}/name"
        with CuttableLine(address) as line, socket.create_connection((HOST, line.port)) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"there")
                assert accepted.recv(5, socket.MSG_WAITALL) == b"there"
                accepted.sendall(b"back")
                accepted.shutdown(socket.SHUT_WR)
                assert client.recv(4, socket.MSG_WAITALL) == b"back"
                assert client.recv(1) == b""


def test_a_silent_cut_holds_everything_until_it_is_mended(
    line: CuttableLine, far: str, later: Later
) -> None:
    with closing(psycopg.connect(far)) as old:
        line.cut(silently=True)
        waiting = later(number, old), later(psycopg.connect, far)
        with pytest.raises(TimeoutError):
            waiting[0].result(0.3)
        assert not any(each.done() for each in waiting)
        line.mend()
        assert waiting[0].result(HANG_TIMEOUT_SECONDS) == 42
        with closing(waiting[1].result(HANG_TIMEOUT_SECONDS)) as new:
            assert number(new) == number(old) == 42


def test_no_byte_passes_a_silent_cut_and_none_is_lost() -> None:
    """Both ends send far more than a kernel keeps, before the cut and during it."""
    sent = os.urandom(1 << 23)
    with socket.create_server((HOST, 0)) as server, ThreadPoolExecutor() as threads:
        address = f"postgresql://postgres@{HOST}:{server.getsockname()[1]}/name"
        with CuttableLine(address) as line, socket.create_connection((HOST, line.port)) as client:
            accepted, _ = server.accept()
            with accepted:
                pairs = [(client, accepted), (accepted, client)]
                sending = [threads.submit(source.sendall, sent) for source, _ in pairs]
                starts = [target.recv(1 << 16) for _, target in pairs]
                line.cut(silently=True)
                for place, (_, target) in enumerate(pairs):
                    target.setblocking(False)
                    starts[place] += drained(target)
                    assert len(starts[place]) < len(sent)
                    target.settimeout(0.2)
                    with pytest.raises(TimeoutError):
                        target.recv(1)
                line.mend()
                for start, (_, target) in zip(starts, pairs, strict=True):
                    target.settimeout(HANG_TIMEOUT_SECONDS)
                    assert start + received(target, len(sent) - len(start)) == sent
                for each in sending:
                    each.result(HANG_TIMEOUT_SECONDS)


def received(end: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = end.recv(1 << 20)
        assert piece, "the other end has ended"
        received += piece
    return received


def drained(end: socket.socket) -> bytes:
    received = b""
    try:
        while piece := end.recv(1 << 20):
            received += piece
    except BlockingIOError:
        pass
    return received


def test_a_loud_cut_breaks_connections_and_refuses_new_ones(
    line: CuttableLine, far: str, later: Later
) -> None:
    for _ in range(2):
        with closing(psycopg.connect(far)) as old:
            sleeping = later(old.execute, "SELECT pg_sleep(1000)")
            line.cut(silently=False)
            with pytest.raises(psycopg.OperationalError):
                sleeping.result(HANG_TIMEOUT_SECONDS)
            with pytest.raises(psycopg.OperationalError, match="refused"):
                later(psycopg.connect, far).result(HANG_TIMEOUT_SECONDS)
        line.mend()
        with closing(later(psycopg.connect, far).result(HANG_TIMEOUT_SECONDS)) as new:
            assert number(new) == 42


def test_a_silent_cut_can_become_a_loud_one(line: CuttableLine, far: str, later: Later) -> None:
    with closing(psycopg.connect(far)) as old:
        line.cut(silently=True)
        waiting = later(number, old), later(psycopg.connect, far)
        line.cut(silently=False)
        for each in waiting:
            with pytest.raises(psycopg.OperationalError):
                each.result(HANG_TIMEOUT_SECONDS)
        line.mend()
        with closing(later(psycopg.connect, far).result(HANG_TIMEOUT_SECONDS)) as new:
            assert number(new) == 42


# Visitors of several servers --------------------------------------------------------------------


@asynccontextmanager
async def gate(losses: int = 0) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve on a port, losing the first connections; yield the port and what was asked."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        if len(heard) > losses:
            writer.write(b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1], heard


def test_visitors_take_turns_at_the_ports() -> None:
    async def one(visitor: Visitor) -> None:
        assert (await visitor.ask(message("GET", "/"))).status == 503

    async def work() -> None:
        async with gate() as (first, some), gate(losses=1) as (second, others):
            await together([first, second], [one] * 5)
            assert (len(some), len(others)) == (3, 2)

    run(work())


def test_visitors_come_back_until_time_is_up() -> None:
    async def work() -> None:
        ledger, gone = Ledger(), free_port()
        async with gate(losses=3) as (port, heard):
            ports = [port, gone]
            load = asyncio.create_task(ledger.load(ports, "e", 2, HANG_TIMEOUT_SECONDS, again=True))
            while not ledger.refusals:
                await asyncio.sleep(0.01)
            assert len(heard) > 3
            load.cancel()
            with pytest.raises(asyncio.CancelledError):
                await load
        await ledger.load(gone, "e", 2, 0.2, again=True)
        with pytest.raises(ConnectionRefusedError):
            await ledger.load(gone, "e", 2, 0.2)
        assert ledger.asked >= 3
        assert not ledger.issued

    run(work())


def test_a_report_that_may_have_counted_stays_unknown_when_it_is_refused() -> None:
    async def work() -> None:
        ledger = Ledger()
        async with gate(losses=1) as (port, _):
            await together(port, [lambda visitor: ledger.report(visitor, [("known", 1)])])
            assert ledger.unknown == {"known": 1}
            await together(port, [lambda visitor: ledger.report(visitor, [("other", 0)])])
            assert ledger.refused == {"other": 0}
            await ledger.settle([port, port])
            assert ledger.unknown == {"known": 1}
            assert ledger.refused == {"other": 0}

    run(work())
