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
from whitelie.paper import settings, summary, tables
from whitelie.paper.claims import Claim, conclude
from whitelie.paper.pictures import Album, Sight
from whitelie.paper.reading import READINGS
from whitelie.paper.record import record
from whitelie.paper.report import Report, Section, Table, render
from whitelie.paper.runs import Runs, Scale
from whitelie.progress import progress
from whitelie.simulation import Workers
from whitelie.store import claim_folder

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
        runs.fill(self.pictures, workers)
        sights = self._draw(runs, shown=workers.progress)
        claims = conclude(sight.findings for sight in sights)
        report = self._report(sights, claims, runs)
        self._write("claims.json", json.dumps(self._claims(claims), indent=1, ensure_ascii=False))
        self._write("record.md", record(report))
        self._write("report.html", render(report))
        return report

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

    def _claims(self, claims: Sequence[Claim]) -> dict[str, object]:
        return {**asdict(self.scale), "claims": [asdict(claim) for claim in claims]}

    def _report(self, sights: Sequence[Sight], claims: Sequence[Claim], runs: Runs) -> Report:
        entries = [entry for sight in sights for entry in sight.entries]
        found = tuple(tables.tables(entries))
        return Report(
            headline="Corrupt Bandits for Preserving Local Privacy, reproduced",
            quick=not self.scale.is_the_papers,
            scale=describe(self.scale),
            summary=summary.sentences(claims, found),
            claims=claims,
            sections=tuple(_sections(sights)),
            tables=found,
            readings=READINGS,
            provenance=_provenance(self.scale),
            times=_times(runs.seconds()),
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


def _provenance(scale: Scale) -> tuple[tuple[str, str], ...]:
    packages = ("whitelie", "numpy", "numba", "scipy", "matplotlib")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        ("Scale", describe(scale)),
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


def _times(seconds: dict[str, float]) -> Table:
    """Return how long each group of runs took."""
    groups = {
        "unequal noise: panels a, c = 0": "-unequal-noise",
        "equal privacy: panels b and c": "-epsilon-",
        "asymptotic optimality": "optimality",
        "real survey": "survey",
    }
    rows = [
        (title, f"{sum(value for name, value in seconds.items() if mark in name):,.1f} s")
        for title, mark in groups.items()
        if any(mark in name for name in seconds)
    ]
    wall = seconds.get("wall clock", 0.0)
    rows.append(("all, by the clock", f"{wall:,.1f} s"))
    note = "Seconds of one core, and of the clock on the wall for all simulations together."
    return Table("Time per experiment", ("simulations", "time"), tuple(rows), note)
