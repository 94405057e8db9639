"""The report's numbers as one Markdown file, to be kept beside the code."""

from whitelie.page import Table
from whitelie.paper import settings
from whitelie.paper.report import Report

INTRODUCTION = (
    "This file was written by `whitelie reproduce`, which makes the same tables, the figures and "
    "the reasons for all verdicts in one report."
)


def record(report: Report) -> str:
    """Return verdicts, tables, settings, times and provenance."""
    parts = ["# The paper, reproduced: the record of a run", INTRODUCTION, f"{report.scale}."]
    parts += ["## Summary", *report.summary] if report.summary else []
    verdicts = [_verdicts(report)] if report.claims else []
    for table in (*verdicts, *report.tables, problems(), report.times, _made(report)):
        parts += [f"## {table.title}", table.note, markdown(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(table: Table) -> str:
    """Return the table in Markdown.

    >>> print(markdown(Table("", ("policy", "regret"), (("TS", "12 ± 1"),))))
    | policy | regret |
    |---|---:|
    | TS | 12 ± 1 |
    """
    sides = "|".join("---:" if numbers else "---" for numbers in table.numeric)
    head, *rows = (f"| {' | '.join(row)} |" for row in (table.columns, *table.rows))
    return "\n".join([head, f"|{sides}|", *rows])


def problems() -> Table:
    """Return the five problems and what is done to their feedback."""
    rows = tuple(
        (scenario.title, ", ".join(f"{mean:g}" for mean in scenario.means))
        for scenario in settings.SCENARIOS
    )
    best, others = settings.BEST_ARM_CHANNEL.p00, settings.OTHER_ARMS_CHANNEL.p00
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in settings.EPSILONS)
    note = (
        f"Unequal noise: p00 = p11 = {best:g} for the best arm, {others:g} for the others. "
        f"Equal privacy: ε = {epsilons}."
    )
    return Table("The problems", ("problem", "mean rewards"), rows, note)


def _verdicts(report: Report) -> Table:
    rows = tuple(
        (claim.says, claim.where, claim.verdict, claim.measured.removesuffix("."))
        for claim in report.claims
    )
    return Table("Verdicts", ("statement", "where", "verdict", "measured"), rows)


def _made(report: Report) -> Table:
    return Table("Where and when", ("what", "which"), report.provenance)
