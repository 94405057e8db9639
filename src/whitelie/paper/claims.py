"""How measurements become a verdict on a statement of the paper.

A check measures quantities with intervals. The statement holds for a quantity if the whole interval
says so, fails if the whole interval says the opposite, and is open otherwise; where it says
nothing, as a bound above all that can be lost does, the quantity does not count. A statement is
reproduced if it holds for all quantities, reproduced with a caveat if it holds for at least as many
as it fails for, and not reproduced otherwise. The intervals of one statement hold together at 95 %
(Bonferroni).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whitelie.paper import experiments
from whitelie.paper.runs import scenario_of
from whitelie.simulation.result import Result

Verdict = Literal["reproduced", "reproduced with a caveat", "not reproduced"]


@dataclass(frozen=True)
class Measurement:
    """A measured quantity, its interval, and whether the statement holds for it (None: open).

    `counts` is false where the statement says nothing. Numbers are None where there is none, as for
    a ratio to nothing.
    """

    of: str
    value: float | None
    lower: float | None
    upper: float | None
    holds: bool | None
    counts: bool = True

    def __str__(self) -> str:
        if self.value is None or self.lower is None or self.upper is None:
            return f"{self.of}: not defined"
        low, high = _short(self.lower), _short(self.upper)
        return f"{self.of}: {_short(self.value)} [{low}, {high}]"

    @property
    def mark(self) -> str:
        """A sign where the statement fails, is open, or says nothing."""
        if not self.counts:
            return " –"
        return {True: "", False: " ✗", None: " ?"}[self.holds]


@dataclass(frozen=True)
class Finding:
    """What was measured on one problem."""

    title: str
    measurements: tuple[Measurement, ...]
    verdict: Verdict

    @property
    def measured(self) -> str:
        """All measurements in words: ✗ fails, ? is open, – says nothing."""
        return "; ".join(f"{each}{each.mark}" for each in self.measurements)


@dataclass(frozen=True)
class Claim:
    """A statement, its place, findings, verdict and reason; `ours` are not the paper's own."""

    id: str
    where: str
    says: str
    ours: bool
    rule: str
    verdict: Verdict
    why: str
    findings: tuple[Finding, ...]

    @property
    def measured(self) -> str:
        """For how many measurements it holds, in words."""
        return counted([each for finding in self.findings for each in finding.measurements])


@dataclass(frozen=True)
class Check:
    """How a statement is checked: on which figures, by which measurements, and what it means."""

    id: str
    where: str
    says: str
    figures: tuple[str, ...]
    rule: str
    measure: Callable[[Result], list[Measurement]]
    why: Mapping[Verdict, str]
    ours: bool = False

    def examine(self, figure: str, result: Result) -> Finding:
        """Return what one figure's result says of the statement."""
        measurements = tuple(self.measure(result))
        return Finding(problem_of(figure), measurements, combined(measurements))

    def conclude(self, findings: Sequence[Finding]) -> Claim:
        """Return the statement with its verdict over all findings."""
        every = [each for finding in findings for each in finding.measurements]
        return Claim(
            id=self.id,
            where=self.where,
            says=self.says,
            ours=self.ours,
            rule=self.rule,
            verdict=combined(every),
            why=f"{counted(every)} {self.why[combined(every)]}",
            findings=tuple(findings),
        )


def combined(measurements: Iterable[Measurement]) -> Verdict:
    """Return the verdict on a statement from its measurements.

    >>> yes, no, unclear = (Measurement("", 0, 0, 0, holds) for holds in (True, False, None))
    >>> combined([yes, yes]), combined([yes, no]), combined([yes, no, no]), combined([unclear])
    ('reproduced', 'reproduced with a caveat', 'not reproduced', 'not reproduced')
    """
    holds = [each.holds for each in measurements if each.counts]
    if holds.count(True) == len(holds) > 0:
        return "reproduced"
    if holds.count(True) >= max(1, holds.count(False)):
        return "reproduced with a caveat"
    return "not reproduced"


def counted(measurements: Sequence[Measurement]) -> str:
    """Return for how many measurements a statement holds, in words.

    >>> counted([Measurement("", 0, 0, 0, True), Measurement("", 0, 0, 0, None)])
    'Holds for 1 of 2 measurements, is open for 1.'
    """
    every = [each.holds for each in measurements if each.counts]
    words = [f"Holds for {every.count(True)} of {len(every)} measurements"]
    for word, holds in (("fails for", False), ("is open for", None)):
        if holds in every:
            words.append(f"{word} {every.count(holds)}")
    silent = len(measurements) - len(every)
    if silent:
        words.append(f"and says nothing on {silent} more")
    return ", ".join(words) + "."


def problem_of(figure: str) -> str:
    """Return the name of the problem that a figure shows."""
    if figure in experiments.PANELS:
        return scenario_of(figure).title
    return f"{experiments.ASYMPTOTIC_SCENARIO.title}, ε = {experiments.ASYMPTOTIC_EPSILON:g}"


def _short(value: float) -> str:
    """Return the number with three digits, or whole.

    >>> _short(0.12345), _short(12.345), _short(12345.6)
    ('0.123', '12.3', '12,346')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
