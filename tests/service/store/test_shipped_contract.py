"""The tests that ship for stores work in anybody's file of tests, as docs/scaling.md says."""

import re
import subprocess
import sys
from pathlib import Path

from helpers.paths import ROOT

MISTAKE = """
class Forgetful(MyStore):
    def commit(self, batch):
        super().commit(batch)
        return [True] * len(batch.reports)


class TestForgetful(TestMyStore):
    @pytest.fixture
    def store(self, tmp_path):
        return Forgetful(tmp_path / "forgetful.db")
"""


def test_the_example_of_the_docs_tests_a_store_and_finds_a_mistake(tmp_path: Path) -> None:
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(import secrets\n.*?)^```$", page, re.M | re.S)
    file = tmp_path / "test_my_store.py"
    file.write_text(example + MISTAKE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    command += ["-k", "an_empty_commit_changes_nothing or two_reports_in_one_commit"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_my_store.py::TestForgetful::test_of_two_reports_in_one" in done.stdout
