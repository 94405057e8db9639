"""Simulations are the same however they are cut, spread, interrupted and resumed."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.processes import started
from whitelie import (
    KLUCB,
    TS,
    UCB1,
    Channel,
    DPUCBInt,
    InvalidInput,
    Monotone,
    Problem,
    RandomizedResponse,
    simulate,
    simulate_many,
)
from whitelie.kernel.arms import Array
from whitelie.policy import Policy
from whitelie.policy.run import runner
from whitelie.simulation import work as module
from whitelie.simulation.result import Result

PROBLEM = Problem({"a": 0.9, "b": 0.8, "c": 0.5}, RandomizedResponse.from_epsilon(2))
POLICIES: list[Policy] = [KLUCB(), TS(), UCB1(), DPUCBInt()]
SETTINGS: dict[str, Any] = {"horizon": 2000, "replicates": 24, "seed": 5}


@pytest.fixture(scope="module")
def reference() -> Result:
    return simulate(PROBLEM, POLICIES, **SETTINGS, jobs=1)


def assert_same_pulls(result: Result, reference: Result, policies: Sequence[str] = ()) -> None:
    for name in policies or reference.policies:
        np.testing.assert_array_equal(
            result.pulls.sel(policy=name).values, reference.pulls.sel(policy=name).values
        )


def test_a_replicate_is_what_its_kernel_says(reference: Result) -> None:
    times = reference.pulls.time.values
    for policy in POLICIES:
        run = runner(policy, PROBLEM, SETTINGS["seed"], times)
        for replicate in (0, 7, 23):
            seen = reference.pulls.sel(policy=policy.label, replicate=replicate).values
            np.testing.assert_array_equal(seen, run(replicate))


def test_the_number_of_threads_does_not_matter(reference: Result) -> None:
    for jobs in (2, 5):
        assert_same_pulls(simulate(PROBLEM, POLICIES, **SETTINGS, jobs=jobs), reference)


@pytest.mark.parametrize("seconds", [1e-9, 0.003, 1e9])
def test_the_size_of_chunks_does_not_matter(
    seconds: float, reference: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_SECONDS", seconds)
    assert_same_pulls(simulate(PROBLEM, POLICIES, **SETTINGS), reference)


def test_the_set_and_order_of_policies_do_not_matter(reference: Result) -> None:
    assert_same_pulls(simulate(PROBLEM, POLICIES[::-1], **SETTINGS), reference)
    assert_same_pulls(simulate(PROBLEM, [TS()], **SETTINGS), reference, ["TS-CF"])
    renamed = simulate(PROBLEM, {"mine": TS()}, **SETTINGS)
    np.testing.assert_array_equal(
        renamed.pulls.sel(policy="mine").values, reference.pulls.sel(policy="TS-CF").values
    )


def test_more_replicates_contain_the_fewer(reference: Result) -> None:
    more = simulate(PROBLEM, POLICIES, **(SETTINGS | {"replicates": 30}))
    np.testing.assert_array_equal(more.pulls.values[:, :24], reference.pulls.values)


def test_another_seed_gives_other_pulls(reference: Result) -> None:
    """Negative control of all of the above."""
    other = simulate(PROBLEM, POLICIES, **(SETTINGS | {"seed": 6}))
    assert not np.array_equal(other.pulls.values, reference.pulls.values)


def test_any_executor_will_do(reference: Result) -> None:
    with ProcessPoolExecutor(2) as executor:
        assert_same_pulls(simulate(PROBLEM, POLICIES, **SETTINGS, executor=executor), reference)


def test_checkpoints(reference: Result) -> None:
    times = reference.pulls.time.values
    assert times[0] == 1
    assert times[-1] == 2000
    assert 100 < len(times) <= 200
    few = simulate(PROBLEM, [TS()], **SETTINGS, checkpoints=[10, 100])
    assert few.pulls.time.values.tolist() == [10, 100, 2000]


class RoundRobin:
    """A researcher's own policy."""

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        assert t == pulls.sum()
        assert len(channels) == len(words) == len(successes)
        return t % len(pulls)


class OwnUCB1:
    """UCB1 as anybody would write it, to meet the compiled one on the same draws."""

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        if (pulls == 0).any():
            index = np.where(pulls == 0, np.inf, -np.inf)
        else:
            index = successes / pulls + np.sqrt(2 * np.log(t) / pulls)
        best = np.flatnonzero(index == index.max())
        return int(best[np.argmax(words[best])])


def test_a_policy_of_ones_own_runs_beside_the_compiled_ones(reference: Result) -> None:
    result = simulate(
        PROBLEM, {"turns": RoundRobin(), "own UCB1": OwnUCB1(), "UCB1": UCB1()},
        **(SETTINGS | {"replicates": 2}),
    )  # fmt: skip
    assert result.pulls.sel(policy="turns").values[0, -1].tolist() == [667, 667, 666]
    np.testing.assert_array_equal(
        result.pulls.sel(policy="own UCB1").values, result.pulls.sel(policy="UCB1").values
    )
    np.testing.assert_array_equal(
        result.pulls.sel(policy="UCB1").values, reference.pulls.sel(policy="UCB1").values[:2]
    )


class OffByOne(RoundRobin):
    def choose(self, *arguments: Any) -> int:
        return 3


def test_a_policy_of_ones_own_that_names_no_arm_is_told() -> None:
    with pytest.raises(InvalidInput, match=r"OffByOne.choose=3: .*0 to 2"):
        simulate(PROBLEM, [OffByOne()], **SETTINGS)


def test_a_sweep_is_its_cells() -> None:
    problems = [Problem([0.9, 0.6], RandomizedResponse.from_epsilon(e)) for e in (0.5, 2)]
    cells = [(problem, [TS(), KLUCB()]) for problem in problems]
    sweep = simulate_many(cells, coordinate="epsilon", values=[0.5, 2], **SETTINGS)
    for value, problem in zip([0.5, 2], problems, strict=True):
        alone = simulate(problem, [TS(), KLUCB()], **SETTINGS)
        np.testing.assert_array_equal(sweep.pulls.sel(epsilon=value).values, alone.pulls.values)


def test_a_table_among_the_channels_is_simulated() -> None:
    mixed = Problem(
        [0.9, 0.5], [Monotone(lambda x: 0.1 + 0.8 * x**2), RandomizedResponse.warner(0.2)]
    )
    result = simulate(mixed, [TS(), KLUCB()], **SETTINGS)
    assert (result.pulls.values[:, :, -1, 0].mean(axis=1) > 1500).all()


class Counting(Executor):
    """Runs at once, and counts the replicates that were really simulated."""

    def __init__(self, most: int = 10**9) -> None:
        self.replicates, self.most = 0, most

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.replicates >= self.most:
            raise KeyboardInterrupt
        future.set_result(function(*arguments, **named))
        self.replicates += len(arguments[-1])
        return future


def test_an_interrupted_run_is_resumed_where_it_stopped(tmp_path: Path, reference: Result) -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(PROBLEM, POLICIES, **SETTINGS, executor=Counting(30), store=tmp_path / "s")
    rest = Counting()
    result = simulate(PROBLEM, POLICIES, **SETTINGS, executor=rest, store=tmp_path / "s")
    assert_same_pulls(result, reference)
    assert 0 < rest.replicates < 4 * 24 - 20
    nothing = Counting()
    assert_same_pulls(
        simulate(PROBLEM, POLICIES, **SETTINGS, executor=nothing, store=tmp_path / "s"), reference
    )
    assert nothing.replicates == 0


def test_a_store_serves_more_replicates_and_other_policies(tmp_path: Path) -> None:
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    more = Counting()
    settings = SETTINGS | {"replicates": 30}
    simulate(PROBLEM, [KLUCB(), TS()], **settings, executor=more, store=tmp_path)
    assert more.replicates == 30 + 6


def test_a_damaged_chunk_is_computed_again(tmp_path: Path, reference: Result) -> None:
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    for path in list((tmp_path / "chunks").iterdir())[:2]:
        path.write_bytes(path.read_bytes()[:-7])
    assert_same_pulls(simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path), reference, ["TS-CF"])


KILLED = """
import sys
from whitelie import *
from whitelie import simulation
simulation.CHUNK_SECONDS = 0.02
problem = Problem([0.9, 0.8, 0.5], RandomizedResponse.from_epsilon(1))
result = simulate(problem, [KLUCB(), TS(), UCB1(), DPUCBInt()], horizon=20_000, replicates=300,
                  seed=9, store=sys.argv[1])
result.save(sys.argv[2])
"""


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.long)])
def test_kill_9_at_random_moments_and_resume(tmp_path: Path, kills: int) -> None:
    """Killed again and again, then finished: as if nothing had happened."""
    moments = random.Random(3)
    store, out = tmp_path / "store", tmp_path / "result.nc"
    command = [sys.executable, "-c", KILLED, str(store), str(out)]
    chunks = []
    for _ in range(kills):
        with started(command) as process:  # and killed at the end
            already = len(list(store.glob("chunks/*.npy"))) if store.exists() else 0
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if store.exists() and len(list(store.glob("chunks/*.npy"))) > already:
                    break
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 0.1))
        chunks.append(len(list(store.glob("chunks/*.npy"))))
    assert chunks == sorted(chunks)
    assert chunks[-1] > chunks[0], "no progress was kept"
    subprocess.run(command, check=True)
    problem = Problem([0.9, 0.8, 0.5], RandomizedResponse.from_epsilon(1))
    whole = simulate(problem, POLICIES, horizon=20_000, replicates=300, seed=9)
    assert_same_pulls(Result.load(out), whole)


def test_progress_is_printed_in_lines_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(PROBLEM, [TS()], **SETTINGS, progress=True)
    assert "replicates: 24 of 24  0:00 left" in capfd.readouterr().err
    simulate(PROBLEM, [TS()], **SETTINGS)
    assert capfd.readouterr().err == ""


class Wordless:
    pass


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"horizon": 2}, "horizon"),
        ({"horizon": 2.5}, "horizon"),
        ({"horizon": 2**31}, "horizon"),
        ({"replicates": 0}, "replicates"),
        ({"replicates": True}, "replicates"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
        ({"jobs": 0}, "jobs"),
        ({"checkpoints": [5, 5]}, "checkpoints"),
        ({"checkpoints": [0, 5]}, "checkpoints"),
        ({"checkpoints": [5, 2001]}, "checkpoints"),
        ({"checkpoints": []}, "checkpoints"),
        ({"checkpoints": [1.5]}, "checkpoints"),
        ({"policies": []}, "policies"),
        ({"policies": [TS(), TS()]}, "policies"),
        ({"policies": ["TS"]}, "policies"),
        ({"policies": "TS"}, "policies"),
        ({"policies": TS()}, "policies"),
        ({"policies": {1: TS()}}, "policies"),
        ({"policies": {"": TS()}}, "policies"),
        ({"problem": [0.5, 0.6]}, "problem"),
        ({"problem": Problem({1: 0.5, "1": 0.4})}, "problem"),
        ({"executor": 3}, "executor"),
        ({"store": 3}, "store"),
        ({"store": ""}, "store"),
        ({"store": "a\0b"}, "store"),
        ({"policies": [Wordless()]}, "policies"),
        ({"policies": [RoundRobin]}, "policies"),
        ({"problem": Problem([0.5], Monotone(lambda x: x)), "policies": [TS(feedback="wrapped")]},
         "channels"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_before_any_work(
    changes: dict[str, Any], field: str, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"problem": PROBLEM, "policies": POLICIES, "store": tmp_path / "s"}
    with pytest.raises(InvalidInput) as refusal:
        simulate(**(arguments | SETTINGS | changes))
    assert refusal.value.field == field
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 6}, "made with seed 5, not 6"),
        ({"horizon": 3000}, r"with \d+ checkpoints, not \d+;"),
        ({"checkpoints": [1, 7, 2000]}, r"checkpoints\[1\] 5, not 7;"),
        (
            {"problem": Problem({"a": 0.9, "b": 0.8, "c": 0.4}, PROBLEM.channels)},
            r"problems\[0\].means \[0.9, 0.8, 0.5\], not \[0.9, 0.8, 0.4\]",
        ),
        (
            {"problem": Problem({"a": 0.9, "b": 0.8, "d": 0.5}, PROBLEM.channels)},
            r"problems\[0\].names \['a', 'b', 'c'\], not \['a', 'b', 'd'\]",
        ),
    ],
)
def test_a_store_of_other_settings_is_refused_with_the_difference(
    changes: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    times: dict[str, Any] = {"checkpoints": [1, 5, 2000]} if "checkpoints" in changes else {}
    simulate(PROBLEM, [TS()], **SETTINGS, **times, store=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    arguments: dict[str, Any] = {"problem": PROBLEM, "policies": [TS()], "store": tmp_path}
    with pytest.raises(InvalidInput, match=difference):
        simulate(**(arguments | SETTINGS | changes))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_store_of_another_kernel_is_refused(tmp_path: Path) -> None:
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    settings = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps(settings | {"kernel": "0" * 16}))
    with pytest.raises(InvalidInput, match="a kernel that gives other numbers"):
        simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InvalidInput, match="something else"):
        simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    with pytest.raises(InvalidInput, match="cannot be used"):
        simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path / "thesis.txt")
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(InvalidInput, match="not whitelie's"):
        simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_store_survives_a_kill_while_it_is_created(tmp_path: Path) -> None:
    (tmp_path / ".whitelie-half").write_text("half of some settings")
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    again = Counting()
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path, executor=again)
    assert again.replicates == 0


def test_many_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from whitelie import Problem; from whitelie.simulation.chunks import ChunkStore\n"
        "for n in range(40): ChunkStore(f'{sys.argv[1]}/{n}', [Problem([0.5])], 1, np.array([1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with ExitStack() as stack:
        starts = [started(command, stderr=subprocess.PIPE) for _ in range(4)]
        processes = [stack.enter_context(start) for start in starts]
        assert [process.communicate(timeout=120)[1] for process in processes] == [b""] * 4


def test_chunks_that_cannot_be_counts_are_computed_again(tmp_path: Path, reference: Result) -> None:
    simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path)
    paths = sorted((tmp_path / "chunks").iterdir())
    np.save(paths[0], np.load(paths[0]).astype(float))
    np.save(paths[1], np.load(paths[1]) + 1)
    assert_same_pulls(simulate(PROBLEM, [TS()], **SETTINGS, store=tmp_path), reference, ["TS-CF"])


def test_names_that_a_store_cannot_hold_leave_no_folder(tmp_path: Path) -> None:
    strange = Problem({frozenset({1}): 0.5, "b": 0.4})
    with pytest.raises(InvalidInput, match="text or whole numbers"):
        simulate(strange, [TS()], **SETTINGS, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_store_needs_to_tell_policies_apart(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="to_dict"):
        simulate(PROBLEM, [RoundRobin()], **SETTINGS, store=tmp_path / "s")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"values": [1, 1]}, "values"),
        ({"coordinate": "time"}, "coordinate"),
        ({"cells": [(PROBLEM, [TS()]), (PROBLEM, [KLUCB()])]}, "results"),
        ({"cells": [(PROBLEM, [TS()]), (Problem([0.5, 0.4, 0.3]), [TS()])]}, "results"),
    ],
)
def test_a_sweep_that_does_not_fit_together_is_refused_before_any_work(
    changes: dict[str, Any], field: str
) -> None:
    work = Counting()
    arguments: dict[str, Any] = {"cells": [(PROBLEM, [TS()])] * 2, "coordinate": "x"}
    arguments |= {"values": [1, 2], "executor": work} | SETTINGS | changes
    with pytest.raises(InvalidInput) as refusal:
        simulate_many(**arguments)
    assert refusal.value.field == field
    assert work.replicates == 0


def test_a_sweep_needs_a_value_for_every_cell() -> None:
    with pytest.raises(InvalidInput, match="one value for each of the 1 cells"):
        simulate_many([(PROBLEM, [TS()])], coordinate="x", values=[1, 2], **SETTINGS)
