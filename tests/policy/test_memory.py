"""Rules beyond the package: one with memory against its slow twin, and one that nobody knows."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pytest

import whitelie.policy
from whitelie import Bandit, InvalidInput, Problem, RandomizedResponse, plan
from whitelie.kernel.arms import Arms, Array
from whitelie.kernel.batch import run_batches
from whitelie.kernel.choice import decide, fill_words
from whitelie.kernel.game import bit, streams_of, thresholds
from whitelie.kernel.rule import declare, shared, update, value
from whitelie.kernel.state import State, is_untried, mean_of
from whitelie.kernel.words import Word, uniform
from whitelie.policy import Policy, policy_from_dict
from whitelie.policy.run import runner
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.refusals import Refusal
from whitelie.service.wire import NewArm, NewExperiment

PROBLEM = Problem([0.7, 0.6, 0.5, 0.65], RandomizedResponse.from_epsilon(3))
HORIZON = 400


@declare(memory=2)
class DiscountedRule(NamedTuple):
    """What a feedback's weight is multiplied by when another comes."""

    discount: float


@shared.register(DiscountedRule)
def weight_of_all(rule: DiscountedRule, arms: Arms, state: State) -> float:
    return float(state.memory[:, 0].sum())


@value.register(DiscountedRule)
def discounted_index(
    rule: DiscountedRule, arms: Arms, state: State, k: int, total: float, word: Word
) -> float:
    if is_untried(state, k):
        return math.inf
    pulls: float = state.memory[k, 0]
    ones: float = state.memory[k, 1]
    return ones / pulls + 2 * math.sqrt(0.6 * math.log(max(total, 1.0)) / pulls)


@update.register(DiscountedRule)
def forget_and_add(rule: DiscountedRule, arms: Arms, state: State, k: int, one: int) -> None:
    state.memory[:] *= rule.discount
    state.memory[k, 0] += 1
    state.memory[k, 1] += one


@dataclass(frozen=True, kw_only=True)
class DiscountedUCB(Policy):
    """Discounted UCB of Kocsis and Szepesvári, as by Garivier and Moulines (2011)."""

    titles: ClassVar[Mapping[str, str]] = {"naive": "D-UCB"}
    plain_name: ClassVar[str] = "discounted UCB"

    feedback: Literal["naive"] = "naive"
    discount: float = 0.97

    @property
    def rule(self) -> DiscountedRule:
        return DiscountedRule(self.discount)


def slowly(discount: float, replicate: int) -> Array:
    """Pulls by the definition: every feedback ever, with weight discount^(its age)."""
    size = len(PROBLEM.names)
    streams = streams_of(np.uint64(3), replicate, size)
    limits = thresholds(np.array(PROBLEM.feedback_means))
    seen: list[tuple[int, int]] = []
    words = np.empty(size, dtype=np.uint64)
    for t in range(HORIZON):
        weights = np.zeros((2, size))
        for age, (arm, one) in enumerate(reversed(seen)):
            weights[:, arm] += discount**age, one * discount**age
        pulls, ones = weights
        fill_words(np.uint64(streams.decision_key), t, words)
        untried = [k for k in range(size) if pulls[k] == 0]
        if untried:
            best = max(untried, key=lambda k: words[k])
        else:
            width = 2 * np.sqrt(0.6 * math.log(max(pulls.sum(), 1.0)) / pulls)
            best = int(np.argmax(ones / pulls + width))
        number = sum(arm == best for arm, _ in seen)
        seen.append((best, bit(streams.arm_keys[best], number, limits[best])))
    return np.bincount([arm for arm, _ in seen], minlength=size)


def live(bandit: Bandit, replicate: int, start: int, stop: int) -> None:
    streams = streams_of(np.uint64(3), replicate, len(PROBLEM.names))
    limits = thresholds(np.array(PROBLEM.feedback_means))
    for _ in range(start, stop):
        arm = bandit.choose()
        bandit.update(arm, bit(streams.arm_keys[arm], bandit.counts[arm][0], limits[arm]))


def new_bandit(replicate: int = 0) -> Bandit:
    key = int(streams_of(np.uint64(3), replicate, len(PROBLEM.names)).decision_key)
    return Bandit(range(4), PROBLEM.channels, DiscountedUCB(), key)


@pytest.mark.parametrize("replicate", range(3))
def test_a_rule_with_memory_is_its_slow_twin(replicate: int) -> None:
    fast = runner(DiscountedUCB(), PROBLEM, 3, np.array([HORIZON]))(replicate)[-1]
    np.testing.assert_array_equal(fast, slowly(0.97, replicate))
    assert not np.array_equal(fast, slowly(0.9, replicate))


def test_it_runs_live_and_its_memory_travels_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (*whitelie.policy.POLICIES, DiscountedUCB)
    monkeypatch.setattr(whitelie.policy, "POLICIES", known)
    bandit = new_bandit()
    live(bandit, 0, 0, HORIZON // 2)
    bandit = Bandit.from_json(bandit.to_json())
    live(bandit, 0, HORIZON // 2, HORIZON)
    pulls = [pulls for pulls, _ in bandit.counts.values()]
    np.testing.assert_array_equal(pulls, slowly(0.97, 0))
    memory = [arm["memory"] for arm in json.loads(bandit.to_json())["arms"]]
    assert sum(weight for weight, _ in memory) == pytest.approx(1 / 0.03, rel=1e-4)


@pytest.mark.parametrize("memory", [None, [1.0], [1.0, 2.0, 3.0], [1.0, "2"], [1.0, float("inf")]])
def test_a_damaged_memory_is_refused(monkeypatch: pytest.MonkeyPatch, memory: object) -> None:
    known = (*whitelie.policy.POLICIES, DiscountedUCB)
    monkeypatch.setattr(whitelie.policy, "POLICIES", known)
    state = json.loads(new_bandit().to_json())
    state["arms"][1]["memory"] = memory
    with pytest.raises(InvalidInput, match="the memory of an arm is a list of 2 numbers"):
        Bandit.from_json(json.dumps(state))


def test_a_batch_of_feedback_is_remembered_in_its_order() -> None:
    one, other, turned = new_bandit(), new_bandit(), new_bandit()
    arms, bits = [0, 1, 0, 2], [1, 0, 0, 1]
    for arm, feedback in zip(arms, bits, strict=True):
        one.update(arm, feedback)
    other.update(arms, bits)
    turned.update(arms[::-1], bits[::-1])
    assert one.to_json() == other.to_json() != turned.to_json()


def test_new_arms_have_an_empty_memory() -> None:
    bandit = new_bandit()
    bandit.update([0, 1, 2, 3], [1, 0, 1, 1])
    bandit.add_arm(4, RandomizedResponse.warner(0.9))
    assert bandit.choose() == 4
    assert json.loads(bandit.to_json())["arms"][4]["memory"] == [0, 0]


def test_counts_alone_are_refused() -> None:
    bandit = new_bandit()
    for refused in (
        lambda: bandit.update_counts({0: (3, 1)}),
        lambda: bandit.merge(new_bandit()),
        lambda: bandit.add_arm("new", PROBLEM.channels[0], counts=(3, 1)),
        lambda: Bandit([0, 1], policy=DiscountedUCB(), counts={0: (3, 1)}),
    ):
        with pytest.raises(InvalidInput, match="give each feedback to update"):
            refused()


def test_plans_and_the_service_refuse_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="D-UCB keeps more than counts"):
        plan(rates=[0.05, 0.06], traffic=1000, policy=DiscountedUCB())
    monkeypatch.setattr(
        "whitelie.service.experiment.definition.policy_at", lambda *_: ("", DiscountedUCB())
    )
    asked = NewExperiment(
        name="-", arms=[NewArm(key="a")], epsilon=1.0, window=0, spread=0, policy="D-UCB"
    )
    with pytest.raises(Refusal, match="D-UCB keeps more than counts"):
        ExperimentValidator().create(asked, 0, None)


def test_a_policy_that_is_not_in_the_list_is_not_read_back() -> None:
    with pytest.raises(InvalidInput, match="must be one of KLUCB"):
        policy_from_dict(DiscountedUCB().to_dict())


@declare()
class LotteryRule(NamedTuple):
    """How much luck weighs beside the mean."""

    luck: float


@value.register(LotteryRule)
def lucky_mean(
    rule: LotteryRule, arms: Arms, state: State, k: int, nothing: float, word: Word
) -> float:
    return mean_of(arms, state, k) + rule.luck * uniform(word)


@dataclass(frozen=True, kw_only=True)
class Lottery(Policy):
    """Not local: an arm's value depends on its word."""

    titles: ClassVar[Mapping[str, str]] = {"corrected": "Lottery"}
    plain_name: ClassVar[str] = "lottery"

    feedback: Literal["corrected"] = "corrected"

    @property
    def rule(self) -> LotteryRule:
        return LotteryRule(0.3)


def test_an_unknown_rule_is_decided_one_by_one_everywhere() -> None:
    """In batches it would be another policy's if its rule were taken for one that is known."""
    policy, ends = Lottery(), np.array([*range(1, 50), 80, 200, 500])
    plain = runner(policy, PROBLEM, 3, ends)(1)
    game = policy.game(PROBLEM, 500)
    np.testing.assert_array_equal(run_batches(game, np.uint64(3), 1, ends, 0)[0], plain)
    lagging = run_batches(game, np.uint64(3), 1, ends, 20)[0]
    np.testing.assert_array_equal(lagging.sum(axis=1), ends)
    assert not np.array_equal(lagging, plain)
    one, two = (Bandit(range(4), PROBLEM.channels, policy, 5) for _ in range(2))
    assert one.choose(50) == [two.choose() for _ in range(50)]


class Undeclared(NamedTuple):
    number: float


@declare()
class Valueless(NamedTuple):
    number: float


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Undeclared(1.0), "Undeclared is no rule: decorate it with @declare"),
        (Valueless(1.0), "Valueless has no value: register one"),
    ],
)
def test_half_a_rule_is_refused(rule: object, words: str) -> None:
    arms, chosen = Lottery().pack(PROBLEM.channels), np.empty(3, dtype=np.int64)
    zeros = np.zeros(4, dtype=np.int64)
    state = State(zeros, zeros, zeros, np.ones(4, dtype=bool))
    with pytest.raises(Exception, match=words):
        decide(rule, arms, state, np.uint64(1), 0, chosen)


OUTSIDE = """
from dataclasses import dataclass
from typing import NamedTuple
from whitelie import Bandit
from whitelie.kernel.rule import declare, value
from whitelie.policy import Policy

@declare()
class OwnRule(NamedTuple):
    number: float

@value.register(OwnRule)
def constant(rule, arms, state, k, nothing, word):
    return FORMULA

@dataclass(frozen=True, kw_only=True)
class Own(Policy):
    titles = {"naive": "Own"}
    feedback: str = "naive"

    @property
    def rule(self):
        return OwnRule(1.0)

if __name__ == "own_rule":
    print(Bandit("ab", policy=Own(), seed=1).choose())
"""


def test_an_edited_rule_from_outside_is_never_served_from_the_disk_cache(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    chosen = []
    for formula in ("1.0 * k", "0.0 - k"):
        (tmp_path / "own_rule.py").write_text(OUTSIDE.replace("FORMULA", formula))
        code = "import sys; sys.dont_write_bytecode = True; import own_rule"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        chosen.append(done.stdout.strip())
    assert chosen == ["b", "a"]
