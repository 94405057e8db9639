"""What whitelie needs at run time, with licences, from the metadata of what is installed.

`make dependency-tables` writes the tables of docs/dependencies.md anew.
"""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.paths import ROOT

PAGE = ROOT / "docs/dependencies.md"
EXTRAS = ("", "service", "dask", "gym")
"""The core, and the extras that are for use; others are for development."""

TITLES = {"": "The library"} | {extra: f"The extra `{extra}`" for extra in EXTRAS[1:]}
MARKS = re.compile(r"<!-- tables -->\n.*<!-- end of tables -->\n", re.DOTALL)
OLD_STYLE = re.compile(r"License :: (?:OSI Approved :: )?(.+)")


def direct(extra: str) -> list[str]:
    """The names of what is required by whitelie itself, for an extra or for the core."""
    return sorted({name for name, _ in _required("whitelie", extra)})


def needed(extra: str) -> list[str]:
    """The names of all that comes with it, directly or not, as installed here."""
    needed: set[tuple[str, str]] = set()
    waiting = list(_required("whitelie", extra))
    while waiting:
        each = waiting.pop()
        if each not in needed and _installed(each[0]):
            needed.add(each)
            waiting += _required(*each)
    return sorted({name for name, _ in needed})


def _required(name: str, extra: str) -> Iterator[tuple[str, str]]:
    """Yield (name, extra of it) of what a package requires with one of its extras, or with none.

    Of whitelie the extra alone, without the core.
    """
    for text in distribution(name).requires or []:
        wanted = Requirement(text)
        has_extra = wanted.marker is not None and "extra" in str(wanted.marker)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        if name == "whitelie" and has_extra != bool(extra):
            continue
        for inner in ("", *sorted(wanted.extras)):
            yield canonicalize_name(wanted.name), inner


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """The licence that a package names: an SPDX expression, its classifiers, or a short text."""
    metadata = distribution(name).metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    matches = [OLD_STYLE.fullmatch(each) for each in metadata.get_all("Classifier") or []]
    classified = sorted({each[1] for each in matches if each})
    if classified:
        return ", ".join(classified)
    text = metadata["License"].strip() if "License" in metadata else "not said"
    return text if len(text) < 60 else text.splitlines()[0][:60]


def rows(extra: str) -> list[str]:
    """The rows of an extra's table; its own requirements come first, in bold."""
    own = direct(extra)
    others = [name for name in needed(extra) if name not in own]
    if extra:
        others = [name for name in others if name not in needed("")]
    named = [(f"**{name}**", name) for name in own] + [(name, name) for name in others]
    return [f"| {shown} | {licence(name)} |" for shown, name in named]


def tables() -> str:
    """All tables, in Markdown."""
    parts = []
    for extra in EXTRAS:
        head = ["", f"### {TITLES[extra]}", "", "| package | licence |", "|---|---|"]
        parts += [*head, *rows(extra)]
    return "\n".join(parts) + "\n\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    made = f"<!-- tables -->\n{tables()}<!-- end of tables -->\n"
    PAGE.write_text(MARKS.sub(lambda _: made, page), encoding="utf-8")
