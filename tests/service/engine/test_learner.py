"""A learner: which arms it shows, from which counts."""

import ast
import heapq
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import binom, chisquare

from helpers.paths import ROOT
from whitelie.estimate import probabilities_best
from whitelie.kernel.arms import Array
from whitelie.service import wire
from whitelie.service.engine.learner import COLUMNS, Learner
from whitelie.service.experiment.definition import ExperimentValidator
from whitelie.service.experiment.privacy_statement import statement_of
from whitelie.service.experiment.unanswered import Ages, ages_of
from whitelie.service.refusals import Refusal
from whitelie.service.store.contract import Counts, StoredExperiment

FALSE_ALARM = 1e-4


def saved(experiment: object, number: int = 7) -> StoredExperiment:
    return StoredExperiment(number, "colours", msgspec.json.encode(experiment).decode())


def learner(*keys: str, totals: dict[int, Counts] | None = None, **fields: Any) -> Learner:
    usual: dict[str, Any] = {"epsilon": 1.0, "window": 60, "spread": 60}
    arms = [wire.NewArm(key=key) for key in keys]
    asked = wire.NewExperiment(name="Colours", arms=arms, **usual | fields)
    return Learner(saved(ExperimentValidator().create(asked, 0, None)), totals or {})


def commit(colours: Learner, chosen: list[int]) -> None:
    """Commit decisions that are in flight."""
    for arm in chosen:
        colours.release(arm, 1)
        colours.commit_issued(arm, 1)


def shares(chosen: list[int], arms: int) -> Array:
    return np.bincount(chosen, minlength=arms)


def test_thompson_sampling_chooses_as_often_as_an_arm_is_likely_best() -> None:
    counts = {k: Counts(500, 400, 190 + 5 * k) for k in range(12)}
    colours = learner(*(f"c{k}" for k in range(12)), totals=counts)
    chosen = shares(colours.choose(20_000), 12)
    arrays = [
        np.array([getattr(count, name) for count in counts.values()])
        for name in ("answered", "ones")
    ]
    expected = probabilities_best(colours.experiment.channels, *arrays)
    assert chisquare(chosen, 20_000 * expected).pvalue > FALSE_ALARM
    assert chisquare(chosen, 20_000 * expected[::-1]).pvalue < FALSE_ALARM


@pytest.mark.parametrize("policy", ["kl-UCB-CF", "UCB-CF"])
def test_index_policies_spread_decisions_that_wait_for_feedback(policy: str) -> None:
    counts = {0: Counts(100, 100, 60), 1: Counts(100, 100, 55)}
    colours = learner("red", "blue", totals=counts, policy=policy)
    assert min(shares(colours.choose(200), 2)) > 20

    forgetful = learner("red", "blue", totals=counts, policy=policy)
    repeated = []
    for _ in range(200):
        (arm,) = forgetful.choose(1)
        forgetful.release(arm, 1)
        repeated.append(arm)
    assert set(repeated) == {0}


def test_decisions_in_flight_are_pending_until_they_are_committed() -> None:
    colours = learner("red", "blue", policy="kl-UCB-CF")
    first, second = colours.choose(1), colours.choose(1)
    assert {*first, *second} == {0, 1}  # never the same arm twice before feedback
    assert colours.expected.tolist() == [1, 1]
    commit(colours, first)
    assert (colours.issued.sum(), colours.in_flight.sum()) == (1, 1)
    assert colours.expected.tolist() == [1, 1]


def test_missing_reports_are_no_longer_pending() -> None:
    colours = learner("red", "blue", totals={0: Counts(10, 4, 2)})
    assert colours.unanswered.pending.tolist() == [6, 0]
    colours.expire({0: Counts(7, 3, 1)}, before=100)
    assert colours.unanswered.pending.tolist() == [2, 0]
    colours.restart({0: Counts(3, 1, 1)})
    assert colours.unanswered.pending.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("sending", "window", "spread", "minutes"),
    [
        ("when-due", 60, 60, 3),
        ("when-due", 36_000, 0, 660),
        ("next-visit", 60, 60, 2 + 24 * 60),
        ("next-visit", 36_000, 0, 600 + 24 * 60),
    ],
)
def test_how_long_a_decision_pends_depends_on_when_clients_send(
    sending: str, window: int, spread: int, minutes: int
) -> None:
    made = learner("red", window=window, spread=spread, sending=sending).experiment
    assert made.horizon == minutes
    short = learner("red", window=0, spread=60, feedback_ttl=120, sending=sending).experiment
    assert short.horizon == short.lifetime == 2  # nothing is overdue and missing at once


def test_an_experiment_that_was_stored_before_sends_when_due() -> None:
    made = msgspec.to_builtins(learner("red").experiment)
    assert made.pop("sending") == "next-visit"
    old = Learner(saved(made), {})
    assert old.experiment.sending == "when-due"
    promised = statement_of("colours", old.experiment)
    assert promised.sending == "when-due"
    assert promised.hash != statement_of("colours", learner("red").experiment).hash


def test_what_no_longer_pends_is_overdue_until_it_is_missing() -> None:
    colours = learner("red", "blue", totals={0: Counts(10, 4, 2), 1: Counts(5, 5, 1)})
    assert colours.unanswered.pending.tolist() == [6, 0]
    colours.age(Ages(recent={0: Counts(3, 1, 0)}, late={0: Counts(7, 3, 1)}))
    assert [each.tolist() for each in colours.unanswered] == [[2, 0], [4, 0], [0, 0]]
    assert colours.likely_answers == 3 + 1
    colours.commit_issued(0, 5)
    colours.commit_answers(0, 1, ones=0, minute=90)
    assert [each.tolist() for each in colours.unanswered] == [[6, 0], [4, 0], [0, 0]]
    colours.expire({0: Counts(3, 2, 1)}, before=100)
    assert [each.tolist() for each in colours.unanswered] == [[6, 0], [3, 0], [1, 0]]
    colours.restart({0: Counts(3, 1, 1)})
    assert [each.tolist() for each in colours.unanswered] == [[2, 0], [0, 0], [0, 0]]
    assert colours.likely_answers == math.inf


@pytest.mark.parametrize("policy", ["kl-UCB-CF", "UCB-CF"])
def test_index_policies_spread_decisions_that_are_likely_to_be_answered(policy: str) -> None:
    counts = {0: Counts(100, 100, 60), 1: Counts(100, 100, 55)}

    def share(late: Counts) -> Array:
        colours = learner("red", "blue", totals=counts, policy=policy)
        arms = []
        for _ in range(200):  # each is committed before the next, and none is answered
            pending = {arm: Counts(int(n) - 100) for arm, n in enumerate(colours.issued)}
            colours.age(Ages(recent=pending, late={0: late}))
            chosen = colours.choose(1)
            commit(colours, chosen)
            arms += chosen
        return shares(arms, 2)

    assert min(share(Counts())) > 20
    assert min(share(Counts(1000, 900, 400))) > 20
    assert min(share(Counts(10**6, 900, 400))) > 20  # tokens harvested until yesterday
    assert min(share(Counts(10**6, 0, 0))) == 0


def test_arms_share_the_likely_answers_by_what_is_pending() -> None:
    colours = learner("red", "blue", totals={0: Counts(30), 1: Counts(10)}, sending="when-due")
    assert colours.expected.tolist() == [30, 10]  # nothing is known of what stopped pending
    pending = {0: Counts(30), 1: Counts(10)}
    lately = 60 / colours.experiment.horizon  # horizons in the hour that is looked at
    colours.age(Ages(recent=pending, late={0: Counts(900, int(7 * lately))}))
    assert colours.likely_answers == 7 + 1
    assert colours.expected.tolist() == [6, 2]
    colours.commit_issued(1, 20)
    assert colours.expected.tolist() == [4, 4]
    pending[1] = Counts(30)
    colours.age(Ages(recent=pending, late={0: Counts(900, int(70 * lately))}))
    assert colours.expected.tolist() == [30, 30]


START = 10_000


class Minutes:
    """The history of two arms, by minute since START."""

    def __init__(self, minutes: int) -> None:
        self.counts = np.zeros((minutes, 2, 3), dtype=np.int64)

    def history(
        self, experiment: int, start: int, stop: int, width: int = 1
    ) -> dict[tuple[int, int], Counts]:
        sums = self.counts[max(start - START, 0) : max(stop - START, 0)].sum(axis=0)
        return {(0, arm): Counts(*map(int, sums[arm])) for arm in range(2)}


@dataclass(frozen=True)
class Crowd:
    """Honest visitors, one every so many minutes, and how many tokens are harvested with each.

    The first arm is better, but was unlucky at first. Honest reports come after window and spread,
    and so many minutes more on average.
    """

    sending: str
    every: int
    late: float
    harvested: int
    visits: int = 600

    def better(self, policy: str, seed: int, *, are_ages_known: bool = True) -> float:
        """Return which share of the last third of honest visitors is shown the better arm."""
        unlucky = {0: Counts(20, 20, 7), 1: Counts(20, 20, 12)}
        fields = {"window": 600, "spread": 300, "epsilon": 3.0, "sending": self.sending}
        colours = learner("good", "bad", totals=unlucky, policy=policy, **fields)
        colours._chooser.key = np.uint64(seed)
        draw, shown = np.random.default_rng(seed), []
        store: Any = Minutes(self.visits * self.every)
        waiting: list[tuple[float, int, int, int]] = []
        for minute in range(START, START + self.visits * self.every, self.every):
            while waiting and waiting[0][0] <= minute:
                _, issued, arm, bit = heapq.heappop(waiting)
                colours.commit_answers(arm, 1, bit, minute)
                store.counts[issued - START, arm] += (0, 1, bit)
            if are_ages_known:
                colours.age(ages_of(store, 7, colours.experiment, minute))
            harvested = colours.choose(self.harvested) if self.harvested else []
            shown += colours.choose(1)
            store.counts[minute - START, :, 0] += colours.in_flight
            commit(colours, [*harvested, shown[-1]])
            channel = colours.experiment.channels[shown[-1]]
            bit = int(draw.random() < channel.mean_feedback((0.7, 0.4)[shown[-1]]))
            due = minute + 10 + 5 * draw.random() + draw.exponential(self.late)
            heapq.heappush(waiting, (due, minute, shown[-1], bit))
        return shown[-self.visits // 3 :].count(0) / (self.visits // 3)


@pytest.mark.parametrize("policy", ["kl-UCB-CF", "UCB-CF"])
@pytest.mark.parametrize(
    ("sending", "every", "late"), [("when-due", 1, 0.1), ("next-visit", 10, 240.0)]
)
@pytest.mark.promise("Likely answers")
def test_tokens_that_are_harvested_do_not_freeze_a_policy(
    policy: str, sending: str, every: int, late: float
) -> None:
    honest = Crowd(sending, every, late, harvested=0)
    attacked = Crowd(sending, every, late, harvested=300)
    for seed in range(4):
        assert honest.better(policy, seed) > 0.8
        assert attacked.better(policy, seed) > 0.8
    frozen = [attacked.better(policy, seed, are_ages_known=False) for seed in range(4)]
    assert sum(share < 0.2 for share in frozen) >= 2


def test_every_arm_has_its_floor() -> None:
    counts = {0: Counts(4000, 4000, 2900), 1: Counts(4000, 4000, 1100), 2: Counts(4000, 4000, 1100)}
    colours = learner("red", "blue", "green", totals=counts, floor=0.1)
    chosen = shares(colours.choose(20_000), 3)
    for share in chosen[1:]:
        assert binom.cdf(share, 20_000, 0.1) > FALSE_ALARM
    assert binom.cdf(chosen[0], 20_000, 0.8) > FALSE_ALARM
    assert binom.sf(chosen[0], 20_000, 0.8) > FALSE_ALARM
    without = learner("red", "blue", "green", totals=counts)
    assert binom.cdf(shares(without.choose(20_000), 3)[1], 20_000, 0.1) < FALSE_ALARM


def test_only_available_arms_that_are_not_retired_are_chosen() -> None:
    colours = learner("red", "blue", "green")
    assert set(colours.choose(50, ["blue", "green"])) == {1, 2}
    changed = ExperimentValidator().change(colours.experiment, wire.Change(retire=["green"]))
    colours.define(saved(changed))
    assert set(colours.choose(50)) == {0, 1}
    assert set(colours.choose(50, ["blue", "green"])) == {1}
    for available in (["green"], ["purple"]):
        with pytest.raises(Refusal, match="available"):
            colours.choose(1, available)


def test_an_added_arm_changes_nobody_elses_counts() -> None:
    colours = learner("red", "blue", totals={0: Counts(10, 8, 3), 1: Counts(5, 5, 5)})
    changed = ExperimentValidator().change(
        colours.experiment, wire.Change(add=[wire.NewArm(key="green")])
    )
    colours.define(saved(changed))
    assert colours.issued.tolist() == [10, 5, 0]
    assert colours.answered.tolist() == [8, 5, 0]
    assert colours.ones.tolist() == [3, 5, 0]
    assert 2 in colours.choose(200)


def test_a_decision_is_sent_as_its_wire_type() -> None:
    colours = learner("red", 'a "b" \\ <c>')
    for position, arm in enumerate(colours.experiment.arms):
        before, after = colours.answers[position]
        sent = msgspec.json.decode(before + b"TOKEN" + after, type=wire.Decision)
        assert sent.arm == arm.key
        assert sent.token == "TOKEN"
        assert sent.mechanism == wire.Mechanism(arm.p00, arm.p11, 60, 60)
        assert sent.expires_in == 120 + 7 * wire.DAY_SECONDS


SERVICE = ROOT / "src/whitelie/service"
STATE = {*COLUMNS, "expired_before", "last_report", "likely_answers", "must_restart", "restarts"}


def written(source: str) -> list[str]:
    """Return which attributes of a learner's state a module writes: whole, in part or in place."""
    names = []
    for node in ast.walk(ast.parse(source)):
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.keyword) and node.arg == "out":
            target = node.value
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute) and target.attr in STATE:
            names.append(target.attr)
    return names


def test_nobody_but_the_learner_writes_its_counts() -> None:
    learner_file = SERVICE / "engine/learner.py"
    assert {*COLUMNS} - {*written(learner_file.read_text())} == set()
    writers = {
        file.relative_to(SERVICE): names
        for file in SERVICE.rglob("*.py")
        if file != learner_file and (names := written(file.read_text()))
    }
    assert writers == {}
    assert written("learner.issued[arm] += count") == ["issued"]
    assert written("np.maximum(one.overdue, 0, out=one.overdue)") == ["overdue"]
    assert written("x, learner.must_restart = 1, False") == ["must_restart"]
