"""The numbers behind the figures as tables: means ± standard errors."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from whitelie.bounds import lower_constant
from whitelie.page import Table
from whitelie.paper.measures import slopes
from whitelie.paper.runs import decades
from whitelie.simulation.intervals import t_interval
from whitelie.simulation.result import Result

OVER_TIME = "Regret under unequal noise (panels a)"
AGAINST_EPSILON = "Regret against ε (panels b)"
LOCAL_AND_GLOBAL = "Regret with local and with global privacy, ε = 1 (panels c)"
OPTIMALITY = "Regret over ln T, for a hundred times longer"
EXPLORATION = "Regret under unequal noise, c = 3 and c = 0"
SURVEY = "The real survey"

NOTES = {
    OVER_TIME: "Mean at T ± its standard error.",
    AGAINST_EPSILON: "Mean at T ± its standard error.",
    LOCAL_AND_GLOBAL: "Mean at T ± its standard error.",
    OPTIMALITY: "R(T)/ln T in units of Theorem 1's constant, ± its standard error; and the slope "
    "of R against ln T over the last decade, in the same units.",
    EXPLORATION: "Mean at T ± its standard error. Where c is not said it is 3.",
    SURVEY: "Regret in yeses missed, ± its standard error; and the share of all choices that went "
    "to the question with the largest corrected rate of yeses.",
}


@dataclass(frozen=True)
class Entry:
    """One cell of a table."""

    table: str
    row: str
    column: str
    text: str


def tables(entries: Iterable[Entry]) -> list[Table]:
    """Return the entries as tables; rows and columns come in the order of their first entry."""
    by_table: dict[str, list[Entry]] = {}
    for entry in entries:
        by_table.setdefault(entry.table, []).append(entry)
    return [_pivoted(title, by_table[title]) for title in NOTES if title in by_table]


def final_regrets(table: str, column: str, result: Result) -> list[Entry]:
    """Return the regret of every policy at the horizon, and at every epsilon if there are any."""
    summary = result.summary().reset_index()
    return [
        Entry(table, _row(row), column, plus_minus(row["mean"], row["standard_error"]))
        for row in summary.to_dict("records")
    ]


def long_run(result: Result) -> list[Entry]:
    """Return how near R(T)/ln T and the last slope come to Theorem 1's constant."""
    constant = lower_constant(result.problem)
    times = decades(result.horizon)
    entries = []
    for name in result.policies:
        for time in times:
            regret = result.summary(at=time).loc[name]
            unit = constant * math.log(time)
            text = plus_minus(regret["mean"] / unit, regret["standard_error"] / unit)
            entries.append(Entry(OPTIMALITY, name, f"T = {time:,}", text))
        slope = t_interval(slopes(result)[name])
        text = plus_minus(float(slope["mean"]), float(slope["standard_error"]))
        entries.append(Entry(OPTIMALITY, name, "slope", text))
    return entries


def survey(result: Result) -> list[Entry]:
    """Return what each policy missed, and how often it chose the right question."""
    regret = final_regrets(SURVEY, "regret", result)
    shares = [
        Entry(SURVEY, str(name), "right question", f"{share:.1%}")
        for name, share in result.summary()["best_share"].items()
    ]
    return [*regret, *shares]


def plus_minus(mean: float, standard_error: float) -> str:
    """Return mean ± standard error with as many digits as the error is worth.

    >>> plus_minus(1234.567, 12.3), plus_minus(12.3456, 0.123), plus_minus(5.0, 0.0)
    ('1,235 ± 12', '12.35 ± 0.12', '5 ± 0')
    """
    if not 0 < standard_error < math.inf:
        return f"{mean:,.6g} ± {standard_error:g}"
    digits = max(0, 1 - math.floor(math.log10(standard_error)))
    return f"{mean:,.{digits}f} ± {standard_error:,.{digits}f}"


def _row(row: dict[str, object]) -> str:
    if "epsilon" not in row:
        return str(row["policy"])
    return f"{row['policy']}, ε = {Fraction(str(row['epsilon']))}"


def _pivoted(title: str, entries: Sequence[Entry]) -> Table:
    rows = dict.fromkeys(entry.row for entry in entries)
    columns = dict.fromkeys(entry.column for entry in entries)
    texts = {(entry.row, entry.column): entry.text for entry in entries}
    cells = tuple((row, *(texts.get((row, column), "–") for column in columns)) for row in rows)
    return Table(title, ("policy", *columns), cells, NOTES[title])
