"""docs/dependencies.md names what is installed: every requirement, and its licence."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.dependency_tables import EXTRAS, PAGE, TITLES, direct, licence
from helpers.paths import ROOT

REMEDY = "run `make dependency-tables`, and look at what has changed"


def listed(extra: str) -> dict[str, str]:
    """The requirements of an extra, in bold on the page, with their licences."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.split(f"### {TITLES[extra]}\n")[1].split("\n#")[0]
    return dict(re.findall(r"^\| \*\*(.+)\*\* \| (.+) \|$", section, re.MULTILINE))


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_page_lists_every_requirement_with_its_licence(extra: str) -> None:
    assert listed(extra) == {name: licence(name) for name in direct(extra)}, REMEDY


def test_the_requirements_are_those_of_the_project() -> None:
    """What is installed was made from another pyproject.toml, if this fails."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra in EXTRAS:
        names = {canonicalize_name(Requirement(text).name) for text in declared[extra]}
        assert names == set(direct(extra)), extra


def test_copyleft_is_explained() -> None:
    """Every requirement whose licence asks something of those who ship it has its paragraph."""
    page = PAGE.read_text(encoding="utf-8")
    copyleft = {
        name for extra in EXTRAS for name in direct(extra) if re.search("GPL|MPL", licence(name))
    }
    assert copyleft == {"psycopg"}
    assert "## What psycopg's licence means" in page


WITHOUT_PSYCOPG = """
import sys
sys.modules.update(dict.fromkeys(("psycopg", "psycopg_binary", "psycopg_pool")))
from whitelie.service.process import server
from whitelie.service.store.address import open_store
open_store("sqlite:///" + sys.argv[1]).close()
"""


def test_a_service_on_sqlite_works_without_psycopg(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PSYCOPG, str(tmp_path / "x.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.db").exists()
