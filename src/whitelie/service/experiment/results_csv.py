"""Results as a CSV file (RFC 4180) that no spreadsheet runs."""

import io
import unicodedata
from csv import QUOTE_NONNUMERIC, writer

from whitelie.service.experiment.results import ArmResult, Results

FORMULA_SIGNS = ("=", "+", "-", "\N{MINUS SIGN}", "@")
INVISIBLE = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and symbols that are drawn as nothing."""


def csv(results: Results) -> str:
    """Return the table of arms; a key that a spreadsheet would run as a formula stays text."""
    text = io.StringIO()
    # With quotes around all text, a spreadsheet that splits at semicolons makes no new cells of it.
    rows = writer(text, quoting=QUOTE_NONNUMERIC)
    rows.writerow(ArmResult.__struct_fields__)
    for arm in results.arms:
        rows.writerow([_cell(getattr(arm, field)) for field in ArmResult.__struct_fields__])
    return text.getvalue()


def _cell(value: str | bool | float | None) -> str | float | None:
    """Return the cell of a value; a text that a spreadsheet may run begins with a quote.

    Spreadsheets accept the sign of a formula in any width, and skip whatever is invisible before
    it: spaces, control and format characters, marks.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        visible = (
            c for c in value if unicodedata.category(c)[0] not in "CZM" and c not in INVISIBLE
        )
        first = unicodedata.normalize("NFKC", next(visible, ""))
        if first.startswith(FORMULA_SIGNS) or value.startswith(("\t", "\r", "\n")):
            return "'" + value
    return value
