"""Measure `whitelie serve` beside a FastAPI equivalent and write SERVICE.md beside this file.

Everything runs on this machine over loopback, with the load in a process of its own. `--quick` is a
smoke run of half a minute and `--stand-in` puts the peer in our place; neither writes the record.
"""

import argparse
import contextlib
import dataclasses
import datetime
import os
import platform
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import load
from bench import processor

HERE = Path(__file__).resolve().parent
RECORD = HERE / "SERVICE.md"
BIN = Path(sys.executable).parent
KEY = "ak_" + secrets.token_urlsafe(32)
SECRET = secrets.token_urlsafe(32)
SINGLE = {"count": 1, "connections": 128}
BATCH = {"count": 100, "connections": 32}
UVICORN = ("--host=127.0.0.1", "--loop=uvloop", "--http=httptools", "--no-access-log")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Server:
    """A server that this program started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def memory(self) -> float:
        """Return the resident memory in megabytes."""
        total = 0
        for pid in family(self.process.pid):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        return total * 1024 / 1e6

    def cpu(self) -> float:
        """Return the seconds of CPU used so far."""
        return cpu_of(self.process.pid)


def family(pid: int) -> list[int]:
    """Return the ids of a process and its living descendants."""
    processes, queue = [], [pid]
    while queue:
        pid = queue.pop()
        processes.append(pid)
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            queue += map(int, children.split())
    return processes


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process and its living descendants have used."""
    ticks = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def busy() -> float:
    """Return the seconds for which this machine's cores have been busy."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
    return (sum(fields[:8]) - fields[3] - fields[4]) / TICKS_PER_SECOND


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((load.HOST, 0))
        return int(probe.getsockname()[1])


def command(kind: str, port: int, folder: Path) -> list[str]:
    """Return the command line of a server."""
    if kind == "whitelie":
        store = f"sqlite:///{folder / 'store.db'}"
        where = ["--host", load.HOST, "--port", str(port)]
        return [str(BIN / "whitelie"), "serve", "--store", store, *where]
    module = "trivial:app" if kind == "trivial" else "fastapi_peer:app"
    workers = "--workers=2" if "two" in kind else "--workers=1"
    options = [f"--app-dir={HERE}", f"--port={port}", workers, "--log-level=warning", *UVICORN]
    return [sys.executable, "-m", "uvicorn", module, *options]


@contextlib.contextmanager
def serving(kind: str) -> Iterator[Server]:
    """Start a server on a fresh store, wait until it is ready, and stop it by its id."""
    with tempfile.TemporaryDirectory(prefix="whitelie-bench-") as name:
        folder = Path(name)
        port = free_port()
        environment = {
            **os.environ,
            "WHITELIE_ADMIN_KEY": KEY,
            "WHITELIE_SECRET": SECRET,
            "PEER_STORE": str(folder / "peer.db"),
        }
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command(kind, port, folder), env=environment, stdout=out, stderr=out, cwd=folder
            )
        try:
            await_ready(kind, process, port, log)
            yield Server(process, port, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_ready(kind: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://{load.HOST}:{port}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"{kind} did not become ready:\n{log.read_text()[-3000:]}")


def quantiles(kind: dict[str, Any]) -> str:
    """Return p50 and p99 in milliseconds as text."""
    return f"{kind['p50']:.1f}, {kind['p99']:.1f}" if kind["requests"] else "–"


@dataclasses.dataclass
class Bench:
    """The runs, with what was measured: figures by name, and everything said on the way."""

    ours: str
    share: float
    results: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    elsewhere: list[float] = dataclasses.field(default_factory=list)

    def run(self, name: str, server: Server, experiment: str, **options: Any) -> dict[str, Any]:
        """Put one load on a server, and see what it cost and who else used the machine."""
        if "seconds" in options:
            options["seconds"] = max(1.0, options["seconds"] * self.share)
        plan = load.Plan(port=server.port, experiment=experiment, key=KEY, **options)
        start, used, all_used = time.monotonic(), server.cpu(), busy()
        before = os.times()
        figures = load.spawn(plan)
        after = os.times()
        wall = time.monotonic() - start
        load_cpu = sum(after[:4]) - sum(before[:4])
        server_cpu = server.cpu() - used
        figures["server_cpu"] = server_cpu / wall
        figures["elsewhere"] = max(0.0, busy() - all_used - server_cpu - load_cpu) / wall
        self.elsewhere.append(figures["elsewhere"])
        self.results[name] = figures
        speed = f"{figures['per_second']:,.0f}/s"
        times = quantiles(figures["latency_ms"]["decide"])
        print(
            f"  {name}: {speed}, decide p50, p99 {times} ms, "
            f"CPU server {figures['server_cpu']:.2f} load {figures['load_cpu']:.2f} "
            f"elsewhere {figures['elsewhere']:.2f}, errors {figures['error_kinds'] or 'none'} "
            f"{figures['error_sample']}",
            flush=True,
        )
        return figures

    def trivial(self) -> None:
        with serving("trivial") as server:
            self.run("trivial single", server, "trivial", seconds=4, **SINGLE)

    def peer(self) -> None:
        for kind in ("peer", "peer of two workers"):
            with serving(kind) as server:
                experiment = load.create(server.port, KEY)["id"]
                self.run(f"{kind} single", server, experiment, seconds=8, **SINGLE)
                self.run(f"{kind} batch", server, experiment, seconds=8, **BATCH)

    def whitelie(self) -> None:
        with serving(self.ours) as server:
            experiment = load.create(server.port, KEY)["id"]
            self.run("ours single", server, experiment, seconds=15, **SINGLE)
            self.run("ours batch", server, experiment, seconds=10, **BATCH)

    def arms(self) -> None:
        """Decisions only, after answers have been learned from, for few and many arms."""
        with serving(self.ours) as server:
            for arms in (10, 1000):
                experiment = load.create(server.port, KEY, arms, name=f"Arms {arms}")["id"]
                self.run(f"learning K={arms}", server, experiment, seconds=2, **BATCH)
                for name, form in (("single", SINGLE), ("batch", BATCH)):
                    title = f"decide {name} K={arms}"
                    self.run(title, server, experiment, mode="decide", seconds=6, **form)

    def policies(self) -> None:
        """Decisions of two policies in turn, on one server, so that both see the same machine."""
        with serving(self.ours) as server:
            made = {}
            for policy in ("TS-CF", "TopTwo-CF"):
                made[policy] = load.create(server.port, KEY, name=policy, policy=policy)["id"]
                self.run(f"learning {policy}", server, made[policy], seconds=2, **BATCH)
            for name, form in (("single", SINGLE), ("batch", BATCH)):
                for number in (1, 2, 3):
                    for policy, experiment in made.items():
                        title = f"decide {name} {policy} {number}"
                        self.run(title, server, experiment, mode="decide", seconds=3, **form)

    def times_slower(self, form: str) -> float:
        """Return how much longer top-two sampling takes for a decision: the median of pairs."""
        speeds = [
            [self.results[f"decide {form} {policy} {i}"]["per_second"] for i in (1, 2, 3)]
            for policy in ("TS-CF", "TopTwo-CF")
        ]
        return statistics.median(a / b for a, b in zip(*speeds, strict=True))

    @property
    def many(self) -> int:
        return 1_000_000 if self.share == 1 else 20_000

    def memory(self) -> tuple[float, float]:
        """Return megabytes after a tenth of the decisions and after all of them."""
        many = self.many
        with serving(self.ours) as server:
            experiment = load.create(server.port, KEY)["id"]
            sizes = []
            for total in (many // 10, many - many // 10):
                self.run(f"memory {total:,} pairs", server, experiment, total=total, **BATCH)
                sizes.append(server.memory())
            print(f"  resident: {sizes[0]:.0f} MB, then {sizes[1]:.0f} MB", flush=True)
        return sizes[0], sizes[1]


def best(bench: Bench, form: str) -> tuple[str, dict[str, Any]]:
    """Return the peer's better arrangement for a form of request."""
    names = [f"{kind} {form}" for kind in ("peer", "peer of two workers")]
    name = max(names, key=lambda one: float(bench.results[one]["per_second"]))
    return name.removesuffix(f" {form}").removeprefix("peer").strip() or "one worker", (
        bench.results[name]
    )


def milliseconds(figures: dict[str, Any], share: str) -> float:
    """Return a quantile of the slower kind of request."""
    kinds = figures["latency_ms"].values()
    return max(float(kind[share]) for kind in kinds if kind["requests"])


def rows(bench: Bench, memory: tuple[float, float]) -> list[tuple[str, str, str, bool]]:
    """Return figure, measured, goal and whether it is met."""
    single, batch = bench.results["ours single"], bench.results["ours batch"]
    table = []
    for form, ours, goal in (("single", single, 7_500), ("batch", batch, 60_000)):
        workers, peer = best(bench, form)
        speed = ours["per_second"]
        ratio = speed / peer["per_second"] if peer["per_second"] else float("nan")
        title = "one by one, 128 connections" if form == "single" else "in batches of 100"
        table.append((f"pairs/s {title}", f"{speed:,.0f}", f"≥ {goal:,}", speed >= goal))
        beside = f"times the peer ({peer['per_second']:,.0f} pairs/s, {workers}), {title}"
        table.append((beside, f"{ratio:.1f}", "≥ 15", ratio >= 15))
    p99 = milliseconds(single, "p99")
    table.append(("p99 one by one, 128 connections, ms", f"{p99:.1f}", "< 40", p99 < 40))
    for form, title in (("single", "one by one"), ("batch", "in batches of 100")):
        few = bench.results[f"decide {form} K=10"]["per_second"]
        many = bench.results[f"decide {form} K=1000"]["per_second"]
        slower = few / many if many else float("nan")
        name = f"K = 10 over K = 1000, decisions {title} ({few:,.0f}/s and {many:,.0f}/s)"
        table.append((name, f"{slower:.2f}", "≤ 3", slower <= 3))
    for form, title in (("single", "one by one"), ("batch", "in batches of 100")):
        slower = bench.times_slower(form)
        name = f"TS-CF over TopTwo-CF, decisions {title}"
        table.append((name, f"{slower:.2f}", "≤ 1.3", slower <= 1.3))
    small, large = memory
    growth = large / small - 1
    title = f"memory after {bench.many // 10:,} and after {bench.many:,} pairs"
    table.append((title, f"{small:.0f} → {large:.0f} MB", "growth ≤ 10 %", growth <= 0.1))
    wrong = sum(r["errors"] for name, r in bench.results.items() if not name.startswith("peer"))
    table.append(("errors: refused, lost or not accepted", f"{wrong:,}", "0", wrong == 0))
    return table


def details(bench: Bench) -> str:
    lines = [
        "| run | per second | decide p50, p99 ms | feedback p50, p99 ms | cores: server | load "
        "| others | errors |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, figures in bench.results.items():
        times = [quantiles(figures["latency_ms"][kind]) for kind in ("decide", "feedback")]
        shares = [f"{figures[who]:.2f}" for who in ("server_cpu", "load_cpu", "elsewhere")]
        cells = [name, f"{figures['per_second']:,.0f}", *times, *shares, f"{figures['errors']:,}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def page(bench: Bench, table: list[tuple[str, str, str, bool]]) -> str:
    changed = " with uncommitted changes" if git("status", "--porcelain", "--", "../src") else ""
    names = ("whitelie", "uvicorn", "uvloop", "httptools", "fastapi", "sqlalchemy", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    met = sum(row[3] for row in table)
    lines = ["| figure | measured | goal | met |", "|---|---:|---:|---|"]
    lines += [
        f"| {name} | {got} | {goal} | {'yes' if ok else '**no**'} |"
        for name, got, goal, ok in table
    ]
    others = max(bench.elsewhere)
    quiet = (
        f"Other programs used at most {others:.2f} cores during a run."
        if others < 0.25
        else f"**The machine was not quiet**: other programs used up to {others:.2f} of its "
        f"{os.cpu_count()} cores during a run, so these figures are not a record."
    )
    return "\n\n".join(
        [
            "# The decision service, measured",
            f"Made by `make bench-service` on {datetime.date.today()}: {processor()}, "
            f"{os.cpu_count()} cores for server and load, Python {platform.python_version()}, "
            f"{versions}, commit {git('rev-parse', '--short', 'HEAD')}{changed}. {quiet}",
            f"{met} of {len(table)} goals met. A pair is a decision and its feedback, each "
            "answered after its commit (SQLite, WAL, synchronous=FULL); 10 arms unless said. "
            "Latencies are per request; the slower of decide and feedback counts. The peer is "
            "[fastapi_peer.py](fastapi_peer.py) in the better of one and two workers; `trivial` "
            "is an ASGI application that does nothing, under uvicorn: what HTTP alone costs here.",
            "\n".join(lines),
            "## Runs",
            "Batches are of 100, over 32 connections; single requests over 128.",
            details(bench),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run; writes no record")
    parser.add_argument("--stand-in", action="store_true", help="the peer in our place; no record")
    options = parser.parse_args()
    bench = Bench("peer" if options.stand_in else "whitelie", 0.1 if options.quick else 1.0)
    start = time.monotonic()
    bench.trivial()
    bench.whitelie()
    bench.peer()
    bench.arms()
    bench.policies()
    table = rows(bench, bench.memory())
    text = page(bench, table) + "\n"
    print(text)
    print(f"{time.monotonic() - start:.0f} s")
    if not (options.quick or options.stand_in):
        RECORD.write_text(text)


if __name__ == "__main__":
    main()
