"""A real Dask cluster on loopback, one worker of which dies in the middle."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whitelie import KLUCB, TS, Problem, RandomizedResponse, simulate
from whitelie.simulation import work as module

distributed = pytest.importorskip("distributed", reason="the extra whitelie[dask] is not installed")

PROBLEM = Problem([0.9] + [0.8] * 4, RandomizedResponse.from_epsilon(1))


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command], stdout=output, stderr=subprocess.STDOUT
        )


def wait_for(pattern: str, log: Path, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text())
        if match:
            return match[0]
        time.sleep(0.05)
    raise TimeoutError(f"{pattern} not in {log.read_text()}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    logs = [tmp_path / name for name in ("scheduler", "worker 1", "worker 2")]
    processes = [
        start(
            ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard"],
            logs[0],
        )
    ]  # fmt: skip
    try:
        address = wait_for(r"tcp://127\.0\.0\.1:\d+", logs[0])
        for log in logs[1:]:
            processes.append(
                start(
                    ["distributed.cli.dask_worker", address, "--host", "127.0.0.1",
                     "--nthreads", "1", "--no-nanny", "--no-dashboard",
                     "--local-directory", str(tmp_path)],
                    log,
                )
            )  # fmt: skip
        yield address, processes[1:]
    finally:
        for process in processes[::-1]:
            process.kill()
            process.wait()


# Dask's own client warns while a worker dies; that is what this test is about.
@pytest.mark.filterwarnings("default")
def test_a_worker_dies_and_the_result_is_the_same(
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    address, workers = cluster
    monkeypatch.setattr(module, "CHUNK_SECONDS", 0.1)
    store = tmp_path / "store"
    finished: list[int] = []

    def kill_one_worker_after_some_chunks() -> None:
        while len(list(store.glob("chunks/*.npy"))) < 6:
            time.sleep(0.01)
        finished.append(len(list(store.glob("chunks/*.npy"))))
        os.kill(workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one_worker_after_some_chunks)
    settings: dict[str, Any] = {"horizon": 20_000, "replicates": 200, "seed": 4}
    with distributed.Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
        killer.start()
        result = simulate(
            PROBLEM, [KLUCB(), TS()], **settings, executor=client.get_executor(), store=store
        )
        killer.join(timeout=60)
    workers[0].wait(timeout=60)
    total = len(list(store.glob("chunks/*.npy")))
    assert finished, "the worker was never killed"
    assert finished[0] < total, "the worker was killed after the work"
    alone = simulate(PROBLEM, [KLUCB(), TS()], **settings)
    np.testing.assert_array_equal(result.pulls.values, alone.pulls.values)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_the_paper_is_reproduced_on_a_cluster(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, _ = cluster
    scale = ["--horizon", "1000", "--replicates", "3", "--only", "2b"]
    folders = [tmp_path / "cluster", tmp_path / "here"]
    for folder, where in zip(folders, (["--scheduler", address], ["--jobs", "1"]), strict=True):
        command = [sys.executable, "-m", "whitelie", "reproduce", *scale, *where]
        done = subprocess.run(
            [*command, "--out", str(folder)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    ours, theirs = ((folder / "claims.json").read_text() for folder in folders)
    assert ours == theirs
