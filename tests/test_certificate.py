"""The certificate of a `Bandit`: what it says, what it refuses, and how δ is shared."""

import json
import math
from typing import Any

import pytest

from whitelie import IDENTITY, Bandit, InvalidInput, Monotone, RandomizedResponse
from whitelie.certificate import Beginning, Conclusion, needed_evidence

PRIVATE = RandomizedResponse.from_epsilon(1)
CLEAR = {"red": (2000, 1300), "blue": (2000, 900), "green": (2000, 880)}
EXPECTED = {"rate": 0.3, "difference": 0.05}


def bandit(counts: dict[Any, tuple[int, int]] = CLEAR, **given: Any) -> Bandit:
    return Bandit(list(counts), given.pop("channels", PRIVATE), counts=counts, **given)


def needed_of(conclusion: Conclusion) -> dict[Any, float]:
    return {name: rival.needed for name, rival in conclusion.rivals.items()}


def test_a_clear_winner_is_named_with_the_evidence_against_each_rival() -> None:
    conclusion = bandit().certificate()
    assert conclusion.winner == conclusion.leader == "red"
    assert set(conclusion.rivals) == {"blue", "green"}
    assert conclusion.progress == 1
    assert conclusion.more_reports == 0
    first, *others = str(conclusion).split("\n")
    assert first == "red is best (wrong with probability at most 5 %, however often one looks)."
    assert [line.split(":")[0] for line in others] == ["  red against blue", "  red against green"]
    assert all("enough evidence" in line for line in others)


def test_an_open_one_says_what_is_missing_and_against_whom() -> None:
    conclusion = bandit({"red": (900, 500), "blue": (900, 410), "green": (900, 300)}).certificate()
    assert conclusion.winner is None
    assert 0 < conclusion.progress < 1
    closest, beaten = conclusion.rivals["blue"], conclusion.rivals["green"]
    assert closest.missing == pytest.approx(closest.needed - closest.evidence)
    assert beaten.missing == 0
    assert conclusion.more_reports == closest.more_reports
    said = str(conclusion).split("\n")
    assert said[0].startswith("No certificate yet: ")
    assert f"{closest.missing:.2f} of {closest.needed:.2f} is missing" in said[1]
    assert "red against blue" in said[1]


def test_of_many_rivals_the_closest_are_put_into_words() -> None:
    counts = {k: (1000, 300 + 5 * k) for k in range(20)}
    said = str(bandit(counts).certificate()).split("\n")
    assert [line.split(":")[0] for line in said[1:]] == [
        f"  19 against {k}" for k in (18, 17, 16, 15, 14)
    ]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"delta": 0}, "delta"),
        ({"delta": 0.51}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": "5 %"}, "delta"),
        ({"tolerance": -0.01}, "tolerance"),
        ({"tolerance": math.inf}, "tolerance"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        bandit().certificate(**given)


@pytest.mark.parametrize(
    "expect",
    [
        {"rate": 0, "difference": 0.01},
        {"rate": 1, "difference": 0.01},
        {"rate": 0.5, "difference": 0},
        {"rate": 0.05, "difference": 0.9},
        {"rate": 0.05},
        0.05,
    ],
)
def test_an_impossible_expectation_is_refused_when_the_bandit_is_made(expect: Any) -> None:
    with pytest.raises(InvalidInput, match="expect"):
        bandit(expect=expect)


def test_one_arm_and_impossible_reports_cannot_say() -> None:
    assert bandit({"red": (2000, 1300)}).certificate().cannot_say is not None
    known = bandit(CLEAR | {"odd": (2000, 1990)}).certificate()
    assert known.winner is None
    assert known.cannot_say == "the reports on odd do not fit its channel"
    assert str(known) == "Cannot say: the reports on odd do not fit its channel."
    assert bandit({"red": (2000, 1300), "blue": (0, 0)}).certificate().winner is None


ONE_SIDED = RandomizedResponse(p00=1, p11=0.5)
BENT = Monotone.from_points([(0, 0), (0.5, 0.7), (1, 1)])


@pytest.mark.parametrize("ones", [0, 1000])
@pytest.mark.parametrize("channel", [IDENTITY, ONE_SIDED, BENT])
def test_equal_arms_at_the_ends_of_all_rates_end_with_a_tolerance(channel: Any, ones: int) -> None:
    ones = round(ones * channel.mean_feedback(1.0))
    equal = bandit({"a": (2000, 2 * ones), "b": (2000, 2 * ones)}, channels=channel)
    assert equal.certificate().winner is None
    assert equal.certificate(tolerance=0.1).winner is not None


def test_arms_that_come_and_go_cost_evidence() -> None:
    two = {"red": (2000, 1300), "blue": (2000, 900)}
    level = 0.95 * 0.05
    at_first = bandit(two)
    assert needed_of(at_first.certificate())["blue"] == pytest.approx(-math.log(0.9 * level))
    at_first.add_arm("new", PRIVATE, counts=(2000, 800))
    assert needed_of(at_first.certificate()) == pytest.approx(
        {"blue": -math.log(0.05 * level), "new": -math.log(0.05 * level / (1 * 2 * 2))}
    )
    fewer = bandit()
    fewer.retire_arm("green")
    assert needed_of(fewer.certificate()) == pytest.approx({"blue": -math.log(0.05 * level / 3)})


@pytest.mark.parametrize("first", [1, 2, 7])
def test_no_more_than_delta_is_shared(first: int) -> None:
    """Over all pairs, all lists of arms and all new beginnings."""
    delta, added, restarts = 0.05, 200, 300

    def spent(beginning: Beginning) -> float:
        unchanged = needed_evidence(delta, first, beginning, changed=False)
        later = needed_evidence(delta, first + added, beginning, changed=True)
        while_unchanged = max(first - 1, 0) * math.exp(-unchanged[0])
        pairs_before = range(first + added)
        return while_unchanged + sum(k * math.exp(-later[k]) for k in pairs_before)

    total = sum(spent(Beginning(first, restarts=j)) for j in range(restarts))
    assert 0.9 * delta < total <= delta if first > 1 else total <= delta


def test_a_stored_bandit_keeps_its_first_arms_and_what_it_expects() -> None:
    made = bandit(expect=EXPECTED)
    made.add_arm("new", PRIVATE, counts=(2000, 800))
    again = Bandit.from_json(made.to_json())
    assert again.certificate() == made.certificate()
    assert again.to_json() == made.to_json()


def test_of_an_earlier_version_all_arms_but_one_count_as_added() -> None:
    state = json.loads(bandit().to_json())
    del state["first_arms"], state["expect"]
    later = Bandit.from_json(json.dumps(state)).certificate()
    assert min(needed_of(later).values()) > max(needed_of(bandit().certificate()).values())


@pytest.mark.parametrize("first_arms", [0, 4, -1, 1.5, "3"])
def test_impossible_numbers_of_first_arms_are_refused(first_arms: Any) -> None:
    state = json.loads(bandit().to_json()) | {"first_arms": first_arms}
    with pytest.raises(InvalidInput, match="first_arms"):
        Bandit.from_json(json.dumps(state))


def test_merged_bandits_have_seen_what_both_have() -> None:
    halves = [bandit({name: (1000, ones // 2) for name, (_, ones) in CLEAR.items()})] * 2
    assert halves[0].merge(halves[1]).certificate() == bandit().certificate()
    with pytest.raises(InvalidInput, match="expect"):
        bandit().merge(bandit(expect=EXPECTED))


def test_an_expectation_changes_evidence_and_not_what_is_needed() -> None:
    plain, expecting = bandit().certificate(), bandit(expect=EXPECTED).certificate()
    assert needed_of(plain) == needed_of(expecting)
    assert plain.rivals["blue"].evidence != expecting.rivals["blue"].evidence
