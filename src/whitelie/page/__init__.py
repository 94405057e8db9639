"""Pages: HTML files with everything in them, to be read offline, on a phone or on paper.

They load nothing from elsewhere and run no script: figures are embedded as data, and a page's own
content security policy forbids the rest. All texts are plain and are escaped. page.css is the style
that pages share, page.html the macros that they are built from.
"""

import base64
import io
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.figure import Figure

_BEFORE_A_NUMBER = "+-−±<>≤≥≈~"
_NOT_A_VALUE = ("", "-", "–", "—", "∞")


@dataclass(frozen=True)
class PageFigure:
    """A figure in a page: `name` is unique there, `alt` describes it to those who cannot see it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: bytes | str

    @property
    def source(self) -> str:
        """The figure itself as a data address.

        >>> PageFigure("1a", "Regret", "", "", "<svg/>").source
        'data:image/svg+xml;base64,PHN2Zy8+'
        """
        drawn = self.svg.encode() if isinstance(self.svg, str) else self.svg
        return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}"


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first cell of a row names it. Further lines of a text are set small."""

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


def render(template: str, **content: Any) -> str:
    """Return a page as the text of one HTML file; `template` is its path within the package."""
    rules = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return rules.get_template(template).render(**content)


def svg(figure: Figure, creator: str = "whitelie") -> bytes:
    """Return the figure as SVG, the same bytes each time."""
    written = io.BytesIO()
    with rc_context({"svg.hashsalt": "whitelie"}):
        figure.savefig(written, format="svg", metadata={"Creator": creator, "Date": None})
    return written.getvalue()


def _source(template: str) -> str:
    return files("whitelie").joinpath(template).read_text(encoding="utf-8")


def _is_number(text: str) -> bool:
    return text in _NOT_A_VALUE or text.lstrip(_BEFORE_A_NUMBER + " ")[:1].isdigit()
