"""Measure several workers on one PostgreSQL and write WORKERS.md beside this file.

Database, workers and load share this machine. Workers are processes on ports of their own, each
with a load of its own. `--quick` is a smoke run and writes no record.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import load
import msgspec
import uvloop
from bench import processor

from service import (
    BATCH,
    BIN,
    KEY,
    SECRET,
    SINGLE,
    TICKS_PER_SECOND,
    Server,
    await_ready,
    cpu_of,
    free_port,
    git,
)

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from helpers.postgres_server import Postgres

RECORD = Path(__file__).resolve().parent / "WORKERS.md"
CORES_PER_WORKER = 0.25
"""Cores that each worker may use where the machine's cores shall not be the limit."""

RATES = 0.8, 0.4, 0.2
VISITORS = 50_000
EPSILON = 1.0
CONNECTIONS = 4
"""Connections of one experiment."""

VISITORS_AT_ONCE = 10
"""Visitors who come together on each connection."""

EXPERIMENTS_AT_ONCE = 8
"""Experiments that run side by side."""


class Database(Postgres):
    """The PostgreSQL of the tests, with its usual settings."""

    @property
    def version(self) -> str:
        ((version,),) = self.execute(self.address("postgres"), "SHOW server_version")
        return str(version)

    def cpu(self) -> float:
        """Return the seconds of CPU that the server and its children have used."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ended = int(fields[13]) + int(fields[14])
        return cpu_of(self.process.pid) + ended / TICKS_PER_SECOND


@contextlib.contextmanager
def limited(cores: float | None) -> Iterator[Path | None]:
    """Make a control group whose processes use no more than so many cores; None is no limit."""
    if cores is None:
        yield None
        return
    root = Path("/sys/fs/cgroup")
    group = (root / "cpu" if (root / "cpu").is_dir() else root) / f"whitelie-{random.random()}"
    group.mkdir()
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text(str(int(100_000 * cores)))
        else:
            (group / "cpu.max").write_text(f"{int(100_000 * cores)} 100000")
        yield group
    finally:
        group.rmdir()


@contextlib.contextmanager
def worker(address: str, folder: Path, cores: float | None) -> Iterator[Server]:
    """Start a worker on a port of its own, wait until it is ready, and stop it by its id."""
    port = free_port()
    environment = {**os.environ, "WHITELIE_ADMIN_KEY": KEY, "WHITELIE_SECRET": SECRET}
    command = [str(BIN / "whitelie"), "serve", "--store", address, "--port", str(port)]
    log = folder / f"log-{port}"
    with limited(cores) as group, log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=folder)
        try:
            await_ready("whitelie", process, port, log)
            if group is not None:
                (group / "cgroup.procs").write_text(str(process.pid))
            yield Server(process, port, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@dataclasses.dataclass
class Bench:
    """The runs, and what was measured."""

    database: Database
    folder: Path
    share: float
    speeds: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def workers(self, number: int, cores: float | None = None) -> Iterator[list[Server]]:
        """Serve one new database with so many workers."""
        address = self.database.new_database()
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(worker(address, self.folder, cores)) for _ in range(number)]

    def speed(self, title: str, number: int, form: dict[str, int], cores: float | None) -> None:
        """Put load on workers and write down how many pairs they did, and who used the cores."""
        with self.workers(number, cores) as servers:
            experiment = load.create(servers[0].port, KEY)["id"]
            plans = [
                load.Plan(
                    port=server.port,
                    experiment=experiment,
                    key=KEY,
                    seconds=max(1.0, 10 * self.share),
                    count=form["count"],
                    connections=form["connections"],
                )
                for server in servers
            ]
            start, before = time.monotonic(), self.used(servers)
            loads = os.times()
            with ThreadPoolExecutor(number) as threads:
                loads = list(threads.map(load.spawn, plans))
            wall = time.monotonic() - start
            shares = [(b - a) / wall for a, b in zip(before, self.used(servers), strict=True)]
            loads_after = os.times()
        latencies = [kind for each in loads for kind in each["latency_ms"].values()]
        row = {
            "per_second": sum(each["per_second"] for each in loads),
            "p50": max(kind["p50"] for kind in latencies),
            "p99": max(kind["p99"] for kind in latencies),
            "workers": shares[0],
            "database": shares[1],
            "load": (sum(loads_after[2:4]) - sum(loads[2:4])) / wall,
            "errors": sum(each["errors"] for each in loads),
        }
        self.speeds[title] = row
        print(f"  {title}: " + ", ".join(f"{k} {v:,.2f}" for k, v in row.items()), flush=True)

    def used(self, servers: Sequence[Server]) -> tuple[float, float]:
        return sum(server.cpu() for server in servers), self.database.cpu()

    def learn(self, number: int) -> list[float]:
        """Return the regret of experiments of 50,000 visitors each, through so many workers."""
        replicates = max(EXPERIMENTS_AT_ONCE, int(200 * self.share))
        regrets: list[float] = []
        start = time.monotonic()
        with self.workers(number) as servers:
            ports = [server.port for server in servers]
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                for first in range(0, replicates, EXPERIMENTS_AT_ONCE):
                    regrets += runner.run(several(ports, first))
        print(
            f"  {number} workers: regret {statistics.mean(regrets):.1f} ± {error(regrets):.1f} "
            f"over {len(regrets)} experiments, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        return regrets


class Decided(msgspec.Struct):
    arm: str
    token: str


class Decisions(msgspec.Struct):
    decisions: list[Decided]


class Arm(msgspec.Struct):
    key: str
    issued: int


class Results(msgspec.Struct):
    arms: list[Arm]


class Client:
    """One connection of visitors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection(load.HOST, port))

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        content = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        length = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._writer.write((head + length).encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await self._reader.readexactly(size)
        assert answer.startswith(b"http/1.1 2"), body
        return body

    def close(self) -> None:
        self._writer.close()


async def several(ports: Sequence[int], first: int) -> list[float]:
    return await asyncio.gather(
        *(regret(ports, first + each) for each in range(EXPERIMENTS_AT_ONCE))
    )


async def regret(ports: Sequence[int], number: int) -> float:
    """Let visitors come to one experiment, spread over all workers; return its regret."""
    name = f"/v1/experiments/learning-{number}"
    clients = [await Client.to(ports[(number + each) % len(ports)]) for each in range(CONNECTIONS)]
    arms = [{"key": str(arm)} for arm in range(len(RATES))]
    new = {"name": f"Learning {number}", "arms": arms, "epsilon": EPSILON, "window": 0, "spread": 0}
    await clients[0].ask("POST", "/v1/experiments", new)
    rounds = iter(range(VISITORS // VISITORS_AT_ONCE))
    truth = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    ones = {str(arm): rate * truth + (1 - rate) * (1 - truth) for arm, rate in enumerate(RATES)}
    decoder = msgspec.json.Decoder(Decisions)

    async def stream(client: Client) -> None:
        for _ in rounds:
            decided = await client.ask("POST", f"{name}/decisions", {"count": VISITORS_AT_ONCE})
            items = [
                {"token": each.token, "bit": int(random.random() < ones[each.arm])}
                for each in decoder.decode(decided).decisions
            ]
            await client.ask("POST", "/v1/feedback", {"items": items})

    await asyncio.gather(*map(stream, clients))
    results = msgspec.json.decode(await clients[0].ask("GET", f"{name}/results"), type=Results)
    assert sum(arm.issued for arm in results.arms) == VISITORS
    await clients[0].ask("PATCH", name, {"status": "stopped"})
    for client in clients:
        client.close()
    return sum((max(RATES) - RATES[int(arm.key)]) * arm.issued for arm in results.arms)


def error(values: Sequence[float]) -> float:
    """Return the standard error of a mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


def ratio(two: Sequence[float], one: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of two means and its 95 % interval, by the delta method on its logarithm."""
    means = statistics.mean(two), statistics.mean(one)
    spread = math.hypot(error(two) / means[0], error(one) / means[1])
    middle = means[0] / means[1]
    return middle, middle * math.exp(-1.96 * spread), middle * math.exp(1.96 * spread)


FORMS = (("in batches of 100", BATCH), ("one by one", SINGLE))


def page(bench: Bench, one: Sequence[float], two: Sequence[float]) -> str:
    names = ("whitelie", "psycopg", "uvicorn", "uvloop", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    changed = " with uncommitted changes" if git("status", "--porcelain", "--", "../src") else ""
    lines = [
        "| run | pairs/s | p50, p99 ms | cores: workers | PostgreSQL | load | errors |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for title, row in bench.speeds.items():
        cells = [
            title,
            f"{row['per_second']:,.0f}",
            f"{row['p50']:.1f}, {row['p99']:.1f}",
            *(f"{row[who]:.2f}" for who in ("workers", "database", "load")),
            f"{row['errors']:,}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    table = ["| figure | measured | goal | met |", "|---|---:|---:|---|"]
    for name, got, goal, ok in figures(bench, one, two):
        table.append(f"| {name} | {got} | {goal} | {'yes' if ok else '**no**'} |")
    return "\n\n".join(
        [
            "# Several workers on one PostgreSQL, measured",
            f"Made by `make bench-workers` on {datetime.date.today()}: {processor()}, "
            f"{os.cpu_count()} cores for PostgreSQL {bench.database.version}, workers and load "
            f"together, Python {platform.python_version()}, {versions}, "
            f"commit {git('rev-parse', '--short', 'HEAD')}{changed}.",
            "A pair is a decision and its feedback, each answered after its commit (fsync and "
            "synchronous_commit on); 10 arms. Every worker is a process on a port of its own, with "
            "a load of its own over 128 connections, or 32 in batches. Where a run says so, every "
            f"worker may use {CORES_PER_WORKER} of a core. Latencies are those of the slower "
            "worker and of the slower of decide and feedback.",
            "\n".join(table),
            "## Runs",
            "\n".join(lines),
            "## Learning",
            f"Experiments of {VISITORS:,} visitors each, at ε = {EPSILON:g}, with true rates "
            f"{', '.join(map(str, RATES))}: {len(one)} through one worker and {len(two)} through "
            f"two, {EXPERIMENTS_AT_ONCE} side by side, each on {CONNECTIONS} connections that "
            f"alternate between the workers and bring {VISITORS_AT_ONCE} visitors at once. Regret "
            "is the reward lost against always showing the best arm; ± is the standard error.",
            f"- one worker: {statistics.mean(one):.2f} ± {error(one):.2f}\n"
            f"- two workers: {statistics.mean(two):.2f} ± {error(two):.2f}",
        ]
    )


def figures(
    bench: Bench, one: Sequence[float], two: Sequence[float]
) -> list[tuple[str, str, str, bool]]:
    """Return figure, measured, goal and whether it is met."""
    checks = []
    for form, _ in FORMS:
        for limit in ("", f", {CORES_PER_WORKER} of a core each"):
            pair = [bench.speeds.get(f"{n} {form}{limit}") for n in ("one worker", "two workers")]
            if pair[0] is None or pair[1] is None:
                continue
            times = pair[1]["per_second"] / pair[0]["per_second"]
            checks.append(
                (f"two workers over one, {form}{limit}", f"{times:.2f}", "≥ 1.6", times >= 1.6)
            )
    fast = bench.speeds["two workers in batches of 100"]["per_second"]
    checks.append(
        ("pairs/s of two workers in batches of 100", f"{fast:,.0f}", "≥ 30,000", fast >= 30_000)
    )
    middle, low, high = ratio(two, one)
    regrets = f"{middle:.3f} (95 %: {low:.3f} to {high:.3f})"
    checks.append(("regret of two workers over one", regrets, "≤ 1.10", middle <= 1.1))
    wrong = sum(row["errors"] for row in bench.speeds.values())
    checks.append(("errors: refused, lost or not accepted", f"{wrong:,}", "0", wrong == 0))
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whitelie-bench-") as name, Database() as database:
        bench = Bench(database, Path(name), 0.1 if options.quick else 1.0)
        for cores in (None, CORES_PER_WORKER):
            limit = "" if cores is None else f", {cores} of a core each"
            for form, plan in FORMS:
                for number, title in ((1, "one worker"), (2, "two workers")):
                    try:
                        bench.speed(f"{title} {form}{limit}", number, plan, cores)
                    except PermissionError:
                        print("  control groups need root: that run is left out", flush=True)
        text = page(bench, bench.learn(1), bench.learn(2)) + "\n"
    print(text)
    if not options.quick:
        RECORD.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
