"""The service as a process: crashes, full disks, crowds, privacy, learning, and bad starts.

No test says how fast anything is; waits are bounded by minutes.
"""

import asyncio
import hashlib
import os
import pty
import random
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.service_process import (
    ADMIN_KEY,
    HANG_TIMEOUT_SECONDS,
    HOST,
    SECRET,
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
from whitelie.channel import RandomizedResponse
from whitelie.service.engine.keys import hash_of, new_key
from whitelie.service.engine.secrets import rotate
from whitelie.service.engine.tokens import TokenCipher
from whitelie.service.store.contract import BITS_PER_BLOCK, Decision, Key
from whitelie.service.store.sqlite.store import SQLiteStore

CIPHER = TokenCipher([SECRET.encode()])


@dataclass(frozen=True)
class Home:
    """Where a service lives: its data in a folder of their own, its log beside it."""

    data: Path
    log: Path

    @property
    def database(self) -> Path:
        return self.data / "whitelie.db"

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def server(self, *arguments: str, **options: Any) -> Server:
        return Server(self.database, self.log, *arguments, **options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    data = tmp_path / "data"
    data.mkdir()
    return Home(data, tmp_path / "log")


def execute(database: Path, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Do as the sqlite3 shell does."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


# Durable ----------------------------------------------------------------------------------------


def crash(server: Server, experiment: str, ledger: Ledger) -> None:
    """Put load on a server, and kill it at a random moment after its first answers."""
    before = len(ledger.issued) + len(ledger.refusals)

    async def load_and_kill() -> None:
        load = asyncio.create_task(ledger.load(server.port, experiment, 24, HANG_TIMEOUT_SECONDS))
        while len(ledger.issued) + len(ledger.refusals) == before and not load.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(random.uniform(0.2, 1.5))
        server.process.kill()
        await load

    run(load_and_kill())
    server.kill()


def crash_at_start(home: Home) -> None:
    """Kill a server at a random moment of its start."""
    with home.server() as server:
        time.sleep(random.uniform(0, 1))
        server.kill()


def survive(home: Home, rounds: int) -> None:
    """Crash and start again; after every crash all that visitors were told must be true."""
    ledger = Ledger()
    with home.server().ready() as server:
        experiment = server.create()
        crash(server, experiment, ledger)
    for round in range(1, rounds + 1):
        assert not ledger.faults(home.database)
        crash_at_start(home)
        with home.server().ready() as server:
            run(ledger.settle(server.port))
            assert not ledger.unknown
            assert not ledger.faults(home.database)
            if round < rounds:
                crash(server, experiment, ledger)
    epochs = {decision.epoch for token in ledger.issued if (decision := CIPHER.open(token))}
    assert len(epochs) == rounds
    assert "error" not in home.said


@pytest.mark.promise("No answer before its commit")
def test_kills_lose_nothing_acknowledged_and_count_nothing_twice(home: Home) -> None:
    survive(home, 3)


@pytest.mark.long
def test_ten_kills_lose_nothing_acknowledged_and_count_nothing_twice(home: Home) -> None:
    survive(home, 10)


def wrong_count(change: str) -> Callable[[Path, Ledger], None]:
    def doctor(database: Path, _: Ledger) -> None:
        where = "arm = (SELECT arm FROM counts WHERE ones BETWEEN 1 AND answered - 2 LIMIT 1)"
        execute(database, f"UPDATE counts SET {change} WHERE {where}")

    return doctor


def a_bit_is_cleared(database: Path, _: Ledger) -> None:
    ((epoch, block, bits),) = execute(database, "SELECT epoch, block, bits FROM spent LIMIT 1")
    number = int.from_bytes(bits)
    cleared = (number & (number - 1)).to_bytes(len(bits))
    where = "epoch = ? AND block = ?"
    execute(database, f"UPDATE spent SET bits = ? WHERE {where}", (cleared, epoch, block))


def a_decision_is_issued_twice(_: Path, ledger: Ledger) -> None:
    ledger.issued.append(ledger.issued[0])


def a_report_is_lost(_: Path, ledger: Ledger) -> None:
    ledger.accepted[next(token for token in ledger.issued if token not in ledger.accepted)] = 0


DOCTORS = [
    *(wrong_count(f"{name} = {name} {by} 1") for name in ("issued", "ones") for by in "+-"),
    *(wrong_count(f"answered = answered {by} 1") for by in "+-"),
    a_bit_is_cleared,
    a_decision_is_issued_twice,
    a_report_is_lost,
]


def test_the_ledger_sees_what_crashes_could_do(home: Home) -> None:
    """The negative control: every doctored database or ledger is found out."""
    ledger = Ledger()
    with home.server().ready() as server:
        run(ledger.load(server.port, server.create(), 8, 0.5))
        server.stop()
    assert not ledger.faults(home.database)
    for doctor in DOCTORS:
        copied = Path(shutil.copy(home.database, home.data / "doctored.db"))
        doctored = deepcopy(ledger)
        doctor(copied, doctored)
        assert doctored.faults(copied), doctor


def test_the_ledger_sees_a_commit_that_was_lost(home: Home) -> None:
    """The negative control of all that is asked of a server again: an old database comes back."""
    ledger, old = Ledger(), home.data / "old.db"
    with home.server().ready() as server:
        experiment = server.create()
        server.stop()
    shutil.copy(home.database, old)
    with home.server().ready() as server:
        run(ledger.load(server.port, experiment, 8, 0.3))
        server.stop()
    shutil.copy(old, home.database)
    with home.server().ready() as server:
        run(ledger.load(server.port, experiment, 8, 0.3))
        run(ledger.settle(server.port))
    faults = ledger.faults(home.database)
    assert any("was issued 2 times" in fault for fault in faults)
    assert "a report that was accepted before is now accepted" in faults


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_ends_streams_and_keeps_all_that_was_acknowledged(
    home: Home, end: signal.Signals
) -> None:
    ledger = Ledger()

    async def work(server: Server, experiment: str) -> None:
        load = asyncio.create_task(ledger.load(server.port, experiment, 24, HANG_TIMEOUT_SECONDS))
        idle = await Connection.opened(server.port)
        reader, writer = await asyncio.open_connection(HOST, server.port)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        writer.write(message("GET", f"/v1/experiments/{experiment}/stream", headers=headers))
        async with asyncio.timeout(HANG_TIMEOUT_SECONDS):
            await reader.readuntil(b"event: results")
            while len(ledger.accepted) <= 100:
                await asyncio.sleep(0.01)
            server.process.send_signal(end)
            rest = await reader.read()
            await load
        assert rest.endswith(b"\r\n0\r\n\r\n"), "the stream was cut, not ended"
        idle.close()
        writer.close()
        await writer.wait_closed()

    with home.server().ready() as server:
        run(work(server, server.create()))
        code = server.process.wait(HANG_TIMEOUT_SECONDS)
    assert not ledger.faults(home.database)
    assert '"event":"stopped"' in home.said
    assert "error" not in home.said, "uvicorn logs one if somebody was waited for in vain"
    assert code == 0


# A full disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Home]:
    """A home on a real disk of 16 MB, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    tool = shutil.which("mount")
    if tool is None:
        pytest.skip("there is no mount command for a small disk")
    asked = [tool, "-t", "tmpfs", "-o", "size=16m", "whitelie-tests", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield Home(folder, tmp_path / "log")
    subprocess.run(["umount", str(folder)], check=True)


NEARLY = 8 * 4096
"""Bytes that are free on a disk that is nearly full."""


def fill(folder: Path) -> Path:
    """Leave not a page free, and return the ballast."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            try:
                while stream.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
    assert shutil.disk_usage(folder).free == 0
    return ballast


def test_a_full_disk_answers_503_and_the_service_recovers_by_itself(small_disk: Home) -> None:
    ledger = Ledger()
    early: list[str] = []

    async def decide_early(visitor: Visitor) -> None:
        early.extend(await ledger.decide(visitor, experiment, 10))

    async def report_late(visitor: Visitor) -> None:
        for token in early:
            await ledger.report(visitor, [(token, 1)])

    with small_disk.server().ready() as server:
        experiment = server.create()
        run(ledger.load(server.port, experiment, 8, 0.2))
        assert not ledger.refusals
        run(together(server.port, [decide_early]))
        ballast = fill(small_disk.data)

        def refused() -> bool:
            run(ledger.load(server.port, experiment, 8, 0.2))
            return bool(ledger.refusals)

        until(refused)
        run(together(server.port, [report_late]))
        assert set(early) == ledger.refused.keys()
        readiness = server.ask("GET", "/readyz")
        assert server.ask("GET", "/healthz").status == 200
        assert server.ask("GET", f"/v1/experiments/{experiment}/results").status == 200
        for answer in (*ledger.refusals, readiness):
            assert answer.status == 503
            assert msgspec.json.decode(answer.body)["error"]["code"] == "store_unavailable"
            assert re.search(rb"\r\nretry-after: [1-9]\d*(\r\n|$)", answer.head)

        ballast.unlink()
        until(lambda: server.ask("GET", "/readyz").status == 200)
        assert not ledger.faults(small_disk.database)
        run(ledger.settle(server.port))
        run(ledger.load(server.port, experiment, 8, 0.2))
        assert not ledger.refused
        assert not ledger.faults(small_disk.database)
        assert server.stop() == 0
    assert not ledger.faults(small_disk.database)
    assert small_disk.said.count("store_unavailable") == small_disk.said.count("store_available")
    assert "error" not in small_disk.said


def test_a_nearly_full_disk_does_not_flap(small_disk: Home) -> None:
    """A small write fits where the next commit does not: that is no recovery."""
    ledger = Ledger()
    with small_disk.server().ready() as server:
        experiment = server.create()
        ballast = fill(small_disk.data)

        def refused() -> bool:
            run(ledger.load(server.port, experiment, 8, 0.2))
            return bool(ledger.refusals)

        until(refused)
        with ballast.open("r+b") as stream:
            stream.truncate(ballast.stat().st_size - NEARLY)
        for _ in range(4):
            run(ledger.load(server.port, experiment, 8, 0.3))
            assert server.ask("GET", "/readyz").status == 503
        assert small_disk.said.count("store_unavailable") == 1
        assert "store_available" not in small_disk.said
        ballast.unlink()
        until(lambda: server.ask("GET", "/readyz").status == 200)
        run(ledger.settle(server.port))
        assert not ledger.refused
        assert server.stop() == 0
    assert not ledger.faults(small_disk.database)
    assert small_disk.said.count("store_unavailable") == 1
    assert small_disk.said.count("store_available") == 1


def test_a_crash_on_a_full_disk_loses_nothing_acknowledged(small_disk: Home) -> None:
    ledger = Ledger()
    with small_disk.server().ready() as server:
        experiment = server.create()
        run(ledger.load(server.port, experiment, 8, 0.2))
        ballast = fill(small_disk.data)
        crash(server, experiment, ledger)
    assert ledger.refusals
    assert "disk" in refusal(small_disk.database)
    ballast.unlink()
    assert not ledger.faults(small_disk.database)
    with small_disk.server().ready() as server:
        run(ledger.settle(server.port))
        assert not ledger.refused
        assert not ledger.unknown
        assert not ledger.faults(small_disk.database)


# Exactly once -----------------------------------------------------------------------------------


def test_of_64_clients_with_the_same_tokens_each_token_is_accepted_from_one(home: Home) -> None:
    redeemed = Redeemed()

    async def work(port: int, experiment: str) -> None:
        visitor = await Visitor.opened(port)
        tokens = [decision.token for decision in await visitor.decide(experiment, 1000)]
        visitor.close()
        sizes = [(1, 2, 7, 20)[each % 4] for each in range(64)]
        await together(port, [redeemed.by(tokens, size) for size in sizes])

    with home.server().ready() as server:
        experiment = server.create()
        run(work(server.port, experiment))
        server.stop()
    redeemed.check(1000)
    with closing(SQLiteStore(home.database)) as store:
        totals = store.totals(1).values()
        assert sum(counts.issued for counts in totals) == 1000
        assert sum(counts.answered for counts in totals) == store.spent_bits() == 1000
        assert sum(counts.ones for counts in totals) == sum(redeemed.accepted.values())


# Private ----------------------------------------------------------------------------------------


VISITORS, VISITS = 40, 10


@dataclass(frozen=True)
class Person:
    """Somebody who could be recognised by what their browser sends."""

    number: int

    @property
    def marks(self) -> dict[str, str]:
        digest = hashlib.sha256(b"person %d" % self.number).hexdigest()
        address = f"198.51.100.{self.number}" if self.number % 2 else f"2001:db8:{digest[:4]}::77"
        return {
            "X-Forwarded-For": address,
            "User-Agent": f"Mozilla/5.0 (Lynx {digest[:12]})",
            "Cookie": f"session={digest[12:28]}",
            "Idempotency-Key": f"idempotent-{digest[28:40]}",
            "Referer": f"https://shop.example/?mail=person-{digest[40:52]}@example.org",
        }


def traces(people: Iterable[Person], tokens: Iterable[str]) -> Iterator[bytes]:
    """Yield what must not be found: marks and tokens, plain, encoded or hashed."""
    for text in (*(mark for person in people for mark in person.marks.values()), *tokens):
        yield from (text.encode(), urlsafe_b64encode(text.encode()))
        digest = hashlib.sha256(text.encode())
        yield from (digest.digest(), digest.hexdigest().encode())
    for person in people:
        address = ip_address(person.marks["X-Forwarded-For"])
        if address.version == 6:
            yield address.packed
    yield from map(raw, tokens)


def everything(home: Home) -> bytes:
    """Return every byte of every file, log and cell of every table."""
    parts = [home.log.read_bytes()]
    for file in home.data.rglob("*"):
        parts += [str(file).encode(), file.read_bytes()]
    for table in tables(home.database):
        for row in execute(home.database, f"SELECT * FROM {table}"):
            for cell in row:
                parts.append(cell if isinstance(cell, bytes) else str(cell).encode())
                parts.append(cell.hex().encode() if isinstance(cell, bytes) else b"")
    return b"\0".join(parts)


def tables(database: Path) -> dict[str, int]:
    """Return all tables and how many rows they have."""
    names = execute(database, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {
        name: count
        for (name,) in names
        for ((count,),) in [execute(database, f"SELECT count(*) FROM {name}")]
    }


def overfull(database: Path, minutes: int, decisions: int) -> list[str]:
    """Return tables with more rows than one experiment of 3 arms and 2 keys can explain."""
    most = {
        "epochs": 1,
        "experiments": 1,
        "keys": 2,
        "counts": 3 * minutes,
        "steps": 3 * minutes,
        "shown": 3,
        "spent": decisions // BITS_PER_BLOCK + 1,
        "state": 1,
        "sqlite_sequence": 2,
    }
    return [name for name, rows in tables(database).items() if rows > most.get(name, 0)]


def test_no_visitor_leaves_a_trace(home: Home) -> None:
    people = [Person(number) for number in range(1, VISITORS + 1)]
    tokens: list[str] = []
    page = new_key("publishable")
    with closing(SQLiteStore(home.database)) as store:
        store.save_key(Key("page", "publishable", hash_of(page), (), 10**6))
    first = time.time() // 60

    def visit(person: Person, experiment: str) -> Callable[[Visitor], Any]:
        async def one(visitor: Visitor) -> None:
            headers = {**person.marks, "Authorization": f"Bearer {page}"}
            for _ in range(VISITS):
                (decision,) = await visitor.decide(experiment, 1, headers)
                tokens.append(decision.token)
                await visitor.report([(decision.token, 1)], person.marks)
            for wrong in mistakes(person, tokens[-1]):
                answer = await visitor.ask(wrong)
                assert 400 <= answer.status < 500, answer

        return one

    async def garbage(port: int, person: Person) -> None:
        connection = await Connection.opened(port)
        text = f"{person.marks['Cookie']} {person.marks['User-Agent']}\r\n\r\n"
        assert (await connection.ask(text.encode())).status == 400
        connection.close()

    with home.server().ready() as server:
        experiment = server.create()
        run(together(server.port, [visit(person, experiment) for person in people]))
        run(garbage(server.port, people[0]))
        server.kill()
    minutes = int(time.time() // 60 - first) + 1
    assert len(set(tokens)) == VISITORS * VISITS
    kept = everything(home)
    assert b"whitelie.db-wal" in kept, "the log of the database was looked at too"
    assert not overfull(home.database, minutes, len(tokens))
    assert hash_of(ADMIN_KEY) in kept
    for text in (ADMIN_KEY, SECRET, page):
        assert text.encode() not in kept
    assert not [trace for trace in traces(people, tokens) if trace in kept]

    execute(home.database, "CREATE TABLE visits (at INTEGER)")
    execute(home.database, "INSERT INTO visits VALUES (1)")
    assert overfull(home.database, minutes, len(tokens)) == ["visits"]


def mistakes(person: Person, token: str) -> Iterator[bytes]:
    """Yield requests that are refused, with marks wherever a log might repeat them."""
    marks = person.marks
    mark = marks["User-Agent"].replace(" ", "+")
    yield message("GET", f"/{mark}?{marks['Cookie']}", headers=marks)
    yield message("POST", f"/v1/experiments/{mark}/decisions", {}, marks)
    yield message("POST", "/v1/feedback", marks["Cookie"].encode(), marks)
    yield message("POST", "/v1/feedback", {"token": token, "bit": marks["Cookie"]}, marks)
    yield message("POST", "/v1/feedback", {"token": marks["Referer"], "bit": 1}, marks)
    yield message("POST", "/v1/feedback", {"items": marks["Cookie"]}, marks)
    yield message("GET", "/metrics", headers={**marks, "Authorization": f"Bearer {mark}"})
    yield message("PUT", "/v1/feedback", token.encode(), marks)


def in_the_log(home: Home, trace: bytes) -> None:
    home.log.write_bytes(b"{%b}" % trace)


def in_a_file(home: Home, trace: bytes) -> None:
    (home.data / "planted").write_bytes(b"{%b}" % trace)


def in_a_blob(home: Home, trace: bytes) -> None:
    row = 1, 0, 1, trace.rjust(BITS_PER_BLOCK // 8)
    execute(home.database, "REPLACE INTO spent VALUES (?, ?, ?, ?)", row)


@pytest.mark.parametrize("plant", [in_the_log, in_a_file, in_a_blob])
def test_the_search_finds_planted_traces(home: Home, plant: Callable[[Home, bytes], None]) -> None:
    """The negative control of the search."""
    person, token = Person(2), CIPHER.seal(Decision(1, 0, 1, 0, 0, 0))
    SQLiteStore(home.database).close()
    home.log.touch()
    before = everything(home)
    for trace in traces([person], [token]):
        assert trace not in before
        plant(home, trace)
        assert trace in everything(home)


# Learns -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An arm: how often people like it, and how their devices flip what they say of it."""

    mean: float
    channel: RandomizedResponse

    def report(self, draw: random.Random, p00: float, p11: float) -> int:
        """Return what a device says, flipped as the service has told it."""
        told = RandomizedResponse(p00=p00, p11=p11)
        assert told == self.channel
        return told.flip(draw.random() < self.mean, randbits=draw.getrandbits)


def late_share_of_best(
    server: Server, options: Mapping[str, Option], policy: str, visits: int
) -> float:
    """Serve simulated visitors one by one; return the best arm's share of the last fifth."""
    arms = [
        {"key": key, "p00": option.channel.p00, "p11": option.channel.p11}
        for key, option in options.items()
    ]
    experiment = server.create(arms=arms, policy=policy)
    draw = random.Random()
    shown: list[str] = []

    async def one(visitor: Visitor) -> None:
        while len(shown) < visits:
            (decision,) = await visitor.decide(experiment)
            shown.append(decision.arm)
            coin = decision.mechanism
            bit = options[decision.arm].report(draw, coin.p00, coin.p11)
            assert await visitor.report([(decision.token, bit)]) == ["accepted"]

    run(together(server.port, [one] * 256))
    best = max(options, key=lambda key: options[key].mean)
    return shown[-visits // 5 :].count(best) / (visits // 5)


ONE = RandomizedResponse.from_epsilon(1)
EQUAL = {"low": Option(0.2, ONE), "middle": Option(0.3, ONE), "best": Option(0.6, ONE)}
UNEQUAL = {
    "worst": Option(0.2, RandomizedResponse(p00=0.26, p11=0.9)),
    "middle": Option(0.5, RandomizedResponse(p00=0.73, p11=0.73)),
    "best": Option(0.8, RandomizedResponse(p00=0.9, p11=0.26)),
}
"""Each reveals at most epsilon = 1, and the better an arm is, the rarer are its reports of 1."""


def test_most_late_traffic_goes_to_the_best_arm(home: Home) -> None:
    """The smallest share of 2,000 simulated runs was 0.985, so 0.9 is far below chance."""
    with home.server().ready() as server:
        assert late_share_of_best(server, EQUAL, "TS-CF", 50_000) > 0.9


def test_unequal_channels_mislead_the_naive_policy_and_not_the_corrected_one(home: Home) -> None:
    """Of 2,000 simulated runs the shares were 0.960 or more corrected, 0.003 or less naive."""
    learn_from_unequal_channels(home, 20_000)


@pytest.mark.long
def test_unequal_channels_mislead_the_naive_policy_for_long(home: Home) -> None:
    learn_from_unequal_channels(home, 50_000)


def learn_from_unequal_channels(home: Home, visits: int) -> None:
    rates = [option.channel.mean_feedback(option.mean) for option in UNEQUAL.values()]
    assert rates == sorted(rates, reverse=True)
    assert max(option.channel.epsilon for option in UNEQUAL.values()) <= 1
    with home.server().ready() as server:
        assert late_share_of_best(server, UNEQUAL, "TS-CF", visits) > 0.9
        assert late_share_of_best(server, UNEQUAL, "TS", visits) < 0.1


# Bad starts -------------------------------------------------------------------------------------


def test_a_port_in_use_is_refused(home: Home) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        assert f"{HOST}:{port}" in refusal(home.database, "--port", str(port))


def test_a_refused_start_leaves_nothing_behind(home: Home) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        refusal(home.database, "--port", port, WHITELIE_SECRET=None, WHITELIE_ADMIN_KEY=None)
    assert not list(home.data.iterdir())
    home.database.write_text("Dear diary, " * 1000)
    refusal(home.database, WHITELIE_SECRET=None, WHITELIE_ADMIN_KEY=None)
    assert list(home.data.iterdir()) == [home.database]


def test_an_address_of_another_machine_is_refused(home: Home) -> None:
    assert "192.0.2.1" in refusal(home.database, "--host", "192.0.2.1")


def test_a_second_server_on_the_same_file_is_refused_and_the_first_continues(home: Home) -> None:
    with home.server().ready() as server:
        assert "another server uses it" in refusal(home.database)
        (link := home.data / "link.db").symlink_to(home.database)
        assert "another server uses it" in refusal(link)
        experiment = server.create()
        ledger = Ledger()
        run(ledger.load(server.port, experiment, 2, 0.1))
        assert not ledger.faults(home.database)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(home: Home) -> None:
    home.database.write_text("Dear diary, " * 1000)
    assert "not a SQLite database" in refusal(home.database)
    assert home.database.read_text() == "Dear diary, " * 1000


def test_a_database_of_another_program_is_refused(home: Home) -> None:
    execute(home.database, "CREATE TABLE diary (entry TEXT)")
    assert "another program's database" in refusal(home.database)


def test_a_damaged_database_is_refused(home: Home) -> None:
    SQLiteStore(home.database).close()
    whole = home.database.read_bytes()
    home.database.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    assert "damaged" in refusal(home.database)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing/whitelie.db", "there is no folder"),
        ("file/whitelie.db", "there is no folder"),
        ("folder", "give the path of a file"),
    ],
)
def test_a_path_that_cannot_hold_a_database_is_refused(home: Home, path: str, reason: str) -> None:
    (home.data / "file").touch()
    (home.data / "folder").mkdir()
    assert reason in refusal(home.data / path)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    assert "/proc/whitelie.db" in refusal(Path("/proc/whitelie.db"))


NO_TEXT = os.fsdecode(b"\xff" * 40)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WHITELIE_SECRET", "short-and-secret"),
        ("WHITELIE_SECRET", ""),
        ("WHITELIE_SECRET", f"{SECRET},short-and-secret"),
        ("WHITELIE_SECRET", NO_TEXT),
        ("WHITELIE_ADMIN_KEY", "ak_short-and-secret"),
        ("WHITELIE_ADMIN_KEY", ""),
        ("WHITELIE_ADMIN_KEY", "not-an-admin-key-but-long-and-secret"),
        ("WHITELIE_ADMIN_KEY", f"ak_{NO_TEXT}"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_bad_secret_or_key_is_refused_and_not_shown(home: Home, name: str, value: str) -> None:
    line = refusal(home.database, **{name: value})
    assert name in line
    assert not value or value not in line


@pytest.mark.parametrize(
    "content", [b"", b"short\n", b"\xff" * 40], ids=["empty", "short", "no text"]
)
def test_a_bad_secret_file_is_refused(home: Home, content: bytes) -> None:
    (home.data / "whitelie.db.secret").write_bytes(content)
    assert "whitelie.db.secret" in refusal(home.database, WHITELIE_SECRET=None)


# First starts -----------------------------------------------------------------------------------


def is_private(file: Path) -> bool:
    return stat.S_IMODE(file.stat().st_mode) == 0o600


def is_good(server: Server, key: str) -> bool:
    headers = {"Authorization": f"Bearer {key}"}
    return server.ask("GET", "/v1/experiments", **headers).status == 200


def test_the_first_start_writes_a_key_that_only_its_owner_reads(home: Home) -> None:
    file = home.data / "whitelie.db.admin-key"
    none = {"WHITELIE_ADMIN_KEY": None, "WHITELIE_SECRET": None}
    for _ in range(2):
        with home.server(environment=none).ready() as server:
            key = file.read_text().strip()
            assert is_good(server, key)
            assert not is_good(server, ADMIN_KEY)
            server.kill()
        assert home.said.count("admin_key_written") == 1
    assert is_private(file)
    assert is_private(home.data / "whitelie.db.secret")
    assert is_private(home.database)
    secret = (home.data / "whitelie.db.secret").read_text().strip()
    file.unlink()
    (home.data / "whitelie.db.secret").unlink()
    kept = everything(home)
    assert hash_of(key) in kept
    assert key.encode() not in kept
    assert secret.encode() not in kept


def test_the_first_start_shows_the_key_on_a_terminal_and_nowhere_else(home: Home) -> None:
    ours, theirs = pty.openpty()
    try:
        none = {"WHITELIE_ADMIN_KEY": None}
        with home.server(environment=none, stdout=theirs).ready() as server:
            shown = os.read(ours, 1000).decode()
            key = re.search(r"ak_[\w-]{32,}", shown)
            assert key, shown
            assert is_good(server, key[0])
            server.kill()
    finally:
        os.close(ours)
        os.close(theirs)
    assert not (home.data / "whitelie.db.admin-key").exists()
    assert key[0].encode() not in everything(home)


def decide(server: Server, experiment: str) -> str:
    answer = server.ask("POST", f"/v1/experiments/{experiment}/decisions")
    return str(msgspec.json.decode(answer.body)["decisions"][0]["token"])


def report(server: Server, token: str) -> str:
    answer = server.ask("POST", "/v1/feedback", {"items": [{"token": token, "bit": 1}]})
    return str(msgspec.json.decode(answer.body)["items"][0]["status"])


def test_a_secret_is_rotated_while_the_service_runs(home: Home) -> None:
    file = home.data / "whitelie.db.secret"

    with home.server(environment={"WHITELIE_SECRET": None}).ready() as server:
        experiment = server.create()
        old = [decide(server, experiment) for _ in range(3)]
        assert report(server, old[0]) == "accepted"
        rotate(file)
        newest = TokenCipher([file.read_bytes().split()[0]])
        assert newest.open(old[0]) is None
        new = until(lambda: token if newest.open(token := decide(server, experiment)) else None)
        statuses = [report(server, token) for token in (*old, new, new)]
        assert statuses == ["duplicate", "accepted", "accepted", "accepted", "duplicate"]
        server.kill()
    assert is_private(file)
    with home.server(environment={"WHITELIE_SECRET": None}).ready() as server:
        assert {report(server, token) for token in (*old, new)} == {"duplicate"}


def test_a_secret_file_that_is_spoilt_while_the_service_runs_changes_nothing(home: Home) -> None:
    """It is empty, too short, no text, or a folder, for several reloads each."""
    file = home.data / "whitelie.db.secret"
    with home.server(environment={"WHITELIE_SECRET": None}).ready() as server:
        experiment = server.create()
        good = file.read_bytes()
        for content in (b"", b"short\n", b"\xff" * 40, None):
            old = decide(server, experiment)
            file.unlink()
            if content is None:
                file.mkdir()
            else:
                file.write_bytes(content)
            time.sleep(1)
            late = decide(server, experiment)
            assert [report(server, token) for token in (old, late)] == ["accepted", "accepted"]
        file.rmdir()
        file.write_bytes(good)
        rotate(file)
        newest = TokenCipher([file.read_bytes().split()[0]])
        until(lambda: newest.open(decide(server, experiment)))
        assert report(server, late) == "duplicate"
        assert server.stop() == 0


def raw(token: str) -> bytes:
    return urlsafe_b64decode(f"{token}==")
