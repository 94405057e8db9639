"""The package as a whole: light imports, exported names, a cache that is used and never stale."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whitelie

HEAVY = ["numba", "scipy", "matplotlib", "xarray"]
SOURCE = Path(whitelie.__file__).parent

EXERCISE = """
import json, os, sys
from collections import Counter
from importlib import import_module
from pkgutil import iter_modules
import numpy as np
import whitelie.kernel, whitelie.policy
from whitelie import *
from whitelie import bounds
from whitelie.kernel import batch, binomial, block, state
from whitelie.policy.run import runner

table = Monotone.from_points([(0, 0.1), (0.3, 0.5), (1, 0.8)])
turned = RandomizedResponse(p00=0.2, p11=0.3)
mixed = [RandomizedResponse.from_epsilon(1), turned, table, IDENTITY]
affine = [RandomizedResponse.from_epsilon(1), turned, RandomizedResponse.warner(0.8), IDENTITY]
counts = {0: (20, 11), 1: (31, 16), 2: (9, 4), 3: (0, 0)}
tries_all = os.environ["TRIED"] == "all policies"
policies, others, batched, largest = [KLUCB()], [], [], []
if tries_all:
    policies += [TS(), UCB(), UCB1(), IMED(), KLUCB(feedback="naive"), TS(feedback="naive")]
    policies += [KLUCB(feedback="wrapped"), UCB1(feedback="wrapped")]
    others += [TS(feedback="wrapped"), DPUCBInt(), DPUCBInt(noise="every round")]
    batched += [TS(), KLUCB(), UCB(), IMED()]
    largest += [0, 3, 5000]
chosen, numbers = [], []
for policy in policies:
    channels = affine if policy.feedback == "wrapped" else mixed
    bandit = Bandit(range(4), channels, policy, seed=2**64 - 5, counts=counts)
    chosen.append(bandit.choose(60, pending={3: 1}))
    numbers += [[e.lower, e.upper, e.probability_best] for e in bandit.estimates().values()]
for policy in [*policies, *others]:
    channels = affine if policy.feedback == "wrapped" else mixed
    for arms_of in (channels, affine):
        run = runner(policy, Problem([0.9, 0.6, 0.5, 0.7], arms_of), 3, np.array([40, 300]))
        chosen.append(run(1).tolist())
for policy in batched:
    game_played = policy.game(Problem([0.9, 0.6, 0.5, 0.7], affine), 600)
    ends = np.array([*range(1, 200), 230, 300, 600])
    played = batch.run_batches(game_played, np.uint64(3), 1, ends, 0)
    chosen.append([counts.tolist() for counts in played])
for most in largest:
    pulls = np.arange(20) * most
    available = np.arange(20) != 7
    seen = state.State(pulls, pulls * 2 // 5, np.zeros(20, dtype=np.int64), available)
    for n in (3, 200):
        decided = np.empty(n, dtype=np.int64)
        packed = TS().pack(mixed * 5)
        block.thompson_block(TS().rule, packed, seen, np.uint64(9), 4, decided)
        chosen.append(decided.tolist())
seeds = [(3, 0.2), (100, 0.9), (100_000, 0.3)]
chosen.append([int(binomial.binomial(n, p, np.uint64(n))) for n, p in seeds])
numbers.append([bounds.lower_bound(Problem([0.9, 0.6], mixed[:2]), 1000)])
modules = [
    import_module(f"{package.__name__}.{module.name}")
    for package in (whitelie.kernel, whitelie.policy)
    for module in iter_modules(package.__path__)
]
compiled = {
    f"{function.py_func.__module__}.{name}": function
    for module in modules
    for name, function in vars(module).items()
    if hasattr(function, "signatures")
}

def rule_among(kinds):
    "The name of the rule for which a function with arguments of these types is compiled."
    for kind in kinds:
        if hasattr(kind, "instance_class"):
            name = kind.instance_class.__name__
            rule = name if name.endswith("Rule") else rule_among(kind.types)
            if rule:
                return rule

def most_per_rule(function):
    return max(Counter(rule_among(kinds) for kinds in function.signatures).values(), default=0)
print(json.dumps({
    "chosen": chosen,
    "numbers": numbers,
    "signatures": {name: most_per_rule(f) for name, f in compiled.items()},
    "misses": sum(sum(f.stats.cache_misses.values()) for f in compiled.values()),
    "hits": sum(sum(f.stats.cache_hits.values()) for f in compiled.values()),
}))
"""


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "0"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def exercise(**environment: str) -> dict[str, Any]:
    return dict(json.loads(run(EXERCISE, **environment)))


def test_importing_whitelie_is_light() -> None:
    loaded = run("import sys, whitelie; print(*sys.modules)").split()
    assert not [name for name in [*HEAVY, "numpy"] if name in loaded]


def test_channels_and_problems_load_no_numpy() -> None:
    loaded = run("import sys, whitelie.problem, whitelie.channel; print(*sys.modules)").split()
    assert not [name for name in [*HEAVY, "numpy"] if name in loaded]


def test_every_exported_name_exists_and_is_listed() -> None:
    assert sorted(whitelie.__all__) == dir(whitelie)
    for name in whitelie.__all__:
        assert getattr(whitelie, name) is not None
    with pytest.raises(AttributeError, match="elsewhere"):
        whitelie.elsewhere  # noqa: B018 (reading it is what is refused)


TRIED = ["one policy", pytest.param("all policies", marks=pytest.mark.long)]
"""Compiling everything twice takes a minute."""


@pytest.fixture(scope="module", params=TRIED)
def tried(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cold_and_warm(
    tmp_path_factory: pytest.TempPathFactory, tried: str
) -> tuple[dict[str, Any], ...]:
    cache = str(tmp_path_factory.mktemp("cache"))
    first, second = (exercise(NUMBA_CACHE_DIR=cache, TRIED=tried) for _ in range(2))
    return first, second


def test_a_second_process_compiles_nothing(cold_and_warm: tuple[dict[str, Any], ...]) -> None:
    cold, warm = cold_and_warm
    assert cold["misses"] > 0
    assert warm["misses"] == 0
    assert warm["hits"] > 0
    assert warm["chosen"] == cold["chosen"]


def test_every_kernel_function_is_compiled_once_per_rule(
    cold_and_warm: tuple[dict[str, Any], ...],
) -> None:
    assert {name: n for name, n in cold_and_warm[0]["signatures"].items() if n > 1} == {}


def test_uncompiled_code_gives_the_same_numbers(
    cold_and_warm: tuple[dict[str, Any], ...], tried: str
) -> None:
    plain = exercise(NUMBA_DISABLE_JIT="1", TRIED=tried)
    assert plain["signatures"] == {}
    assert plain["chosen"] == cold_and_warm[0]["chosen"]
    for seen, expected in zip(plain["numbers"], cold_and_warm[0]["numbers"], strict=True):
        assert seen == pytest.approx(expected, rel=1e-12)


def test_editing_a_kernel_file_never_serves_stale_code(tmp_path: Path) -> None:
    """The caller lives in another file than the edited callee, and the edit keeps its length."""
    shutil.copytree(SOURCE, tmp_path / "whitelie", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ask = (
        "from whitelie.kernel.interval import feedback_interval, __file__ as f; "
        "print(f, feedback_interval(100, 100, 0.05)[1])"
    )
    source = tmp_path / "whitelie/kernel/divergence.py"
    before = run(ask, **environment).split()
    assert Path(before[0]).is_relative_to(tmp_path)
    assert float(before[1]) == 1.0
    text = source.read_text()
    edited = text.replace(
        "    if mean >= 1:\n        return 1.0", "    if mean >= 1:\n        return 2.0"
    )
    assert edited != text
    source.write_text(edited)
    assert float(run(ask, **environment).split()[1]) == 2.0


def test_an_unwritable_cache_means_compiling_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    ask = "from whitelie.kernel.divergence import upper_end; print(upper_end(1.0, 0.5))"
    assert float(run(ask, NUMBA_CACHE_DIR=str(blocked))) == 1.0
