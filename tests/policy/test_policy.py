"""Policies are values: labels, equality, plain data, refusals; and DP-UCB-INT's true privacy."""

import ast
import math
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import whitelie
import whitelie.policy
from whitelie import (
    IMED,
    KLUCB,
    TS,
    UCB,
    UCB1,
    DPUCBInt,
    InvalidInput,
    TopTwo,
    composition,
    policy_from_dict,
)
from whitelie.policy import COUNT_POLICIES, POLICIES, Policy

LABELS: dict[str, Policy] = {
    "kl-UCB-CF": KLUCB(),
    "UCB-CF": UCB(),
    "TS-CF": TS(),
    "kl-UCB": KLUCB(feedback="naive"),
    "UCB": UCB(feedback="naive"),
    "UCB1": UCB1(),
    "TS": TS(feedback="naive"),
    "IMED-CF": IMED(),
    "IMED": IMED(feedback="naive"),
    "TopTwo-CF": TopTwo(),
    "TopTwo": TopTwo(feedback="naive"),
    "TopTwo-CF (know=0.5)": TopTwo(know=0.5),
    "WR(kl-UCB)": KLUCB(feedback="wrapped"),
    "WR(UCB)": UCB(feedback="wrapped"),
    "WR(UCB1)": UCB1(feedback="wrapped"),
    "WR(TS)": TS(feedback="wrapped"),
    "DP-UCB-INT": DPUCBInt(),
    "kl-UCB-CF (c=0, domain=unit)": KLUCB(c=0, domain="unit"),
    "DP-UCB-INT (calibrated=True)": DPUCBInt(calibrated=True),
}


@pytest.mark.parametrize("label", LABELS)
def test_labels_and_plain_data(label: str) -> None:
    policy = LABELS[label]
    assert policy.label == label
    assert policy_from_dict(policy.to_dict()) == policy
    assert eval(repr(policy)) == policy


def test_the_list_has_every_policy_that_has_a_file() -> None:
    modules = [
        import_module(f"whitelie.policy.{each.name}")
        for each in iter_modules(whitelie.policy.__path__)
    ]
    written = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Policy) and value is not Policy
    }
    assert written == set(POLICIES)


def test_every_policy_is_a_name_of_the_package_for_people_and_for_type_checkers() -> None:
    tree = ast.parse(Path(str(whitelie.__file__)).read_text(encoding="utf-8"))
    typed = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "whitelie.policy"
        for name in node.names
    }
    listed = {kind.__name__ for kind in POLICIES}
    assert typed - {"policy_from_dict"} == listed
    assert listed <= set(whitelie.__all__)


@pytest.mark.parametrize("kind", POLICIES)
def test_the_first_example_of_a_policy_is_its_default(kind: Any) -> None:
    assert kind.examples()[0] == kind()
    assert len(set(kind.examples())) == len(kind.examples())
    titles = [each for each in LABELS if each in kind.titles.values()]
    assert len(titles) == len(kind.titles), "a label of this policy is missing from LABELS"


def test_policies_that_keep_counts_alone() -> None:
    assert [policy.label for policy in COUNT_POLICIES] == [
        "kl-UCB-CF",
        "UCB-CF",
        "UCB1",
        "TS-CF",
        "IMED-CF",
        "TopTwo-CF",
    ]


def test_policies_are_equal_when_equal() -> None:
    assert len(set(LABELS.values())) == len(LABELS)
    assert KLUCB(c=3.0) == KLUCB()
    for (one, a), (two, b) in product(LABELS.items(), LABELS.items()):
        assert (a == b) == (one == two)


@pytest.mark.parametrize(
    ("kind", "tuning", "field"),
    [
        (KLUCB, {"c": -1}, "c"),
        (KLUCB, {"c": math.nan}, "c"),
        (KLUCB, {"c": "3"}, "c"),
        (KLUCB, {"domain": "half"}, "domain"),
        (KLUCB, {"feedback": "true"}, "feedback"),
        (UCB, {"c": math.inf}, "c"),
        (UCB1, {"feedback": "corrected"}, "feedback"),
        (TS, {"feedback": None}, "feedback"),
        (TopTwo, {"know": 0}, "know"),
        (TopTwo, {"know": -0.1}, "know"),
        (TopTwo, {"know": 1.01}, "know"),
        (TopTwo, {"know": math.nan}, "know"),
        (TopTwo, {"know": "all"}, "know"),
        (TopTwo, {"know": True}, "know"),
        (TopTwo, {"feedback": "wrapped"}, "feedback"),
        (DPUCBInt, {"epsilon": 0}, "epsilon"),
        (DPUCBInt, {"epsilon": 1.1}, "epsilon"),
        (DPUCBInt, {"v": 1}, "v"),
        (DPUCBInt, {"v": 1.6}, "v"),
        (DPUCBInt, {"delta": 0}, "delta"),
        (DPUCBInt, {"noise": "never"}, "noise"),
        (DPUCBInt, {"calibrated": "yes"}, "calibrated"),
    ],
)
def test_bad_tuning_is_refused(kind: Any, tuning: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        kind(**tuning)
    assert refusal.value.field == field


def test_tuning_is_keyword_only() -> None:
    construct: Any = KLUCB
    with pytest.raises(TypeError):
        construct(3)


def exact_failure(level: float, times: int, epsilon: float) -> float:
    """The exact δ of `times` randomised responses of a level at a total epsilon (KOV, eq. 5)."""
    odds = math.exp(level)
    return sum(
        math.comb(times, i)
        * max(0.0, odds ** (times - i) - math.exp(epsilon) * odds**i)
        / (1 + odds) ** times
        for i in range(times + 1)
    )


@pytest.mark.parametrize(("level", "times"), list(product([0.05, 0.3, 1.0], [1, 5, 40])))
def test_composition_is_sound_where_the_exact_answer_is_known(level: float, times: int) -> None:
    for delta in (1e-2, 1e-5):
        levels = [level] * times
        total = composition.optimal(levels, delta)
        assert exact_failure(level, times, total) <= delta
        assert total <= composition.advanced(levels, delta) + 1e-12
        assert total <= composition.basic(levels)


def test_the_soundness_check_catches_too_small_a_total() -> None:
    """Negative control."""
    assert exact_failure(0.3, 40, 0.5 * composition.optimal([0.3] * 40, 1e-5)) > 1e-5


def test_the_input_of_dp_ucb_int_is_not_its_total() -> None:
    assert DPUCBInt(epsilon=1).guarantee(100_000).epsilon == pytest.approx(15.8, abs=0.1)
    assert DPUCBInt(noise="every round").guarantee(100_000).epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.promise("DP-UCB-INT")
def test_calibration_finds_the_smallest_period(epsilon: float) -> None:
    policy = DPUCBInt(epsilon=epsilon, calibrated=True)
    period = policy.period(20_000)
    assert policy.guarantee(20_000).epsilon <= epsilon

    def total(period: int) -> float:
        levels = [n ** (-policy.v / 2) for n in range(period, 20_001, period)]
        return composition.optimal(levels, policy.delta)

    assert total(period) <= epsilon < total(period - 1)
