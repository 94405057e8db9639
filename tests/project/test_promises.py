"""Every promise that DESIGN.md numbers has a test which names it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from helpers.paths import ROOT

PROMISE = re.compile(r"^\d+\. \*\*(.+?)\.?\*\*.*?\[`(.+?)`\]$", re.MULTILINE | re.DOTALL)


def promised(text: str) -> dict[str, str]:
    """Title -> file of a test, of the numbered items under "Promises" in DESIGN.md."""
    section = text.partition("\n## Promises\n")[2].partition("\n## ")[0]
    assert len(PROMISE.findall(section)) == len(re.findall(r"^\d+\. ", section, re.MULTILINE))
    return dict(PROMISE.findall(section))


def held(files: list[Path]) -> dict[str, set[str]]:
    """Title -> files of the tests that are marked with it."""
    tests = defaultdict(set)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
                for call in calls:
                    if ast.unparse(call.func) == "pytest.mark.promise":
                        tests[ast.literal_eval(call.args[0])].add(str(file))
    return tests


def test_every_promise_has_a_test_and_every_mark_a_promise() -> None:
    titles = promised((ROOT / "DESIGN.md").read_text(encoding="utf-8"))
    assert len(titles) > 30
    folders = (ROOT / "tests", ROOT / "src/whitelie/testing")
    marked = held([file for folder in folders for file in folder.rglob("*.py")])
    assert set(titles) - set(marked) == set(), "promises without a test"
    assert set(marked) - set(titles) == set(), "marks that name no promise"
    for title, named in titles.items():
        assert str(ROOT / named) in marked[title], f"{named} has no test of {title!r}"


def test_a_promise_without_a_test_would_be_noticed(tmp_path: Path) -> None:
    kept, broken = "1. **Kept.** It is. [`a.py`]", "2. **Broken** is\n   not. [`b.py`]"
    text = f"\n## Promises\n\n{kept}\n{broken}\n\n## More\n\n3. **No.** [`c.py`]\n"
    assert promised(text) == {"Kept": "a.py", "Broken": "b.py"}
    file = tmp_path / "test_it.py"
    file.write_text('@pytest.mark.promise("Kept")\ndef test_it(): pass\n')
    assert held([file]) == {"Kept": {str(file)}}
