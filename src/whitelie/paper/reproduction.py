"""The whole reproduction: simulate, draw, check the claims, and write one report.

A folder holds one reproduction: settings.json says its scale, runs/ the simulations, figures/ the
figures as SVG and PDF; claims.json, record.md and report.html are made from both. What was
simulated is never simulated again; everything else is written again each time.
"""

import json
import os
import platform
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from whitelie.errors import InvalidInput
from whitelie.kernel.jit import source_hash
from whitelie.kernel.numbers import NUMBERS
from whitelie.page import Table
from whitelie.paper import experiments
from whitelie.paper.claims import Claim
from whitelie.paper.experiments import BEYOND_THE_PAPER, FIGURES
from whitelie.paper.figures.figure import CheckedFigure, FigureMaker
from whitelie.paper.report import summary, tables
from whitelie.paper.report.page import ReportPage, Section, render
from whitelie.paper.report.record import record
from whitelie.paper.report.texts import READINGS
from whitelie.paper.runs import Scale, StoredRuns, Times
from whitelie.paper.statements import conclude
from whitelie.simulation.chunks import claim_folder
from whitelie.simulation.progress import progress
from whitelie.simulation.work import Workers

PANELS_CLOCK, BEYOND_CLOCK, FIGURES_CLOCK = "clock: panels", "clock: beyond", "clock: pictures"
"""Keys of times.json."""

FORMAT = 1
"""The version of the folder's settings.json."""


@dataclass(frozen=True)
class Reproduction:
    """A reproduction in a folder, at a scale, of some figures or of all."""

    folder: Path
    scale: Scale
    figures: tuple[str, ...] = FIGURES

    def __post_init__(self) -> None:
        for name in self.figures:
            if name not in FIGURES:
                reason = f"there is no such figure; choose among {', '.join(FIGURES)}"
                raise InvalidInput("only", name, reason)

    def run(self, workers: Workers) -> ReportPage:
        """Simulate what is missing, write all files, and return the page of the report."""
        claim_folder("out", self.folder, self._settings())
        runs = StoredRuns(self.folder / "runs", self.scale)
        with runs.times.clock(PANELS_CLOCK):
            runs.fill([name for name in self.figures if name not in BEYOND_THE_PAPER], workers)
        with runs.times.clock(BEYOND_CLOCK):
            runs.fill([name for name in self.figures if name in BEYOND_THE_PAPER], workers)
        with runs.times.clock(FIGURES_CLOCK):
            figures = self._draw(runs, show_progress=workers.progress)
        claims = conclude(figure.findings for figure in figures)
        page = self._page(figures, claims, runs)
        self._write("claims.json", self._claims(claims))
        self._write("record.md", record(page))
        self._write("report.html", render(page))
        return page

    @property
    def described(self) -> str:
        """The scale in words, and which figures were made if not all."""
        if set(self.figures) == set(FIGURES):
            return describe(self.scale)
        return f"only {', '.join(self.figures)}; {describe(self.scale)}"

    def _settings(self) -> dict[str, object]:
        return {"format": FORMAT, "kernel": NUMBERS, **asdict(self.scale)}

    def _draw(self, runs: StoredRuns, *, show_progress: bool) -> list[CheckedFigure]:
        folder = self.folder / "figures"
        folder.mkdir(exist_ok=True)
        maker = FigureMaker(runs, self.scale, folder)
        figures = []
        chosen = [name for name in FIGURES if name in self.figures]
        with progress("figures", len(chosen), shown=show_progress) as advance:
            for name in chosen:
                figures.append(maker.make(name))
                advance(1)
        return figures

    def _claims(self, claims: Sequence[Claim]) -> str:
        data = {
            **asdict(self.scale),
            "pictures": list(self.figures),
            "claims": [asdict(claim) for claim in claims],
        }
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)

    def _page(
        self, figures: Sequence[CheckedFigure], claims: Sequence[Claim], runs: StoredRuns
    ) -> ReportPage:
        entries = [entry for figure in figures for entry in figure.entries]
        numbers = tuple(tables.tables(entries))
        return ReportPage(
            headline="Corrupt Bandits for Preserving Local Privacy, reproduced",
            quick=self.scale.replicates < experiments.REPLICATES,
            scale=self.described,
            summary=summary.sentences(claims, numbers),
            claims=claims,
            sections=tuple(_sections(figures)),
            tables=numbers,
            readings=READINGS,
            provenance=_provenance(self.described),
            times=_times(runs.times),
        )

    def _write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        unfinished = self.folder / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self.folder / name)


def describe(scale: Scale) -> str:
    """Return the scale in words.

    >>> describe(Scale())
    '5 problems, 1,000 replicates, T = 100,000, seed 2018'
    """
    return (
        f"{len(experiments.SCENARIOS)} problems, {scale.replicates:,} replicates, "
        f"T = {scale.horizon:,}, seed {scale.seed}"
    )


def _sections(figures: Sequence[CheckedFigure]) -> list[Section]:
    groups = [
        (scenario.title, means_in_words(scenario.means), f"{scenario.figure}")
        for scenario in experiments.SCENARIOS
    ]
    sections = []
    for title, intro, number in groups:
        panels = [each.shown for each in figures if each.shown.name.startswith(number)]
        sections.append(Section(title, intro, tuple(panels)))
    for title, intro, names in (
        ("Diagrams", "The paper's three diagrams, computed.", experiments.DIAGRAMS),
        (
            "Beyond the paper",
            "What the paper could not afford, or did not ask.",
            BEYOND_THE_PAPER,
        ),
    ):
        shown = [each.shown for each in figures if each.shown.name in names]
        sections.append(Section(title, intro, tuple(shown)))
    return [section for section in sections if section.figures]


def means_in_words(means: Sequence[float]) -> str:
    """Return the mean rewards of a problem as a sentence.

    >>> means_in_words((0.9, 0.6, 0.6))
    '3 arms with mean rewards .9 and .6 (2 arms).'
    """
    parts = []
    for mean in dict.fromkeys(means):
        count = means.count(mean)
        number = f"{mean:g}".removeprefix("0")
        parts.append(number if count == 1 else f"{number} ({count} arms)")
    listed = ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"{len(means)} arms with mean rewards {listed}."


def _provenance(scale: str) -> tuple[tuple[str, str], ...]:
    packages = ("whitelie", "numpy", "numba", "scipy", "matplotlib")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        ("Scale", scale),
        ("Versions", ", ".join(f"{name} {version(name)}" for name in packages)),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("Kernel", source_hash()),
        ("Machine", f"{_processor()}, {os.cpu_count()} cores"),
        ("Memory", f"{peak:,.0f} MB at most in the process that wrote this"),
        ("Written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    )


def _processor() -> str:
    """Return what the machine calls its processor."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _times(times: Times) -> Table:
    """Return the time of each group of runs on one core, and the time by the clock."""
    rows = []
    for title, mark in {
        "unequal noise: panels a and c = 0, one core": "-unequal-noise",
        "equal privacy: panels b and c, one core": "-epsilon-",
        "asymptotic optimality, one core": "optimality",
        "real survey, one core": "survey",
        "panels, by the clock": PANELS_CLOCK,
        "beyond the paper, by the clock": BEYOND_CLOCK,
        "figures, by the clock": FIGURES_CLOCK,
    }.items():
        seconds = times.total(mark)
        if seconds is not None:
            rows.append((title, f"{seconds:,.1f} s"))
    note = "All runs of this folder together. Compiling is part of the clock, not of the cores."
    return Table("Time per experiment", ("what", "time"), tuple(rows), note)
