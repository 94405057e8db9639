"""A learner: which arms it shows, from which counts."""

import msgspec
import numpy as np
import pytest
from scipy.stats import binom, chisquare

from whitelie.estimate import probabilities_best
from whitelie.kernel.arms import Array
from whitelie.service import wire
from whitelie.service.experiment import Rules
from whitelie.service.learner import Learner
from whitelie.service.refusal import Refusal
from whitelie.service.store import Counts, Saved

FALSE_ALARM = 1e-4


def saved(experiment: object, number: int = 7) -> Saved:
    return Saved(number, "colours", msgspec.json.encode(experiment).decode())


def learner(
    *keys: str, totals: dict[int, Counts] | None = None, policy: str = "TS-CF", floor: float = 0.0
) -> Learner:
    asked = wire.NewExperiment(
        name="Colours",
        arms=[wire.NewArm(key=key) for key in keys],
        epsilon=1.0,
        window=60,
        spread=60,
        policy=policy,
        floor=floor,
    )
    return Learner(saved(Rules().create(asked, 0, None)), totals or {})


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
        forgetful.in_flight[:] = 0
        repeated += forgetful.choose(1)
    assert set(repeated) == {0}


def test_decisions_in_flight_are_pending_until_they_are_committed() -> None:
    colours = learner("red", "blue", policy="kl-UCB-CF")
    first, second = colours.choose(1), colours.choose(1)
    assert {*first, *second} == {0, 1}  # never the same arm twice before feedback
    assert colours.expected.tolist() == [1, 1]


def test_missing_reports_are_no_longer_pending() -> None:
    colours = learner("red", "blue", totals={0: Counts(10, 4, 2)})
    assert colours.unanswered.pending.tolist() == [6, 0]
    colours.close({0: Counts(7, 3, 1)}, before=100)
    assert colours.unanswered.pending.tolist() == [2, 0]
    colours.restart({0: Counts(3, 1, 1)})
    assert colours.unanswered.pending.tolist() == [2, 0]


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
    changed = Rules().change(colours.experiment, wire.Change(retire=["green"]))
    colours.define(saved(changed))
    assert set(colours.choose(50)) == {0, 1}
    assert set(colours.choose(50, ["blue", "green"])) == {1}
    for available in (["green"], ["purple"]):
        with pytest.raises(Refusal, match="available"):
            colours.choose(1, available)


def test_an_added_arm_changes_nobody_elses_counts() -> None:
    colours = learner("red", "blue", totals={0: Counts(10, 8, 3), 1: Counts(5, 5, 5)})
    changed = Rules().change(colours.experiment, wire.Change(add=[wire.NewArm(key="green")]))
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
