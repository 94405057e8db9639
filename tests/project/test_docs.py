"""The documents are true: every example is executed, every printed number compared."""

import contextlib
import doctest
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from helpers.paths import ROOT

RECORD = ROOT / "docs/reproduction.md"
DOCUMENTS = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {RECORD})]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


class Block(NamedTuple):
    language: str
    text: str
    line: int


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(markdown: str) -> list[Block]:
    """Return the fenced blocks, with the line on which the text of each starts, from 0."""
    matches = re.finditer(r"^```(\w*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    return [Block(m[1], m[2], markdown.count("\n", 0, m.start(2))) for m in matches]


def run_doctest(block: Block, name: str, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line)
    report = io.StringIO()
    doctest.DocTestRunner(verbose=False).run(test, out=report.write, clear_globs=False)
    namespace.update(test.globs)
    assert not report.getvalue(), report.getvalue()


def run_document(markdown: str, name: str) -> None:
    """Run the python blocks of a document in one namespace; a text block says what is printed."""
    namespace: dict[str, Any] = {"__name__": name}
    listed = blocks(markdown)
    following = [*listed[1:], Block("", "", 0)]
    for block, after in zip(listed, following, strict=True):
        if block.language != "python":
            continue
        if block.text.startswith(">>> "):
            run_doctest(block, name, namespace)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, name, "exec"), namespace)
        expected = after.text if after.language == "text" else ""
        assert printed.getvalue() == expected, f"{name}, line {block.line}"


@pytest.fixture(scope="module")
def real_survey() -> Iterator[ModuleType]:
    """The example as the module that the documents import."""
    spec = importlib.util.spec_from_file_location("real_survey", ROOT / "examples/real_survey.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_survey"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["real_survey"]


@pytest.mark.usefixtures("real_survey")
@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_every_example_runs_and_prints_what_is_shown(path: Path) -> None:
    markdown = path.read_text(encoding="utf-8")
    assert any(block.language == "python" for block in blocks(markdown))
    run_document(markdown, relative(path))


@pytest.mark.parametrize(
    "wrong",
    [
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nx = 1\n```\n\n```python\n>>> x\n2\n```\n",
    ],
)
def test_a_wrong_example_is_found(wrong: str) -> None:
    """Negative control."""
    with pytest.raises(AssertionError):
        run_document(wrong, "wrong")


def test_the_readme_example_is_about_ten_lines() -> None:
    first = next(b for b in blocks((ROOT / "README.md").read_text("utf-8")) if b.language)
    lines = [line for line in first.text.splitlines() if line]
    assert first.language == "python"
    assert 8 <= len(lines) <= 12


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (path.parent / target).exists(), target


def test_the_survey_page_shows_the_example_as_it_is(real_survey: ModuleType) -> None:
    page = (ROOT / "docs/survey.md").read_text(encoding="utf-8")
    for question in real_survey.SURVEY:
        design = f".{question.channel.p00 * 1e4:.0f} | .{question.channel.p11 * 1e4:.0f}"
        row = rf"\| {question.name} \| {question.yes} \| (\d+)/(\d+) \| {re.escape(design)} \|"
        match = re.search(row, page)
        assert match, question.name
        assert int(match[1]) / int(match[2]) == question.alpha
    source = (ROOT / "examples/real_survey.py").read_text(encoding="utf-8")
    functions = re.findall(r"^def .*?(?=^```)", page, re.MULTILINE | re.DOTALL)
    assert functions
    for function in functions:
        assert function in source


def test_naive_settles_on_the_wrong_question_and_corrected_on_the_right(
    real_survey: ModuleType,
) -> None:
    naive = real_survey.shares(real_survey.ask(real_survey.TS(feedback="naive")))
    corrected = real_survey.shares(real_survey.ask(real_survey.TS()))
    assert naive["was bullied"] > 0.9
    assert corrected["fought with a teacher"] > 0.9


def test_the_example_reads_well_in_a_terminal(
    real_survey: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    real_survey.main()
    printed = capsys.readouterr().out
    assert "settles on 'fought with a teacher'" in printed
    assert all(len(line) <= 80 for line in printed.splitlines())
