"""`whitelie reproduce`: from settings to the report, interrupted, resumed, refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser
from typer.testing import CliRunner

from helpers.chromium_page import look
from helpers.processes import started
from whitelie.channel import RandomizedResponse
from whitelie.cli import app
from whitelie.errors import InvalidInput
from whitelie.paper import experiments, runs
from whitelie.paper.reproduction import Reproduction, describe
from whitelie.paper.runs import Scale, StoredRuns
from whitelie.simulation.work import Workers, simulate

SMALL = Scale(horizon=1_000, replicates=3)
ONE_THREAD = Workers(jobs=1)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick reproduction, made by the command as a user would."""
    folder = tmp_path_factory.mktemp("reproduction") / "quick"
    command = [sys.executable, "-m", "whitelie", "reproduce", "--quick", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    assert "left" in done.stderr
    return folder


def test_the_papers_eighteen_figures_and_three_more() -> None:
    assert len(experiments.PANELS) == 15
    assert len(experiments.DIAGRAMS) == 3
    assert len(experiments.FIGURES) == 15 + 3 + 3
    assert describe(Scale()) == "5 problems, 1,000 replicates, T = 100,000, seed 2018"


def test_the_problems_are_the_papers() -> None:
    main, *others = (scenario.means for scenario in experiments.SCENARIOS)
    assert main == (0.9,) + (0.8,) * 9
    assert others[0] == (0.9, 0.6)
    assert others[1] == (0.9, 0.8)
    assert others[2] == (0.9, 0.8, 0.8, 0.8, 0.7, 0.7, 0.7, 0.6, 0.6, 0.6)
    assert others[3] == (0.9,) + (0.6,) * 9
    problem = experiments.SCENARIOS[3].unequal_noise
    noisy, clear = RandomizedResponse(p00=0.6, p11=0.6), RandomizedResponse(p00=0.9, p11=0.9)
    assert problem.channels == (noisy,) + (clear,) * 9
    labels = [policy.label for policy in experiments.OVER_TIME]
    assert labels[:3] == ["kl-UCB-CF", "UCB-CF", "TS-CF"]
    assert labels[3:6] == ["WR(kl-UCB)", "WR(UCB1)", "WR(TS)"]
    assert labels[6:] == ["kl-UCB", "UCB1", "TS"]


def test_every_figure_and_file_is_made(quick: Path) -> None:
    figures = {path.name for path in (quick / "figures").iterdir()}
    assert figures == {f"{name}.{form}" for name in experiments.FIGURES for form in ("svg", "pdf")}
    assert (quick / "record.md").stat().st_size > 1_000
    told = json.loads((quick / "claims.json").read_text())
    assert told["replicates"] == experiments.QUICK_REPLICATES
    assert len(told["claims"]) == 13
    for claim in told["claims"]:
        for finding in claim["findings"]:
            assert finding["measurements"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_quick_report_is_seen_whole(quick: Path, chromium: Browser, width: int) -> None:
    rendered = look(chromium, quick / "report.html", width)
    assert rendered.faults == []
    assert len(rendered.images) == len(experiments.FIGURES)
    assert "Quick run" in rendered.text


def test_a_second_run_simulates_nothing_and_says_the_same(quick: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (quick / "runs").rglob("*.npy")}
    claims = (quick / "claims.json").read_bytes()
    figure = (quick / "figures" / "1a.svg").read_bytes()
    scale = Scale(replicates=experiments.QUICK_REPLICATES)
    Reproduction(quick, scale).run(ONE_THREAD)
    assert {path: path.stat().st_mtime_ns for path in (quick / "runs").rglob("*.npy")} == before
    assert (quick / "claims.json").read_bytes() == claims
    assert (quick / "figures" / "1a.svg").read_bytes() == figure


def test_a_panel_is_what_simulate_finds(tmp_path: Path) -> None:
    stored = StoredRuns(tmp_path, SMALL)
    stored.fill(["2a", "2b", "2c"], ONE_THREAD)
    scenario = experiments.SCENARIOS[1]
    for problem, policies, run in (
        (scenario.unequal_noise, experiments.OVER_TIME, runs.over_time(scenario, SMALL)),
        (scenario.private(1.0), experiments.GLOBAL_PRIVACY, runs.local_and_global(scenario, SMALL)),
        (scenario.private(0.5), experiments.AGAINST_EPSILON, runs.private(scenario, SMALL, 0.5)),
    ):
        result = stored.result(run)
        alone = simulate(
            problem,
            policies,
            horizon=SMALL.horizon,
            replicates=SMALL.replicates,
            seed=SMALL.seed,
            checkpoints=run.checkpoints,
        )
        for name in alone.policies:
            ours = result.pulls.sel(policy=name).values
            assert np.array_equal(ours, alone.pulls.sel(policy=name).values)


def test_what_two_figures_need_is_simulated_once(tmp_path: Path) -> None:
    stored = StoredRuns(tmp_path, SMALL)
    stored.fill(["2b"], ONE_THREAD)
    before = set(tmp_path.rglob("*.npy"))
    stored.fill(["2b", "2c"], ONE_THREAD)
    added = set(tmp_path.rglob("*.npy")) - before
    replicates = sum(len(np.load(path)) for path in added)
    assert replicates == len(experiments.GLOBAL_PRIVACY) * SMALL.replicates


def test_some_figures_only(tmp_path: Path) -> None:
    report = Reproduction(tmp_path / "some", SMALL, ("index", "2b")).run(ONE_THREAD)
    assert [section.title for section in report.sections] == ["Scenario 1", "Diagrams"]
    assert {finding.title for claim in report.claims for finding in claim.findings} == {
        "Scenario 1"
    }
    assert sorted(path.name for path in (tmp_path / "some" / "figures").iterdir()) == [
        "2b.pdf",
        "2b.svg",
        "index.pdf",
        "index.svg",
    ]


def test_an_interrupted_reproduction_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["--only", "2a,3a", "--replicates", "150", "--horizon", "20000", "--jobs", "1"]
    command = [sys.executable, "-m", "whitelie", "reproduce", *arguments, "--out", str(folder)]
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while len(list(folder.rglob("*.npy"))) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "run the same command again" in said
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}
    assert kept
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (folder / "report.html").exists()


def test_damaged_times_do_no_harm(tmp_path: Path) -> None:
    some = Reproduction(tmp_path / "out", SMALL, ("2b",))
    some.run(ONE_THREAD)
    (tmp_path / "out" / "runs" / "times.json").write_text("")
    some.run(ONE_THREAD)


def test_a_partial_report_says_so(tmp_path: Path) -> None:
    report = Reproduction(tmp_path / "out", SMALL, ("2b", "index")).run(ONE_THREAD)
    assert report.scale.startswith("only 2b, index; ")
    told = json.loads((tmp_path / "out" / "claims.json").read_text(), parse_constant=pytest.fail)
    assert told["pictures"] == ["2b", "index"]


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["reproduce", *arguments])
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


def test_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    said = refused("--only", "1a,9z", "--out", str(tmp_path / "new"))
    assert "'9z'" in said
    assert "2b" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    Reproduction(folder, SMALL, ("index",)).run(ONE_THREAD)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    said = refused(
        "--only", "index", "--horizon", "1000", "--replicates", "4", "--out", str(folder)
    )
    assert "replicates 3, not 4" in said
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    said = refused("--only", "index", "--out", str(tmp_path))
    assert "something else" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be used" in refused("--only", "index", "--out", str(tmp_path / "new"))


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be used" in refused("--only", "index", "--out", str(tmp_path / "file" / "new"))


def test_too_few_replicates_and_too_short_a_horizon_are_refused() -> None:
    assert "two replicates" in refused("--replicates", "1")
    assert "decades" in refused("--horizon", "100")
    assert "plenty" in refused("--replicates", "99999999999")
    with pytest.raises(InvalidInput):
        Scale(replicates=0)
