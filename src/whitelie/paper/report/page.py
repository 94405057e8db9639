"""The report of the reproduction as one page: claims and verdicts, figures, numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from whitelie import page
from whitelie.page import PageFigure, Table

SYMBOLS = {"reproduced": "✓", "reproduced with a caveat": "~", "not reproduced": "✗"}
"""The verdicts, best first, and the sign of each."""


class Finding(Protocol):
    """What was measured for a claim on one problem."""

    @property
    def title(self) -> str:
        """The problem."""

    @property
    def measured(self) -> str:
        """The number with its interval."""

    @property
    def verdict(self) -> str:
        """One of `SYMBOLS`."""


class Claim(Protocol):
    """What the paper says, and whether it came out."""

    @property
    def id(self) -> str:
        """A short name, unique in the report."""

    @property
    def where(self) -> str:
        """The place in the paper."""

    @property
    def says(self) -> str:
        """The claim in a sentence."""

    @property
    def ours(self) -> bool:
        """Whether it is not a statement of the paper."""

    @property
    def rule(self) -> str:
        """What decides, in words."""

    @property
    def verdict(self) -> str:
        """One of `SYMBOLS`."""

    @property
    def why(self) -> str:
        """The reason for the verdict."""

    @property
    def measured(self) -> str:
        """For how many measurements it holds, in words."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was measured, problem by problem."""


@dataclass(frozen=True)
class Section:
    """Figures that belong together."""

    title: str
    intro: str
    figures: tuple[PageFigure, ...]


@dataclass(frozen=True)
class ReportPage:
    """The content of the page, from top to bottom."""

    headline: str
    quick: bool
    scale: str
    summary: tuple[str, ...]
    claims: Sequence[Claim]
    sections: tuple[Section, ...]
    tables: tuple[Table, ...]
    readings: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...]
    times: Table

    @property
    def counts(self) -> dict[str, int]:
        """How many of the paper's statements got each verdict."""
        verdicts = [claim.verdict for claim in self.claims if not claim.ours]
        return {verdict: verdicts.count(verdict) for verdict in SYMBOLS}


def render(content: ReportPage) -> str:
    """Return the report as the text of one HTML file."""
    return page.render("paper/report/report.html", report=content, symbols=SYMBOLS, Table=Table)
