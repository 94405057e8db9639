"""The whole reproduction: simulate, draw, check the claims, and write one report.

A folder holds one reproduction: settings.json says its scale, runs/ the simulations, figures/ the
pictures as SVG and PDF; claims.json, record.md and report.html are what they add up to. What was
simulated is never simulated again; everything else is made anew each time.
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
from whitelie.page import Table
from whitelie.paper import settings, summary, tables
from whitelie.paper.claims import Claim
from whitelie.paper.pictures import Album, Sight
from whitelie.paper.reading import READINGS
from whitelie.paper.record import record
from whitelie.paper.report import Report, Section, render
from whitelie.paper.runs import Runs, Scale, Times
from whitelie.paper.statements import conclude
from whitelie.progress import progress
from whitelie.simulation import Workers
from whitelie.store import claim_folder

PANELS_CLOCK, BEYOND_CLOCK, PICTURES_CLOCK = "clock: panels", "clock: beyond", "clock: pictures"
ALL = (*settings.PANELS, *settings.ILLUSTRATIONS, *settings.BEYOND)
FORMAT = 1


@dataclass(frozen=True)
class Reproduction:
    """A reproduction in a folder, at a scale, of some pictures or of all."""

    folder: Path
    scale: Scale
    pictures: tuple[str, ...] = ALL

    def __post_init__(self) -> None:
        for name in self.pictures:
            if name not in ALL:
                reason = f"there is no such picture; choose among {', '.join(ALL)}"
                raise InvalidInput("only", name, reason)

    def run(self, workers: Workers) -> Report:
        """Do all that is missing, write all files and return the report."""
        claim_folder("out", self.folder, self._settings())
        runs = Runs(self.folder / "runs", self.scale)
        with runs.times.clock(PANELS_CLOCK):
            runs.fill([name for name in self.pictures if name not in settings.BEYOND], workers)
        with runs.times.clock(BEYOND_CLOCK):
            runs.fill([name for name in self.pictures if name in settings.BEYOND], workers)
        with runs.times.clock(PICTURES_CLOCK):
            sights = self._draw(runs, shown=workers.progress)
        claims = conclude(sight.findings for sight in sights)
        report = self._report(sights, claims, runs)
        self._write("claims.json", self._claims(claims))
        self._write("record.md", record(report))
        self._write("report.html", render(report))
        return report

    @property
    def described(self) -> str:
        """The scale in words, and which pictures were made if not all."""
        if set(self.pictures) == set(ALL):
            return describe(self.scale)
        return f"only {', '.join(self.pictures)}; {describe(self.scale)}"

    def _settings(self) -> dict[str, object]:
        return {"format": FORMAT, "kernel": source_hash(), **asdict(self.scale)}

    def _draw(self, runs: Runs, *, shown: bool) -> list[Sight]:
        folder = self.folder / "figures"
        folder.mkdir(exist_ok=True)
        album = Album(runs, self.scale, folder)
        sights = []
        chosen = [name for name in ALL if name in self.pictures]
        with progress("pictures", len(chosen), shown=shown) as advance:
            for name in chosen:
                sights.append(album.make(name))
                advance(1)
        return sights

    def _claims(self, claims: Sequence[Claim]) -> str:
        told = {
            **asdict(self.scale),
            "pictures": list(self.pictures),
            "claims": [asdict(claim) for claim in claims],
        }
        return json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False)

    def _report(self, sights: Sequence[Sight], claims: Sequence[Claim], runs: Runs) -> Report:
        entries = [entry for sight in sights for entry in sight.entries]
        found = tuple(tables.tables(entries))
        return Report(
            headline="Corrupt Bandits for Preserving Local Privacy, reproduced",
            quick=self.scale.replicates < settings.REPLICATES,
            scale=self.described,
            summary=summary.sentences(claims, found),
            claims=claims,
            sections=tuple(_sections(sights)),
            tables=found,
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
        f"{len(settings.SCENARIOS)} problems, {scale.replicates:,} replicates, "
        f"T = {scale.horizon:,}, seed {scale.seed}"
    )


def _sections(sights: Sequence[Sight]) -> list[Section]:
    groups = [
        (scenario.title, means_in_words(scenario.means), f"{scenario.figure}")
        for scenario in settings.SCENARIOS
    ]
    sections = []
    for title, intro, figure in groups:
        panels = [each.picture for each in sights if each.picture.name.startswith(figure)]
        sections.append(Section(title, intro, tuple(panels)))
    for title, intro, names in (
        ("Illustrations", "The paper's three drawings, computed.", settings.ILLUSTRATIONS),
        ("Beyond the paper", "What the paper could not afford, or did not ask.", settings.BEYOND),
    ):
        shown = [each.picture for each in sights if each.picture.name in names]
        sections.append(Section(title, intro, tuple(shown)))
    return [section for section in sections if section.pictures]


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
    """Return how long each group of runs took on one core, and how long one had to wait."""
    rows = []
    for title, mark in {
        "unequal noise: panels a and c = 0, one core": "-unequal-noise",
        "equal privacy: panels b and c, one core": "-epsilon-",
        "asymptotic optimality, one core": "optimality",
        "real survey, one core": "survey",
        "panels, by the clock": PANELS_CLOCK,
        "beyond the paper, by the clock": BEYOND_CLOCK,
        "pictures, by the clock": PICTURES_CLOCK,
    }.items():
        seconds = times.total(mark)
        if seconds is not None:
            rows.append((title, f"{seconds:,.1f} s"))
    note = "All runs of this folder together. Compiling is part of the clock, not of the cores."
    return Table("Time per experiment", ("what", "time"), tuple(rows), note)
