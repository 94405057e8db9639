"""The report: one HTML file with everything in it, to be read offline, on a phone or on paper.

It loads nothing from anywhere and runs no script: pictures are inside as data, and the page's own
content security policy forbids the rest. All texts are plain and are escaped.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Protocol

from jinja2 import Environment, StrictUndefined

SYMBOLS = {"reproduced": "✓", "reproduced with a caveat": "~", "not reproduced": "✗"}
"""The verdicts, best first, and the sign of each."""

_BEFORE_A_NUMBER = "+-−±<>≤≥≈~"
_NOT_A_VALUE = ("", "-", "–", "—", "∞")


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
    def rule(self) -> str:
        """What decides, in words."""

    @property
    def verdict(self) -> str:
        """One of `SYMBOLS`."""

    @property
    def why(self) -> str:
        """The reason for the verdict."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was measured, problem by problem."""


@dataclass(frozen=True)
class Picture:
    """A figure: `name` is unique in the report, `alt` says what is seen to those who cannot see."""

    name: str
    title: str
    caption: str
    alt: str
    svg: bytes | str

    @property
    def source(self) -> str:
        """The picture itself as an address.

        >>> Picture("1a", "Regret", "", "", "<svg/>").source
        'data:image/svg+xml;base64,PHN2Zy8+'
        """
        drawn = self.svg.encode() if isinstance(self.svg, str) else self.svg
        return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}"


@dataclass(frozen=True)
class Section:
    """Pictures that belong together."""

    title: str
    intro: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first cell of a row names it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers, and so are set flush right.

        >>> Table("", ("policy", "regret"), (("TS-CF", "≈ 120"), ("UCB", "–"))).numeric
        (False, True)
        """
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return tuple(all(map(_is_number, cells)) for cells in columns)


@dataclass(frozen=True)
class Report:
    """All that the page says, in the order in which it says it."""

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
        """How many claims got each verdict."""
        verdicts = [claim.verdict for claim in self.claims]
        return {verdict: verdicts.count(verdict) for verdict in SYMBOLS}


def render(report: Report) -> str:
    """Return the report as the text of one HTML file."""
    rules = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = files("whitelie.paper").joinpath("report.html").read_text(encoding="utf-8")
    return rules.from_string(page).render(report=report, symbols=SYMBOLS, Table=Table)


def _is_number(text: str) -> bool:
    return text in _NOT_A_VALUE or text.lstrip(_BEFORE_A_NUMBER + " ")[:1].isdigit()
