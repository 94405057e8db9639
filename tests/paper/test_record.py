"""The record of the full run agrees with the settings, and with what the code computes today."""

import re
from fractions import Fraction

import pytest

from helpers.paths import ROOT
from whitelie.page import Table
from whitelie.paper import experiments, runs, statements
from whitelie.paper.report import record, tables
from whitelie.paper.reproduction import describe
from whitelie.paper.runs import Run, Scale
from whitelie.simulation.work import simulate

RECORD = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
TITLES = tuple(scenario.title for scenario in experiments.SCENARIOS)


def recorded(title: str) -> Table:
    """A table of the record."""
    part = RECORD.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    head, *rows = (tuple(line.strip("| ").split(" | ")) for line in lines)
    return Table(title, head, tuple(rows))


def test_the_record_is_of_the_papers_scale() -> None:
    assert f"\n{describe(Scale())}.\n" in RECORD


def test_the_record_is_of_the_problems_in_the_settings() -> None:
    problems = record.problems()
    assert recorded(problems.title).rows == problems.rows
    assert problems.note in RECORD


def test_the_record_has_every_policy_problem_and_epsilon_of_the_settings() -> None:
    against_epsilon = [
        f"{policy.label}, ε = {Fraction(epsilon)}"
        for epsilon in experiments.EPSILONS
        for policy in experiments.AGAINST_EPSILON
    ]
    local = [policy.label for policy in experiments.AGAINST_EPSILON]
    for title, rows in {
        tables.OVER_TIME: [policy.label for policy in experiments.OVER_TIME],
        tables.AGAINST_EPSILON: against_epsilon,
        tables.LOCAL_AND_GLOBAL: [*local, *experiments.GLOBAL_PRIVACY],
        tables.EXPLORATION: list(experiments.EXPLORATION),
    }.items():
        table = recorded(title)
        assert table.columns == ("policy", *TITLES)
        assert [row[0] for row in table.rows] == rows
    assert [row[0] for row in recorded(tables.OPTIMALITY).rows] == list(experiments.OPTIMALITY)
    horizon = experiments.ASYMPTOTIC_HORIZON_FACTOR * experiments.HORIZON
    assert recorded(tables.OPTIMALITY).columns[-2] == f"T = {horizon:,}"
    labels = [policy.label for policy in experiments.SURVEY_POLICIES]
    assert [row[0] for row in recorded(tables.SURVEY).rows] == labels


def test_the_recorded_verdicts_are_of_the_checks_of_today() -> None:
    rows = recorded("Verdicts").rows
    assert [row[:2] for row in rows] == [(rule.says, rule.where) for rule in statements.CHECKS]


SCALE = Scale()
MAIN, FIRST, SECOND = experiments.SCENARIOS[:3]


@pytest.mark.parametrize(
    ("title", "column", "run", "policy"),
    [
        (tables.OVER_TIME, MAIN.title, runs.over_time(MAIN, SCALE), "kl-UCB-CF"),
        (tables.OVER_TIME, FIRST.title, runs.over_time(FIRST, SCALE), "TS-CF"),
        (tables.OVER_TIME, SECOND.title, runs.over_time(SECOND, SCALE), "UCB-CF"),
        (tables.LOCAL_AND_GLOBAL, FIRST.title, runs.local_and_global(FIRST, SCALE), "kl-UCB-CF"),
        (
            tables.LOCAL_AND_GLOBAL,
            FIRST.title,
            runs.local_and_global(FIRST, SCALE),
            "DP-UCB-INT, calibrated",
        ),
        (tables.EXPLORATION, SECOND.title, runs.exploration(SECOND, SCALE), "kl-UCB-CF, c = 0"),
        (tables.SURVEY, "regret", runs.survey(SCALE), "TS-CF"),
        (tables.AGAINST_EPSILON, FIRST.title, runs.private(FIRST, SCALE, 8.0), "TS-CF"),
    ],
)
def test_the_recorded_numbers_are_computed_today(
    title: str, column: str, run: Run, policy: str
) -> None:
    result = simulate(
        run.problem,
        {policy: run.policies[policy]},
        horizon=run.horizon,
        replicates=run.replicates,
        seed=SCALE.seed,
    )
    (entry,) = tables.final_regrets(title, column, result)
    table = recorded(title)
    name = f"{policy}, ε = 8" if title == tables.AGAINST_EPSILON else policy
    row = next(row for row in table.rows if row[0] == name)
    assert row[table.columns.index(column)] == entry.text


def test_the_numbers_of_the_readme_are_the_records() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    numbers = re.findall(r"[\d,.]+ ± [\d,.]*\d", readme)
    assert len(numbers) > 5
    for number in numbers:
        assert number in RECORD, number
