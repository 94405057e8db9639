"""The checks of JavaScript and CSS that `make lint` runs see every file, and can fail."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = next(folder for folder in Path(__file__).parents if folder.name == "tests")
ROOT = TESTS.parent
TOOLS = ROOT / "node_modules" / ".bin"
HANG_SECONDS = 120
SCRIPTS_AND_STYLES = [f"*.{ending}" for ending in ("js", "cjs", "mjs", "jsx", "ts", "tsx", "css")]
HAS_CODE = re.compile(r"<script(?![^>]*\bsrc=)|<style(?!>\s*\{% include)|<[^>]*\s(?:style|on\w+)=")

pytestmark = pytest.mark.skipif(
    not (TOOLS.parent / ".ready").exists(), reason="npm could not install Biome and TypeScript"
)


def run(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def tracked(*patterns: str) -> set[str]:
    listed = run("git", "ls-files", "--", *patterns)
    if listed.returncode != 0:
        pytest.skip("this is no checkout of git")
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def test_the_linter_sees_every_script_and_style_sheet() -> None:
    said = run(TOOLS / "biome", "check", "--verbose", "--colors=off")
    seen = set(re.findall(r"^\s*- (\S+)$", said.stdout + said.stderr, re.MULTILINE))
    expected = tracked(*SCRIPTS_AND_STYLES)
    assert len(expected) > 30
    assert expected <= seen, expected - seen


def test_pages_keep_their_code_in_files_that_the_linter_sees() -> None:
    pages = tracked("*.html")
    assert len(pages) > 5
    assert [path for path in pages if HAS_CODE.search((ROOT / path).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "page",
    [
        "<script>alert(1)</script>",
        '<script type="module">\n  run();\n</script>',
        "<style>\na { color: red; }\n</style>",
        '<p style="color: red">',
        '<p onclick="run()">',
    ],
)
def test_code_in_a_page_is_seen(page: str) -> None:
    assert HAS_CODE.search(page)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("spaced.js", "export const one =1;\n", "format"),
        ("unused.js", 'import { one } from "./one.js";\n', "noUnusedImports"),
        ("unknown.css", "a {\n  colour: red;\n}\n", "noUnknownProperty"),
    ],
)
def test_the_linter_refuses(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    for setting in ("biome.jsonc", ".gitignore"):
        shutil.copy(ROOT / setting, tmp_path)
    command = (TOOLS / "biome", "check", "--error-on-warnings", "--colors=off")
    (tmp_path / name).write_text("", "utf-8")
    accepted = run(*command, folder=tmp_path)
    assert accepted.returncode == 0, accepted.stderr
    (tmp_path / name).write_text(text, "utf-8")
    refused = run(*command, folder=tmp_path)
    assert refused.returncode != 0
    assert complaint in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("declared", "changed"),
    [
        ("  arm: string | null;", "  arm: string;"),
        ("  minSpread?: number;", "  leastSpread?: number;"),
        ("  key: string;", "  key?: string;"),
        ("flush(): Promise<void>;", "flush(): void;"),
    ],
)
def test_the_compiler_refuses_types_that_have_changed(
    declared: str, changed: str, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "clients" / "js", tmp_path / "js")
    types = tmp_path / "js" / "whitelie.d.ts"
    text = types.read_text("utf-8")
    assert declared in text
    types.write_text(text.replace(declared, changed), "utf-8")
    refused = run(TOOLS / "tsc", "--project", tmp_path / "js")
    assert refused.returncode != 0
    assert "testing/types.ts" in refused.stdout
