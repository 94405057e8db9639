"""Plans for knowing: when the certificate comes, what it costs, and which epsilon a budget buys."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from whitelie import KLUCB, TS, InvalidInput, Plan, RandomizedResponse, TopTwo, plan
from whitelie.certificate import Certificate, Expect, conclude
from whitelie.kernel.batch import run_batches
from whitelie.planning import runs as runs_module
from whitelie.planning.budget import Budget
from whitelie.planning.design import Design
from whitelie.planning.goal import Goal, expectation
from whitelie.planning.recommendation import recommend
from whitelie.planning.runs import Runs, batch_ends, design_simulator
from whitelie.planning.search import meets

PRIVATE = RandomizedResponse.from_epsilon(2)
EXPECTED = Expect(rate=0.3, difference=0.3)


def design_to_know(**changes: Any) -> Design:
    """Three arms that a few hundred reports tell apart."""
    certificate = changes.pop("certificate", Certificate(expect=EXPECTED))
    given: dict[str, Any] = {"rates": (0.3, 0.6, 0.3), "traffic": 20, "policy": TopTwo()}
    return Design(**{**given, **changes}, goal=Goal("know", certificate))


def simulated(design: Design, channel: RandomizedResponse = PRIVATE, seed: int = 3) -> Runs:
    with design_simulator(100, seed, None) as simulator:
        return simulator.run(design, channel)


@pytest.mark.parametrize("truth", [0.85, 0.2])
def test_the_certificate_comes_at_the_first_counts_that_certify(truth: float) -> None:
    """As `conclude` reads the counts of the same run: at that batch's end, and not before."""
    channel = RandomizedResponse.warner(truth)
    design = design_to_know()
    runs = simulated(design, channel)
    game = design.policy.game(design.problem(channel), design.horizon)
    ends = batch_ends(design.horizon, 3)
    for replicate in range(5):
        pulls, successes = run_batches(game, np.uint64(3), replicate, ends, 0)
        row = int(np.searchsorted(ends, runs.certified[replicate]))
        winners = [
            conclude(
                design.goal.certificate,
                dict.fromkeys("abc", channel),
                (pulls[place], successes[place]),
                np.zeros(3, dtype=bool),
            ).winner
            for place in range(row + 1)
        ]
        assert winners[:-1] == [None] * row
        assert winners[-1] is not None
        assert runs.until[replicate] == pytest.approx(0.3 * (pulls[row, 0] + pulls[row, 2]))


def test_from_the_certificate_on_the_winner_alone_is_shown() -> None:
    runs = simulated(design_to_know())
    assert np.all(runs.certified < math.inf)
    assert not runs.error.any()
    after = runs.times >= runs.certified[:, None]
    assert np.all(np.where(after, runs.regret == runs.until[:, None], True))
    assert np.all(runs.regret[~after] <= np.repeat(runs.until, (~after).sum(axis=1)))
    assert runs.shipped == pytest.approx(runs.until)


def test_a_wrong_winner_loses_to_the_end() -> None:
    """With δ = ½ and arms that hardly differ, some certificates are wrong, and fewer than half."""
    rates, certificate = (0.5, 0.52), Certificate(0.5)
    runs = simulated(design_to_know(rates=rates, traffic=10, certificate=certificate))
    assert 0 < runs.error.sum() < stats.binom.ppf(1 - 1e-4, 100, 0.5)
    wrong = runs.error
    left = runs.times[-1] - runs.certified[wrong]
    assert runs.shipped[wrong] == pytest.approx(runs.until[wrong] + 0.02 * left)
    right = (runs.certified < math.inf) & ~wrong
    assert runs.shipped[right] == pytest.approx(runs.until[right])


def test_nothing_depends_on_how_far_replicates_are_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design = design_to_know(delay=3)
    short = simulated(design)
    for headroom in (1.0, math.inf):
        monkeypatch.setattr(runs_module, "HEADROOM", headroom)
        other = simulated(design)
        for name, values in vars(short).items():
            assert np.array_equal(values, getattr(other, name)), name


def test_equal_shares_show_all_arms_alike() -> None:
    """All but a third of the shown answers lose 0.3, until the certificate."""
    design = design_to_know()
    with design_simulator(400, 3, None) as simulator:
        runs = simulator.run_equal_shares(design, PRIVATE)
    assert runs.until == pytest.approx(runs.certified * 0.2, abs=0.21)
    adaptive = simulated(design)
    gained = runs.until.mean() - adaptive.until.mean()
    spread = math.hypot(stats.sem(runs.until), stats.sem(adaptive.until))
    assert gained > 3.9 * spread


def test_reports_that_arrive_late_certify_later() -> None:
    """Equal shares do not see reports, so that a delay moves every certificate by itself."""
    at_once, late = design_to_know(), design_to_know(delay=3)
    with design_simulator(100, 3, None) as simulator:
        one, other = (simulator.run_equal_shares(each, PRIVATE) for each in (at_once, late))
    assert other.certified == pytest.approx(one.certified + 60)
    assert other.until == pytest.approx(one.until + 60 * 0.2, abs=0.41)


def test_a_delay_that_leaves_no_time_leaves_no_certificate() -> None:
    runs = simulated(design_to_know(delay=364.9))
    assert np.all(runs.certified == math.inf)
    assert not runs.error.any()


def test_arms_that_are_equal_end_with_a_tolerance() -> None:
    certificate = Certificate(tolerance=0.1)
    runs = simulated(design_to_know(rates=(0.2, 0.6, 0.6), traffic=100, certificate=certificate))
    assert (runs.certified < math.inf).mean() > 0.9
    assert not runs.error.any()


def test_a_gap_of_the_tolerance_is_no_error() -> None:
    """In binary 0.4 − 0.3 is a little more than 0.1; and either arm may win."""
    certificate = Certificate(0.5, tolerance=0.1)
    runs = simulated(design_to_know(rates=(0.3, 0.4), certificate=certificate))
    assert not runs.error.any()
    assert runs.shipped.max() > runs.until.max()


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan(
        arms=3, rate=0.3, difference=0.3, traffic=40, epsilon=[1, 3],
        goal="know", within_days=20, seed=4, replicates=100,
    )  # fmt: skip


def test_a_plan_to_know_is_plain_data(small: Plan) -> None:
    data = json.loads(json.dumps(small.to_dict(), allow_nan=False))
    assert data["design"]["goal"] == {
        "name": "know",
        "certificate": {
            "delta": 0.05, "tolerance": 0.0, "expect": {"rate": 0.3, "difference": 0.3},
        },
    }  # fmt: skip
    first = data["options"][0]["certificate"]
    option = small.options[0]
    assert first["days"]["mean"] == option.certified.days.value
    assert first["within"]["days"] == option.certified.within.days
    assert first["lost_in_year"]["mean"] == pytest.approx(option.lost_rewards)
    names = [policy["name"] for policy in data["comparisons"]]
    assert names == ["TopTwo-CF", "TopTwo-CF (know=0.5)", "kl-UCB-CF", "TS-CF", "equal shares"]
    assert [point["know"] for point in data["frontier"]["points"]] == [0.1, 0.2, 0.35, 0.6, 1]
    assert data["frontier"]["epsilon"] == data["recommendation"]["epsilon"]


def test_more_privacy_takes_longer(small: Plan) -> None:
    strong, weak = (option.certified for option in small.options)
    assert strong.days.value - 4 * strong.days.error > weak.days.value + 4 * weak.days.error
    assert strong.lost_until.value > weak.lost_until.value
    for certified in (strong, weak):
        assert certified.in_all_runs
        assert certified.within.days is not None
        assert certified.within.days > certified.days.value
        assert certified.wrong.estimate <= 0.05


def test_knowing_and_earning_are_traded(small: Plan) -> None:
    """On either end of the curve, each is better at what it is for."""
    assert small.frontier is not None
    first, last = (small.frontier.points[place].certified for place in (0, -1))
    assert last.days.value < first.days.value / 1.5
    assert last.lost_until.value > first.lost_until.value
    thompson = small.comparisons[3].certified[0]
    assert thompson.days.value > 2 * small.comparisons[0].certified[0].days.value


def test_the_own_policy_has_the_runs_of_the_options(small: Plan) -> None:
    assert small.comparisons[0].certified == tuple(each.certified for each in small.shown)
    assert len(small.shown) == 3
    for policy in small.comparisons:
        assert policy.epsilons == tuple(option.epsilon for option in small.shown)


def test_a_given_policy_is_beside_the_others() -> None:
    planned = plan(
        rates=[0.2, 0.7], traffic=30, epsilon=3, goal="know", policy=TS(), replicates=100
    )
    names = [policy.name for policy in planned.comparisons]
    assert names == ["TS-CF", "TopTwo-CF", "TopTwo-CF (know=0.5)", "kl-UCB-CF", "equal shares"]
    assert planned.design.policy == TS()
    assert planned.comparisons[0].certified == (planned.options[0].certified,)


@pytest.mark.parametrize("kind", ["within_days", "lose_at_most"])
def test_the_recommendation_is_where_the_budget_begins_to_be_kept(kind: str) -> None:
    """From runs on other random numbers: kept at a larger epsilon, not kept at a smaller one."""
    design = design_to_know(traffic=40)
    amount = {"within_days": 20.0, "lose_at_most": 80.0}[kind]
    budget = Budget(kind, amount)
    with design_simulator(100, 5, None) as simulator:
        recommended = recommend(simulator, design, budget)
        assert recommended.met
        assert recommended.spent == pytest.approx(amount, rel=0.2)
        fresh = replace(simulator, seed=99, replicates=300)
        assert meets(fresh, design, budget, 1.15 * recommended.epsilon)
        assert not meets(fresh, design, budget, recommended.epsilon / 1.15)


def test_a_certificate_that_no_epsilon_gives_in_time() -> None:
    planned = plan(
        rates=[0.3, 0.6], traffic=20, epsilon=2, goal="know", within_days=1, replicates=100
    )
    assert planned.recommendation is not None
    assert not planned.recommendation.met
    assert planned.recommendation.epsilon == 10
    assert planned.recommendation.without_noise is not None


def test_beyond_the_year_is_said() -> None:
    planned = plan(rates=[0.5, 0.52], traffic=5, epsilon=0.5, goal="know", replicates=100)
    certified = planned.options[0].certified
    assert certified.share.estimate < 0.05
    assert certified.within_text == "> 365"
    assert certified.to_dict()["days"]["mean"] is None
    thompson = planned.comparisons[3].certified[0]
    assert (thompson.share.estimate, thompson.mean_text) == (0, "> 365")


def test_some_runs_beyond_the_year_make_the_mean_a_bound() -> None:
    planned = plan(rates=[0.3, 0.6], traffic=1, epsilon=1.5, goal="know", replicates=100)
    certified = planned.options[0].certified
    assert 0.1 < certified.share.estimate < 0.9
    assert certified.mean_text.startswith("≥ ")
    assert certified.days.value < 365


def test_the_plans_own_rates_make_the_certificate_sooner() -> None:
    """Beside none, and beside a wrong expectation, on the same runs."""
    expected = {
        "plan": Expect(rate=0.1, difference=0.1),
        "none": None,
        "wrong": Expect(rate=0.5, difference=0.4),
    }
    times = {}
    for name, expect in expected.items():
        design = design_to_know(
            rates=(0.1, 0.1, 0.2),
            traffic=100,
            policy=KLUCB(),
            certificate=Certificate(expect=expect),
        )
        times[name] = simulated(design).certified
    for other in ("none", "wrong"):
        later = times[other] - times["plan"]
        assert later.mean() > 3.9 * stats.sem(later)


@pytest.mark.parametrize(
    ("base", "lead", "expected"),
    [
        (0.05, 0.06 - 0.05, Expect(rate=0.05, difference=0.01)),
        (0.0, 0.5, None),
        (0.1, 0.8, None),
    ],
)
def test_a_certificate_expects_what_can_be_expected(
    base: float, lead: float, expected: Expect | None
) -> None:
    assert expectation("plan", base, lead) == expected
    assert expectation(None, base, lead) is None
    assert expectation({"rate": 0.2, "difference": 0.1}, base, lead) == Expect(
        rate=0.2, difference=0.1
    )


def test_a_plan_to_earn_says_when_it_would_know() -> None:
    """On the same runs: nothing is shipped, but the certificate's columns say what it would be."""
    earned = plan(rates=[0.3, 0.6], traffic=40, epsilon=3, policy=KLUCB(), replicates=100)
    known = plan(
        rates=[0.3, 0.6], traffic=40, epsilon=3, policy=KLUCB(), replicates=100, goal="know"
    )
    earn, know = earned.options[0], known.options[0]
    assert earn.certified == know.certified
    assert earn.lost_rewards > know.lost_rewards
    assert know.lost_rewards == pytest.approx(know.certified.lost_in_year.value)
    assert (earn.reached, know.reached) == (earn.settled, know.certified.within)
    assert earned.comparisons == ()
    assert earned.frontier is None


def test_the_number_of_threads_changes_nothing() -> None:
    def words(jobs: int) -> str:
        planned = plan(
            rates=[0.2, 0.7],
            traffic=30,
            epsilon=3,
            goal="know",
            know=0.3,
            replicates=100,
            jobs=jobs,
        )
        assert planned.design.policy == TopTwo(know=0.3)
        return json.dumps(planned.to_dict())

    assert words(1) == words(3)


KNOW: dict[str, Any] = {"rates": [0.1, 0.2], "traffic": 1000, "goal": "know"}


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({**KNOW, "goal": "learn"}, "goal", 'choose "earn", or "know"'),
        ({**KNOW, "know": 0}, "know", "for 0 choose Thompson sampling"),
        ({**KNOW, "know": 1.1}, "know", "above 0 and at most 1"),
        ({**KNOW, "know": 0.5, "policy": TS()}, "know", "either a policy, or know"),
        ({**KNOW, "goal": "earn", "know": 0.5}, "know", 'the goal "know"'),
        ({**KNOW, "delta": 0}, "delta", "above 0 and at most 0.5"),
        ({**KNOW, "delta": 0.6}, "delta", "above 0 and at most 0.5"),
        ({**KNOW, "delta": math.nan}, "delta", "above 0 and at most 0.5"),
        ({**KNOW, "tolerance": -0.01}, "tolerance", "from 0 to 1"),
        ({**KNOW, "expect": {"rate": 1.5, "difference": 0.1}}, "expect.rate", "above 0 and below"),
        ({**KNOW, "expect": {"rate": 0.5, "difference": 0}}, "expect.difference", "above 0"),
        ({**KNOW, "expect": {"rate": 0.1, "difference": 0.5}}, "expect.difference", "too large"),
        ({**KNOW, "expect": {"rate": 0.5}}, "expect", "difference"),
        ({**KNOW, "expect": "nothing"}, "expect", "those of the plan, or None"),
        ({**KNOW, "rates": [0.1, 0.2, 0.2]}, "tolerance", "2 arms share the largest rate"),
        ({**KNOW, "goal": "earn", "delta": 0.6}, "delta", "at most 0.5"),
    ],
)
def test_what_cannot_be_known_is_refused_with_help(
    given: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        plan(**given)
    assert refusal.value.field == field
    assert words in refusal.value.reason


@pytest.mark.long
def test_a_certificate_comes_in_weeks() -> None:
    """Of five arms, .06 against .05, 20,000 reports a day: means of 300 runs, in days."""
    rates = (0.05,) * 4 + (0.06,)
    planned = Expect(rate=0.05, difference=0.01)
    most = [
        (TopTwo(), None, 1, 125), (TopTwo(), planned, 1, 90),
        (TopTwo(know=0.5), planned, 1, 105), (TopTwo(), None, 4, 9),
    ]  # fmt: skip
    with design_simulator(300, 0, None) as simulator:
        for policy, expect, epsilon, days in most:
            goal = Goal("know", Certificate(expect=expect))
            design = Design(rates=rates, traffic=20_000, policy=policy, goal=goal)
            runs = simulator.run(design, RandomizedResponse.from_epsilon(epsilon))
            measured = runs.certified / 20_000
            print(f"{policy.label}, {expect}, ε = {epsilon}: {measured.mean():.1f}", end=" ")
            print(f"± {stats.sem(measured):.1f} days, {runs.until.mean():.0f} rewards lost")
            assert measured.mean() < days
