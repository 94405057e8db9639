"""`whitelie plan`: the table, JSON, the sheet, and refusals that help."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.paths import ROOT
from whitelie import plan
from whitelie.cli import app

DESIGN = ["--arms", "3", "--rate", "0.4", "--difference", "0.2", "--traffic", "500"]


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command says is tested here; `tests/planning` holds the numbers."""
    assert plan.__kwdefaults__ is not None
    monkeypatch.setitem(plan.__kwdefaults__, "replicates", 100)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_table_has_a_row_and_a_sentence_for_every_epsilon() -> None:
    done = run(*DESIGN, "--epsilon", "1,3", "--reports-per-person", "4", "--within-days", "60")
    assert done.exit_code == 0, done.output
    said = done.stdout
    assert "each answer is truthful with probability 73 %" in said
    assert "at most a factor of 2.72" in said
    assert "4 reports of one person at ε = 3 cost 12 in total" in said
    assert "Recommendation: symmetric randomised response with ε = " in said
    assert "if differences were smaller (16 instead of 20 percentage points)" in said
    assert "slope 0.462" in said
    assert "a report of “no” then proves a “no”" in said
    assert all(len(line) <= 80 for line in said.split("ε = 1:")[0].splitlines())


def test_the_tables_of_a_plan_to_know_fit_a_terminal() -> None:
    done = run(*DESIGN, "--epsilon", "3", "--goal", "know", "--know", "0.5", "--within-days", "30")
    assert done.exit_code == 0, done.output
    tables, _, rest = done.stdout.partition("ε = 3: ")
    assert all(len(line) <= 80 for line in tables.splitlines())
    names = ("TopTwo-CF (know=0.5)", "TopTwo-CF", "kl-UCB-CF", "TS-CF", "equal shares")
    for name in names:
        assert re.search(rf" 3 +{re.escape(name)} +(≥ |> )?[\d.]+", tables), name
    for know in ("0.1", "0.2", "0.35", "0.6", "1"):
        assert re.search(rf"^ +{know} +[\d.]+ ± ", tables, re.MULTILINE), know
    assert "95 %: " in tables
    assert "it expects a rate of 40 % and a difference of 20 percentage points" in rest
    assert "Recommendation: symmetric randomised response with ε = " in rest


def test_what_a_certificate_asks_for_is_given_to_the_plan() -> None:
    given = ("--delta", "0.1", "--tolerance", "0.02", "--expect", "0.3,0.1", "--json")
    done = run("--rates", "0.2,0.6", "--traffic", "100", "--epsilon", "3", *given)
    assert done.exit_code == 0, done.output
    asked = json.loads(done.stdout)["design"]["goal"]
    expect = {"rate": 0.3, "difference": 0.1}
    assert asked["certificate"] == {"delta": 0.1, "tolerance": 0.02, "expect": expect}
    done = run("--rates", "0.2,0.6", "--traffic", "100", "--epsilon", "3", "--expect", "none")
    assert "expects" not in done.stdout
    assert "wrong with probability at most 5 %" in done.stdout


def test_json_has_an_entry_for_every_epsilon_and_a_recommendation(tmp_path: Path) -> None:
    done = run(*DESIGN, "--epsilon", "1,3", "--lose-at-most", "1000", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [option["epsilon"] for option in told["options"]] == [1.0, 3.0]
    assert told["recommendation"]["budget"] == {"kind": "lose_at_most", "amount": 1000.0}
    assert told["design"]["rates"] == [0.4, 0.4, pytest.approx(0.6)]


def test_late_reports_are_in_the_table_and_in_json() -> None:
    done = run(*DESIGN, "--epsilon", "3", "--arrive", "0.6", "--delay", "7")
    assert done.exit_code == 0, done.output
    assert "60 % of the answers are reported on, 7 days after the decision." in done.stdout
    assert "reported on" not in run(*DESIGN, "--epsilon", "3").stdout
    told = json.loads(run(*DESIGN, "--epsilon", "3", "--delay", "7", "--json").stdout)
    assert (told["design"]["arrive"], told["design"]["delay"]) == (1.0, 7.0)


def test_mechanisms_are_given_as_tables() -> None:
    done = run(
        *("--rates", "0.4,0.6", "--traffic", "500", "--json", "--policy", "kl-UCB-CF"),
        *("--channel", "p00 = 0.9, p11 = 0.8", "--channel", 'design = "warner", p = 0.75'),
        *("--channel", "epsilon0 = inf, epsilon1 = 1"),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    channels = [option["mechanism"] for option in told["options"]]
    assert (channels[0]["p00"], channels[0]["p11"]) == (0.9, 0.8)
    assert channels[1]["p00"] == 0.75
    assert told["options"][2]["epsilon"] is None
    assert channels[2]["epsilon1"] == pytest.approx(1)
    assert told["design"]["policy"]["name"] == "KLUCB"


def test_the_sheet_is_written(tmp_path: Path) -> None:
    done = run(*DESIGN, "--epsilon", "2", "--out", str(tmp_path / "sheet.html"))
    assert done.exit_code == 0, done.output
    assert run(*DESIGN, "--epsilon", "2", "--out", str(tmp_path / "sheet.html")).exit_code == 0
    assert (tmp_path / "sheet.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_something_else_in_the_sheets_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.html").write_text("years of work")
    for place in (tmp_path / "thesis.html", tmp_path):
        done = run(*DESIGN, "--epsilon", "2", "--out", str(place))
        assert done.exit_code == 2
        assert "not a sheet" in " ".join(done.stderr.split())
    assert (tmp_path / "thesis.html").read_text() == "years of work"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rates", "0.4,1.4", "--traffic", "500"], "a rate lies in [0, 1]"),
        (["--rates", "0.4,0.4", "--traffic", "500"], "which difference would matter"),
        ([*DESIGN[:4], "--difference", "0", "--traffic", "500"], "which difference would matter"),
        ([*DESIGN[:6], "--traffic", "-5"], "above 0"),
        ([*DESIGN, "--epsilon", "0"], "epsilon"),
        ([*DESIGN, "--delay", "-1"], "days from a decision to its report"),
        ([*DESIGN, "--epsilon", "one"], "between commas"),
        ([*DESIGN, "--channel", "p00 0.9"], "p11 = 0.6"),
        ([*DESIGN, "--channel", "design = 'wagner', p = 0.9"], "warner"),
        ([*DESIGN, "--policy", "TS-FC"], "TS-CF"),
        ([*DESIGN, "--policy", "WR(TS)"], "plans are made for"),
        ([*DESIGN, "--within-days", "3", "--lose-at-most", "3"], "one budget"),
        ([*DESIGN, "--out", "/nowhere/sheet.html"], "there is no folder"),
        (["--traffic", "500"], "rates"),
        ([*DESIGN, "--goal", "learn"], 'choose "earn", or "know"'),
        ([*DESIGN, "--know", "0.5"], 'the goal "know"'),
        ([*DESIGN, "--goal", "know", "--know", "0"], "choose Thompson sampling"),
        ([*DESIGN, "--goal", "know", "--delta", "0.6"], "at most 0.5"),
        ([*DESIGN, "--goal", "know", "--tolerance", "-1"], "from 0 to 1"),
        ([*DESIGN, "--goal", "know", "--expect", "0.5"], "as 0.05,0.01, or none"),
        ([*DESIGN, "--goal", "know", "--expect", "0.5,0"], "above 0 and below 1"),
        (["--rates", "0.4,0.6,0.6", "--traffic", "500", "--goal", "know"], "does not matter"),
    ],
)
def test_bad_input_is_one_sentence_that_helps(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.output


def test_a_budget_that_nobody_can_keep_names_the_closest() -> None:
    done = run(*DESIGN, "--epsilon", "1", "--within-days", "0.01")
    assert done.exit_code == 0, done.output
    assert "the closest is ε = 10" in " ".join(done.stdout.split())


@pytest.mark.long
def test_the_documented_plan_is_what_the_command_prints() -> None:
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    command, printed = re.findall(r"```console\n(.*?)```", page, re.DOTALL)[:2]
    arguments = shlex.split(command.replace("\\\n", " ").split(" --out ")[0])
    done = run(*arguments[2:])
    told = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    assert told == printed.strip("\n")
