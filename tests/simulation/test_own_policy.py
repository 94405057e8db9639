"""A researcher's own policy gives the same result however its replicates are spread and resumed."""

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.paths import ROOT
from whitelie import Channel, InvalidInput, Problem, RandomizedResponse, simulate
from whitelie.kernel.arms import Array
from whitelie.simulation import work
from whitelie.simulation.own_policy import KnownProblem, run_own

PROBLEM = Problem({"a": 0.9, "b": 0.8, "c": 0.5}, RandomizedResponse.from_epsilon(2))
SETTINGS: dict[str, Any] = {"horizon": 200, "replicates": 12, "seed": 5}

EXAMPLES: dict[str, dict[str, Any]] = {"EXP3": {"gamma": 0.2}, "SlidingWindowUCB": {"window": 50}}
"""The classes that docs/simulate.md shows, and their arguments here."""


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policies of docs/simulate.md as a module, which other processes can import too."""
    page = (ROOT / "docs/simulate.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    source = "\n".join(b for b in blocks if any(f"class {name}:" in b for name in EXAMPLES))
    folder = tmp_path_factory.mktemp("modules")
    (folder / "documented_policies.py").write_text(source, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("documented_policies")


@pytest.fixture(params=EXAMPLES)
def make(request: pytest.FixtureRequest, documented: ModuleType) -> Callable[[], Any]:
    """Make one of these policies anew, as a script does that is started anew."""
    return lambda: getattr(documented, request.param)(**EXAMPLES[request.param])


def pulls(policy: Any, **changes: Any) -> Array:
    return simulate(PROBLEM, {"own": policy}, **SETTINGS | changes).pulls.values


def resumed_pulls(make: Callable[[], Any], store: Path) -> Array:
    """Return the pulls of a simulation whose first five replicates an earlier one has done."""
    pulls(make(), replicates=5, store=store)
    return pulls(make(), store=store)


def test_the_documented_policies_take_fifteen_lines(documented: ModuleType) -> None:
    for name in EXAMPLES:
        source = inspect.getsource(getattr(documented, name))
        assert len([line for line in source.splitlines() if line]) <= 15


def test_threads_do_not_matter(make: Callable[[], Any]) -> None:
    np.testing.assert_array_equal(pulls(make(), jobs=4), pulls(make(), jobs=1))


@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_chunks_do_not_matter(
    make: Callable[[], Any], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pulls(make(), jobs=1)
    monkeypatch.setattr(work, "CHUNK_SECONDS", seconds)
    np.testing.assert_array_equal(pulls(make()), expected)


def test_a_resumed_simulation_ends_in_the_same_result(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    np.testing.assert_array_equal(resumed_pulls(make, tmp_path), pulls(make(), jobs=1))


def test_processes_do_not_matter(documented: ModuleType) -> None:
    for name, arguments in EXAMPLES.items():
        make = getattr(documented, name)
        with ProcessPoolExecutor(2) as executor:
            elsewhere = pulls(make(**arguments), executor=executor)
        np.testing.assert_array_equal(elsewhere, pulls(make(**arguments)))


class SharesItsState:
    """The same arm for 17 steps, counted over all replicates: what `start` is there to prevent."""

    def __init__(self) -> None:
        self.steps = 0

    def to_dict(self) -> dict[str, Any]:
        return {"name": "SharesItsState"}

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        self.steps += 1
        return self.steps // 17 % len(pulls)


def test_a_state_that_replicates_share_would_be_seen(tmp_path: Path) -> None:
    """Negative control: the comparisons above fail for a policy that is wrong in this way."""
    whole = pulls(SharesItsState(), jobs=1)
    assert not np.array_equal(resumed_pulls(SharesItsState, tmp_path), whole)


class Greedy:
    """The arm with the largest mean, smoothed; a player of its own in every replicate."""

    ones: Array
    pulls: Array

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> "Greedy":
        player = copy(self)
        player.ones, player.pulls = np.ones(problem.n_arms), np.full(problem.n_arms, 2)
        return player

    def choose(self, t: int) -> int:
        assert t == (self.pulls - 2).sum()
        return int(np.argmax(self.ones / self.pulls))

    def update(self, arm: int, feedback: int) -> None:
        assert feedback in (0, 1)
        self.ones[arm] += feedback
        self.pulls[arm] += 1


class GreedyOnCounts:
    """The same as a rule on counts, with a number that happens to be called `start`."""

    start = 2

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        return int(np.argmax((successes + 1) / (pulls + self.start)))


def test_players_are_given_the_feedback_that_rules_on_counts_are_given() -> None:
    np.testing.assert_array_equal(pulls(Greedy()), pulls(GreedyOnCounts()))


class Watched(Greedy):
    """Keeps what `start` was given."""

    def __init__(self) -> None:
        self.started: list[tuple[KnownProblem, Array]] = []

    def start(self, problem: KnownProblem, rng: np.random.Generator) -> Greedy:
        self.started.append((problem, rng.random(4)))
        return super().start(problem, rng)


def test_a_player_knows_everything_but_the_means() -> None:
    policy = Watched()
    run_own(policy, PROBLEM, 5, np.array([1, 20]), 0)
    known, _ = policy.started[0]
    assert known == KnownProblem(PROBLEM.names, PROBLEM.channels, 20)
    assert known.n_arms == 3
    assert set(vars(known)) == {"names", "channels", "horizon"}


def test_randomness_depends_on_seed_and_replicate_alone() -> None:
    def draws(seed: int, replicate: int) -> tuple[float, ...]:
        policy = Watched()
        run_own(policy, PROBLEM, seed, np.array([3]), replicate)
        return tuple(policy.started[0][1])

    places = [(seed, replicate) for seed in (5, 2**64 - 1) for replicate in range(200)]
    seen = {place: draws(*place) for place in places}
    assert seen == {place: draws(*place) for place in reversed(places)}
    numbers = np.array(list(seen.values()))
    assert len(np.unique(numbers)) == numbers.size
    standard_error = np.sqrt(1 / 12 / numbers.size)
    assert abs(numbers.mean() - 0.5) < 4 * standard_error
    assert abs(numbers[:, 0].mean() - 0.6) > 4 * standard_error  # negative control


class ReturnsItself(Greedy):
    def start(self, problem: KnownProblem, rng: np.random.Generator) -> Greedy:
        return self


class ReturnsNothing:
    def start(self, problem: KnownProblem, rng: np.random.Generator) -> None:
        pass


class ReturnsAClass:
    def start(self, problem: KnownProblem, rng: np.random.Generator) -> type[Greedy]:
        return Greedy


class ForgetsToUpdate:
    def start(self, problem: KnownProblem, rng: np.random.Generator) -> GreedyOnCounts:
        return GreedyOnCounts()


class Chooses(Greedy):
    def __init__(self, arm: Any) -> None:
        self.arm = arm

    def choose(self, t: int) -> Any:
        return self.arm


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (object(), r"policies=.*an object with start\(problem, rng\) that returns a player"),
        (Greedy, r"policies=.*this is a class; give an object of it, such as Greedy\(\)"),
        (
            ReturnsItself(),
            r"ReturnsItself\.start=.*return a new player, such as copy\.copy\(self\)",
        ),
        (ReturnsNothing(), r"ReturnsNothing\.start='NoneType': return a player: an object with ch"),
        (
            ReturnsAClass(),
            r"ReturnsAClass\.start='type': .*choose\(t\) and update\(arm, feedback\)",
        ),
        (ForgetsToUpdate(), r"ForgetsToUpdate\.start='GreedyOnCounts': .*update\(arm, feedback\)"),
        (Chooses(3), r"Chooses\.choose=3: return the position of an arm, 0 to 2"),
        (Chooses(-1), r"Chooses\.choose=-1: return the position of an arm, 0 to 2"),
        (Chooses(1.0), r"Chooses\.choose=1\.0: return the position of an arm"),
        (Chooses(True), r"Chooses\.choose=True: return the position of an arm"),
        (Chooses("a"), r"Chooses\.choose='a': return the position of an arm"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_to_do(policy: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pulls(policy)
