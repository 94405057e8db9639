"""`whitelie simulate`: what it prints and writes, and that a refusal leaves everything alone."""

import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.paths import ROOT
from helpers.processes import started
from whitelie import KLUCB, TS, Problem, RandomizedResponse
from whitelie.cli import app
from whitelie.simulation.result import Result
from whitelie.simulation.specification import EXAMPLE, Specification
from whitelie.simulation.work import simulate

SMALL = """
horizon = 300
replicates = 5
seed = 3
means = [0.9, 0.5]
channel = { epsilon = 2 }
policies = ["kl-UCB-CF", { rule = "TS", name = "[red]mine[/red]" }]
"""
PAGE = ROOT / "docs/simulate.md"


def run(*arguments: object, columns: int = 80) -> Any:
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def shell(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "error", "-m", "whitelie", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=200, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def refused(spec: Path, *options: object, code: int = 2) -> str:
    """Run a command that must be refused before any work; return its one line."""
    before = files(spec.parent)
    ended = run("simulate", spec, *options)
    assert ended.exit_code == code, ended.output
    assert ended.stdout == ""
    assert files(spec.parent) == before
    line, nothing = ended.stderr.split("\n")
    assert not nothing
    return str(line)


def test_the_help_names_every_option() -> None:
    shown = run("simulate", "--help").stdout
    for option in ("--store", "--jobs", "--scheduler", "--out", "--example"):
        assert option in shown


def test_the_example_is_printed_and_runs(tmp_path: Path) -> None:
    printed = shell("simulate", "--example", cwd=tmp_path)
    assert printed.stdout == EXAMPLE
    (tmp_path / "example.toml").write_text(printed.stdout, encoding="utf-8")
    ended = shell("simulate", "example.toml", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    shown = "\n".join(line.rstrip() for line in ended.stdout.splitlines())
    page = PAGE.read_text(encoding="utf-8")
    assert f"```toml\n{EXAMPLE}```\n" in page
    assert f"```text\n{shown}\n```\n" in page
    assert sorted(files(tmp_path)) == ["example.nc", "example.svg", "example.toml"]
    assert "Traceback" not in ended.stderr


def test_the_result_is_that_of_simulate(spec: Path) -> None:
    assert run("simulate", spec, "--jobs", 1).exit_code == 0
    expected = simulate(
        Problem([0.9, 0.5], RandomizedResponse.from_epsilon(2)),
        {"kl-UCB-CF": KLUCB(), "[red]mine[/red]": TS()},
        horizon=300,
        replicates=5,
        seed=3,
    )
    assert Result.load(spec.with_suffix(".nc")).pulls.equals(expected.pulls)


def test_the_table_shows_the_summary(spec: Path) -> None:
    shown = run("simulate", spec).stdout
    summary = Result.load(spec.with_suffix(".nc")).summary()
    for name, row in summary.iterrows():
        line = next(line for line in shown.splitlines() if str(name) in line)
        interval = f"{row['lower']:#.4g} to {row['upper']:#.4g}"
        assert f" {row['mean']:#.4g} " in line
        assert interval in line
        assert f"{row['best_share']:.1%}" in line


def test_one_replicate_has_no_interval(spec: Path) -> None:
    spec.write_text(SMALL.replace("replicates = 5", "replicates = 1"), encoding="utf-8")
    ended = run("simulate", spec)
    assert ended.exit_code == 0, ended.output
    assert " to " not in ended.stdout


@pytest.mark.parametrize(
    ("sweep", "heading", "values"),
    [
        ("epsilon = [0.5, 4]", "epsilon", ["0.5", "4"]),
        ("c = [0, 3]", "c", ["0", "3"]),
        ("arm = 1\nmean = [0.125, 0.75]", "mean reward", ["0.125", "0.75"]),
    ],
)
def test_a_sweep_fits_a_narrow_terminal(
    spec: Path, sweep: str, heading: str, values: list[str]
) -> None:
    text = SMALL.replace("mine", "a rather long name of my own for this policy")
    if "epsilon" in sweep:
        text = text.replace("channel = { epsilon = 2 }", "")
    spec.write_text(f"{text}\n[sweep]\n{sweep}\n", encoding="utf-8")
    ended = run("simulate", spec, "--out", spec.with_name("swept.nc"), columns=60)
    assert ended.exit_code == 0, ended.output
    table = ended.stdout[: ended.stdout.index("wrote")]
    assert all(len(line) <= 60 for line in table.splitlines())
    assert {*heading.split(), *values} <= {*table.split()}
    assert "…" not in table
    assert Result.load(spec.with_name("swept.nc")).coordinate == heading.replace(" ", "_")


def test_a_second_run_says_that_it_replaces_its_own_files(spec: Path) -> None:
    run("simulate", spec)
    figure = spec.with_suffix(".svg").read_bytes()
    ended = run("simulate", spec)
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.count("replaced") == 2
    assert spec.with_suffix(".svg").read_bytes() == figure


@pytest.mark.parametrize("suffix", [".nc", ".svg"])
def test_a_foreign_file_is_never_replaced(spec: Path, suffix: str) -> None:
    spec.with_suffix(suffix).write_bytes(b"<svg>years of work</svg>")
    assert "whitelie simulate did not write it" in refused(spec)


def test_a_folder_in_the_place_of_a_file_is_refused(spec: Path) -> None:
    spec.with_suffix(".svg").mkdir()
    assert "whitelie simulate did not write it" in refused(spec)


def test_a_truncated_result_is_not_replaced(spec: Path) -> None:
    run("simulate", spec)
    path = spec.with_suffix(".nc")
    path.write_bytes(path.read_bytes()[:-100])
    assert "whitelie simulate did not write it" in refused(spec)


def test_the_specification_itself_is_not_replaced(spec: Path) -> None:
    assert "whitelie simulate did not write it" in refused(spec, "--out", spec)


def test_a_result_needs_a_folder_and_a_name_of_its_own(spec: Path) -> None:
    assert "there is no folder" in refused(spec, "--out", spec.with_name("missing") / "a.nc")
    assert "end it in .nc" in refused(spec, "--out", spec.with_name("a.svg"))


def test_a_bad_specification_is_one_line_and_exit_code_2(spec: Path) -> None:
    spec.write_text(SMALL.replace("replicates", "replicate"), encoding="utf-8")
    assert "did you mean 'replicates'?" in refused(spec)
    spec.write_text(SMALL.replace("[0.9", "[0.9,"), encoding="utf-8")
    assert "line 5, column 14" in refused(spec)
    spec.write_text('"a\\nb" = 1', encoding="utf-8")
    refused(spec)
    assert "there is no such file" in run("simulate", spec.with_name("none.toml")).stderr


def test_a_refusal_in_a_real_shell_has_no_traceback(spec: Path) -> None:
    spec.write_text(SMALL.replace("horizon = 300", "horizon = 1"), encoding="utf-8")
    ended = shell("simulate", spec)
    assert ended.returncode == 2
    assert ended.stderr == "horizon=1: too short to pull each of 2 arms once\n"
    assert [*files(spec.parent)] == [spec.name]


def test_a_foreign_store_is_refused(spec: Path) -> None:
    folder = spec.with_name("store")
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    assert "store" in refused(spec, "--store", folder)
    assert [*files(folder)] == ["thesis.tex"]


def test_a_second_run_resumes_from_the_store(spec: Path) -> None:
    folder = spec.with_name("store")
    assert run("simulate", spec, "--store", folder).exit_code == 0
    first = Result.load(spec.with_suffix(".nc")).pulls
    assert run("simulate", spec, "--store", folder).exit_code == 0
    assert Result.load(spec.with_suffix(".nc")).pulls.equals(first)
    spec.write_text(SMALL.replace("seed = 3", "seed = 4"), encoding="utf-8")
    assert "seed" in refused(spec, "--store", folder)


@pytest.mark.parametrize("sweep", ["", "[sweep]\nc = [0, 3]\n"])
def test_a_stop_adds_a_table_and_a_panel(spec: Path, sweep: str) -> None:
    spec.write_text(f"{SMALL}\n[stop]\ndelta = 0.2\n{sweep}", encoding="utf-8")
    ended = run("simulate", spec, columns=80)
    assert ended.exit_code == 0, ended.output
    table = ended.stdout[ended.stdout.index("Reports until the certificate (at most 300)") :]
    assert all(len(line) <= 80 for line in table[: table.index("wrote")].splitlines())
    summary = Result.load(spec.with_suffix(".nc")).stopping_summary()
    for index, row in summary.iterrows():
        name = str(index[-1] if sweep else index)
        lines = [line for line in table.splitlines() if name in line]
        assert any(f" {row['mean']:,.0f} " in line for line in lines)
        assert all(f"{row['wrong']:.1%}" in line for line in lines)
    without = spec.with_name("plain.toml")
    without.write_text(SMALL + sweep, encoding="utf-8")
    assert "certificate" not in run("simulate", without).stdout
    figures = [path.with_suffix(".svg").read_text() for path in (spec, without)]
    assert ["certificate" in figure for figure in figures] == [True, False]
    spec.write_text(f"{SMALL}\n[stop]\ndelta = 0.7\n", encoding="utf-8")
    assert "stop.delta" in refused(spec)


def test_zero_jobs_are_refused(spec: Path) -> None:
    ended = run("simulate", spec, "--jobs", 0)
    assert ended.exit_code == 2
    assert [*files(spec.parent)] == [spec.name]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "kept"], "run the same command again to resume from"),
        ([], "nothing was saved"),
    ],
)
def test_an_interrupt_says_how_to_resume(
    spec: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Specification, "run", interrupted)
    line = refused(spec, *options, code=130)
    assert line.startswith("interrupted; ")
    assert said in line


def test_ctrl_c_in_a_real_shell(spec: Path) -> None:
    spec.write_text(
        SMALL.replace("horizon = 300", "horizon = 1_000_000").replace("= 5", "= 100_000"),
        encoding="utf-8",
    )
    folder = spec.with_name("store")
    line = [sys.executable, "-m", "whitelie", "simulate", str(spec), "--store", str(folder)]
    with started(line, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not [*folder.glob("chunks/*.npy")] and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    last = f"interrupted; run the same command again to resume from {folder}"
    assert said.splitlines()[-1] == last
    assert [*folder.glob("chunks/*.npy")]
    assert [*files(spec.parent)] == [spec.name]


def test_a_scheduler_without_dask_is_refused(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = refused(spec, "--scheduler", "tcp://127.0.0.1:8786", code=1)
    assert 'pip install "whitelie[dask]"' in line


def test_an_unreachable_scheduler_is_refused_before_any_work(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(address: str, timeout: float) -> None:
        raise OSError(f"Timed out trying to connect to {address} after {timeout} s")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=unreachable))
    line = refused(spec, "--scheduler", "tcp://nowhere:1", "--store", "kept", code=1)
    assert line.startswith("no Dask scheduler answers at 'tcp://nowhere:1': Timed out")
    assert "after 5 s" in line
    assert not Path("kept").exists()


class Cluster:
    """Dask's client as far as the command uses it, on two threads of this process."""

    def __init__(self, address: str, timeout: float) -> None:
        assert (address, timeout) == ("tcp://here:8786", 5)
        self.pool = ThreadPoolExecutor(2)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def nthreads(self) -> dict[str, int]:
        return {"worker 1": 1, "worker 2": 1}

    def get_executor(self) -> Executor:
        return self.pool


def test_a_cluster_gives_the_same_result(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Cluster))
    ended = run("simulate", spec, "--scheduler", "tcp://here:8786")
    assert ended.exit_code == 0, ended.output
    there = Result.load(spec.with_suffix(".nc")).pulls
    run("simulate", spec)
    assert Result.load(spec.with_suffix(".nc")).pulls.equals(there)


def test_a_missing_argument_is_a_usage_error() -> None:
    assert run("simulate").exit_code == 2


def test_an_unwritable_folder_is_refused(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)  # root may write everywhere
    assert "cannot be written to (Permission denied)" in refused(spec)
