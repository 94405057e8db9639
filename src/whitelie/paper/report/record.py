"""The report's numbers as one Markdown file, to be stored beside the code."""

from whitelie.page import Table
from whitelie.paper import experiments
from whitelie.paper.report.page import ReportPage

INTRODUCTION = (
    "This file was written by `whitelie reproduce`, which makes the same tables, the figures and "
    "the reasons for all verdicts in one report."
)


def record(page: ReportPage) -> str:
    """Return verdicts, tables, settings, times and provenance."""
    parts = ["# The paper, reproduced: the record of a run", INTRODUCTION, f"{page.scale}."]
    parts += ["## Summary", *page.summary] if page.summary else []
    verdicts = [_verdicts(page)] if page.claims else []
    for table in (*verdicts, *page.tables, problems(), page.times, _made(page)):
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
        for scenario in experiments.SCENARIOS
    )
    best, others = experiments.BEST_ARM_CHANNEL.p00, experiments.OTHER_ARMS_CHANNEL.p00
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in experiments.EPSILONS)
    note = (
        f"Unequal noise: p00 = p11 = {best:g} for the best arm, {others:g} for the others. "
        f"Equal privacy: ε = {epsilons}."
    )
    return Table("The problems", ("problem", "mean rewards"), rows, note)


def _verdicts(page: ReportPage) -> Table:
    rows = tuple(
        (claim.says, claim.where, claim.verdict, claim.measured.removesuffix("."))
        for claim in page.claims
    )
    return Table("Verdicts", ("statement", "where", "verdict", "measured"), rows)


def _made(page: ReportPage) -> Table:
    return Table("Where and when", ("what", "which"), page.provenance)
