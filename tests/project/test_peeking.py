"""The study in docs/knowing.md: a small run of it agrees with the figures that are shown."""

import importlib.util
import math
import re
from types import ModuleType

import pytest

from helpers.looking import most_by_chance
from helpers.paths import ROOT

SHOWN_RUNS, RUNS = 2_000, 60
ROW = re.compile(r"^  (.+?) +([\d.]+) % +([\d.]+) % +(–|\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def peeking() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peeking", ROOT / "examples/peeking.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(world: str) -> dict[str, tuple[float, float]]:
    """The shares that named an arm, and a wrong one, by statement."""
    text = (ROOT / "docs/knowing.md").read_text(encoding="utf-8")
    section = text[text.index(f"\n{world}") :].split("\n\n")[0]
    return {row[1]: (float(row[2]) / 100, float(row[3]) / 100) for row in ROW.finditer(section)}


def is_near(share: float, expected: float) -> bool:
    """Whether a share of few runs may have the same mean as one of many."""
    mean = (share * RUNS + expected * SHOWN_RUNS + 1) / (RUNS + SHOWN_RUNS + 2)
    return abs(share - expected) < 4 * math.sqrt(mean * (1 - mean) / RUNS) + 0.5 / RUNS


@pytest.mark.parametrize("number", range(3))
def test_the_figures_are_those_of_the_program(peeking: ModuleType, number: int) -> None:
    world, rates = list(peeking.WORLDS.items())[number]
    figures = shown(world)
    assert list(figures) == list(peeking.STATEMENTS)
    for name, statement in peeking.STATEMENTS.items():
        made, wrong, _ = peeking.row(statement, rates, RUNS)
        assert is_near(made, figures[name][0]), (name, made)
        assert is_near(wrong, figures[name][1]), (name, wrong)


def test_looking_daily_fools_a_test_and_a_belief_and_not_a_certificate(peeking: ModuleType) -> None:
    most = most_by_chance(RUNS, peeking.LEVEL) / RUNS
    shares = {
        name: peeking.row(statement, (0.05, 0.05), RUNS)[1]
        for name, statement in peeking.STATEMENTS.items()
    }
    once, daily, belief, certificate = shares.values()
    assert once <= most < daily
    assert belief > most
    assert certificate <= most
