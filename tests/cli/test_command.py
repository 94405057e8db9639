"""What all commands share: light help, options that are given once, usage errors."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
from typer.testing import CliRunner

from whitelie.cli import app

HEAVY = ["numpy", "numba", "scipy", "xarray", "pandas", "matplotlib", "distributed"]


def run(*arguments: object, columns: int = 80) -> Any:
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def test_help_and_version_load_nothing_heavy() -> None:
    for arguments in (["--help"], ["--version"], ["simulate", "--help"]):
        code = (
            "import sys\nfrom whitelie.cli import app\n"
            f"try: app({arguments})\nexcept SystemExit: pass\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert ended.stdout
        assert not set(HEAVY) & set(ended.stderr.split())


def test_version() -> None:
    assert run("--version").stdout == f"whitelie {version('whitelie')}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1", "--epsilon=4"], "--epsilon is given 2 times; give all values at once"),
        (["--seed", "1", "--seed", "1", "--seed", "2"], "--seed is given 3 times; give it once"),
        (["--json", "--json"], "--json is given 2 times; give it once"),
    ],
)
def test_an_option_that_takes_one_value_is_refused_when_repeated(
    options: list[str], message: str
) -> None:
    ended = run("plan", "--rates", "0.4,0.6", "--traffic", 500, *options)
    assert ended.exit_code == 2
    assert message in ended.stderr


def test_every_command_refuses_repeated_options() -> None:
    for command, option in (
        ("simulate a.toml", "--out"),
        ("reproduce", "--out"),
        ("key list", "--store"),
    ):
        ended = run(*command.split(), option, "a", option, "b")
        assert ended.exit_code == 2
        assert f"{option} is given 2 times" in ended.stderr


def test_options_that_may_be_repeated_say_so() -> None:
    for words in (["plan", "--channel"], ["key", "create", "--origin"]):
        *command, option = words
        help_text = " ".join(run(*command, "--help", columns=200).stdout.split())
        assert "may be repeated" in help_text[help_text.index(option) :].lower()


def test_a_wrong_command_is_a_usage_error() -> None:
    ended = run("simulat")
    assert ended.exit_code == 2
    assert "simulate" in ended.stderr
