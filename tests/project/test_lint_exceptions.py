"""Every exception from a lint or type rule says its reason, on its line or in pyproject.toml."""

import re
import tomllib

import pytest

from helpers.paths import ROOT

FOLDERS = ("src", "tests", "benchmarks", "examples")
WITHOUT_REASON = re.compile(
    r"#\s*noqa(?!: [A-Z0-9, ]+ \(.+\))|#\s*type: ignore(?!\[[\w, -]+\]  # \w)|#\s*ruff: noqa"
)


def test_every_exception_on_a_line_says_its_reason() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "test_lint_exceptions.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if WITHOUT_REASON.search(line)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("line", "is_silent"),
    [
        ("import a  # noqa", True),
        ("import a  # noqa: PLC0415", True),
        ("import a  # noqa: PLC0415 (slow)", False),
        ("a.b = 1  # type: ignore", True),
        ("a.b = 1  # type: ignore[misc]", True),
        ("a.b = 1  # type: ignore[misc]  # it is refused", False),
        ("# ruff: noqa", True),
    ],
)
def test_a_missing_reason_is_seen(line: str, is_silent: bool) -> None:
    assert bool(WITHOUT_REASON.search(line)) is is_silent


def test_every_rule_that_is_ignored_in_a_folder_has_a_comment() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ignored = tomllib.loads(text)["tool"]["ruff"]["lint"]["per-file-ignores"]
    section = text.split("[tool.ruff.lint.per-file-ignores]")[1].split("\n[")[0]
    for rules in ignored.values():
        for rule in rules:
            assert re.search(rf'"{rule}"\]? *,? *#', section), rule
