"""The service as a process: crashes, full disks, crowds, privacy, learning, and bad starts.

No test asserts how fast anything is: waits are bounded by minutes.
"""

import asyncio
import hashlib
import json
import os
import pty
import random
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import time
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from process import (
    ADMIN_KEY,
    HOST,
    PATIENCE,
    SECRET,
    Connection,
    Ledger,
    Refused,
    Server,
    Visitor,
    command,
    message,
    run,
    together,
    until,
    variables,
)
from whitelie.channel import RandomizedResponse
from whitelie.service.keys import hash_of, new_key
from whitelie.service.secret import rotate
from whitelie.service.store import BLOCK, Key
from whitelie.service.store.sqlite import SQLiteStore
from whitelie.service.token import Seal


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


def execute(database: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Do as the sqlite3 shell does; return the rows of the last statement."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


# Durable ----------------------------------------------------------------------------------------


def crash(home: Home, server: Server, experiment: str, ledger: Ledger) -> None:
    """Put load on a server, and kill it at a random moment."""
    moment = random.uniform(0.05, 1.5)

    async def load_and_kill() -> None:
        load = asyncio.create_task(ledger.load(server.port, experiment, 24, PATIENCE))
        await asyncio.sleep(moment)
        server.process.kill()
        await load

    run(load_and_kill())
    server.kill()


def crash_at_start(home: Home) -> None:
    """Kill a server at a random moment of its start."""
    with home.server() as server:
        time.sleep(random.uniform(0, 1))
        server.kill()


def survive(home: Home, rounds: int) -> Ledger:
    """Crash and start again; after every crash all that was told must be true."""
    ledger = Ledger()
    server = home.server().ready()
    experiment = server.create()
    for _ in range(rounds):
        with server:
            crash(home, server, experiment, ledger)
        assert not ledger.faults(home.database)
        crash_at_start(home)
        server = home.server().ready()
        run(ledger.settle(server.port))
        assert not ledger.unknown
        assert not ledger.faults(home.database)
    assert server.stop() == 0
    assert not ledger.faults(home.database)
    assert len(ledger.accepted) > 10 * rounds
    assert "internal_error" not in home.said
    return ledger


def test_nothing_acknowledged_is_lost_or_counted_twice_when_the_process_is_killed(
    home: Home,
) -> None:
    survive(home, 3)


@pytest.mark.long
def test_ten_kills_lose_nothing_and_count_nothing_twice(home: Home) -> None:
    ledger = survive(home, 10)
    epochs = {decision.epoch for token in ledger.issued if (decision := SEAL.open(token))}
    assert len(epochs) == 10


SEAL = Seal([SECRET.encode()])


@pytest.fixture
def kept(home: Home) -> tuple[Home, Ledger]:
    """A database and the ledger of its visitors, without faults."""
    ledger = Ledger()
    with home.server().ready() as server:
        experiment = server.create()
        run(ledger.load(server.port, experiment, 8, 0.5))
        server.stop()
    assert not ledger.faults(home.database)
    assert min(ledger.accepted.values()) < max(ledger.accepted.values())
    return home, ledger


LESS = "UPDATE counts SET {} WHERE rowid_of = (SELECT 1)"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE counts SET issued = issued - 1000000 WHERE false",
        "issued = issued + 1",
        "issued = issued - 1",
        "answered = answered + 1",
        "answered = answered - 1",
        "ones = ones + 1",
        "ones = ones - 1",
    ],
)
def test_the_ledger_sees_a_wrong_count(kept: tuple[Home, Ledger], change: str) -> None:
    home, ledger = kept
    if change.startswith("UPDATE"):
        execute(home.database, change)
        assert not ledger.faults(home.database)
        return
    where = "arm = (SELECT arm FROM counts WHERE ones BETWEEN 1 AND answered - 2 LIMIT 1)"
    execute(home.database, f"UPDATE counts SET {change} WHERE {where}")
    assert ledger.faults(home.database)
