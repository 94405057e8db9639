"""Simulations that stop at a certificate: when, who won, what was lost, however they are run."""

import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.result_cases import PROBLEM as TWO_ARMS
from helpers.result_cases import two_arms, walks
from simulation.test_simulation import Counting, OwnUCB1, RoundRobin
from whitelie import (
    TS,
    UCB1,
    Bandit,
    Certificate,
    Channel,
    DPUCBInt,
    Expect,
    InvalidInput,
    Problem,
    RandomizedResponse,
    TopTwo,
    simulate,
    simulate_many,
)
from whitelie.kernel.arms import Array
from whitelie.simulation.intervals import clopper_pearson
from whitelie.simulation.replicate import Replicate
from whitelie.simulation.result import Result
from whitelie.simulation.stops import Stops, are_sound, wrong_winners

PROBLEM = Problem({"a": 0.9, "b": 0.6, "c": 0.5}, RandomizedResponse.from_epsilon(2))
POLICIES: dict[str, Any] = {"TopTwo-CF": TopTwo(), "UCB1": UCB1()}
STOP = Certificate(0.05)
SETTINGS: dict[str, Any] = {"horizon": 2000, "replicates": 24, "seed": 5, "stop": STOP}


class Turns(RoundRobin):
    """Each arm in turn, with a name for stores."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": "Turns"}


@pytest.fixture(scope="module")
def reference() -> Result:
    return simulate(PROBLEM, {**POLICIES, "turns": Turns()}, **SETTINGS, jobs=1)


def assert_same(result: Result, reference: Result) -> None:
    for name in result.policies:
        ours, theirs = (r.dataset.sel(policy=name).drop_attrs() for r in (result, reference))
        assert ours.identical(theirs)
    assert result.stop == reference.stop


def slow_turns(problem: Problem, stop: Certificate, horizon: int, replicate: int) -> Any:
    """Turns, looked at after every report through `Bandit.certificate`: (reports, winner)."""
    bits, names = Replicate(problem, SETTINGS["seed"], replicate), problem.names
    bandit = Bandit(names, problem.channels, seed=1, expect=stop.expect)
    for t in range(horizon):
        arm = t % len(names)
        bandit.update(names[arm], bits.pull(arm))
        winner = bandit.certificate(stop.delta, stop.tolerance).winner
        if winner is not None:
            return t + 1, winner
    return horizon, ""


@pytest.mark.parametrize(
    "stop",
    [
        STOP,
        Certificate(0.2, tolerance=0.1),
        Certificate(0.01, expect=Expect(rate=0.8, difference=0.2)),
    ],
)
def test_a_replicate_stops_at_the_report_at_which_a_plain_loop_finds_the_certificate(
    stop: Certificate,
) -> None:
    channels = [RandomizedResponse(p00=0.9, p11=0.8), RandomizedResponse(p00=0.2, p11=0.1)]
    mixed = Problem({"good": 0.9, "bad": 0.5}, channels)
    settings = SETTINGS | {"replicates": 4, "horizon": 150, "stop": stop}
    stops = simulate(mixed, [Turns()], **settings).stops.isel(policy=0)
    seen = list(zip(stops["reports"].values.tolist(), stops["winner"].values.tolist(), strict=True))
    assert seen == [slow_turns(mixed, stop, 150, replicate) for replicate in range(4)]
    assert any(reports < 150 for reports, _ in seen)


def test_a_policy_of_ones_own_stops_where_the_compiled_one_does(reference: Result) -> None:
    own = simulate(PROBLEM, {"UCB1": OwnUCB1()}, **SETTINGS | {"replicates": 6})
    for name in ("pulls", "stop_reports", "stop_winner"):
        first = reference.dataset[name].sel(policy=["UCB1"], replicate=slice(0, 5))
        np.testing.assert_array_equal(own.dataset[name].values, first.values)


def test_nobody_reports_after_the_stop_and_the_winner_is_shown(reference: Result) -> None:
    unstopped = simulate(PROBLEM, {"UCB1": UCB1()}, **SETTINGS | {"stop": None})
    stopped = reference.pulls.sel(policy="UCB1")
    stops = reference.stops.sel(policy="UCB1")
    times = stopped["time"].values
    assert stops["certified"].values.all()
    for replicate, reports in enumerate(stops["reports"].values):
        before = times <= reports
        ours, theirs = (
            pulls.sel(replicate=replicate).values
            for pulls in (stopped, unstopped.pulls.sel(policy="UCB1"))
        )
        np.testing.assert_array_equal(ours[before], theirs[before])
        winner = reference.pulls["arm"].values.tolist().index(stops["winner"].values[replicate])
        grown = np.diff(ours[~before], axis=0)
        assert (np.delete(grown, winner, axis=1) == 0).all()
    # A control: without a stop the others go on being shown.
    assert not np.array_equal(stopped.values, unstopped.pulls.sel(policy="UCB1").values)


def test_threads_processes_and_stores_do_not_matter(reference: Result, tmp_path: Path) -> None:
    policies = {**POLICIES, "turns": Turns()}
    assert_same(simulate(PROBLEM, policies, **SETTINGS, jobs=4), reference)
    with ProcessPoolExecutor(1) as executor:
        elsewhere = simulate(PROBLEM, {"UCB1": UCB1()}, **SETTINGS, executor=executor)
    assert_same(elsewhere, reference)
    few = SETTINGS | {"replicates": 5}
    simulate(PROBLEM, policies, **few, store=tmp_path)
    rest = Counting()
    assert_same(simulate(PROBLEM, policies, **SETTINGS, store=tmp_path, executor=rest), reference)
    assert rest.replicates == 3 * (24 - 5)
    other = simulate(PROBLEM, policies, **SETTINGS | {"seed": 6})  # a control
    assert not other.stops["reports"].equals(reference.stops["reports"])


def test_a_sweep_stops_as_its_cells_do() -> None:
    problems = [Problem([0.9, 0.4], RandomizedResponse.from_epsilon(e)) for e in (1, 3)]
    cells = [(problem, POLICIES) for problem in problems]
    sweep = simulate_many(cells, coordinate="epsilon", values=[1, 3], **SETTINGS)
    for value, problem in zip([1, 3], problems, strict=True):
        alone = simulate(problem, POLICIES, **SETTINGS)
        assert sweep.stops.sel(epsilon=value, drop=True).equals(alone.stops)
    summary = sweep.stopping_summary()
    assert summary.index.names == ["epsilon", "policy"]
    assert summary.loc[(1, "UCB1"), "mean"] > summary.loc[(3, "UCB1"), "mean"]
    axes = sweep.plot_stops()
    assert axes.get_ylabel() == "reports until the certificate"


def test_a_stored_chunk_whose_stop_cannot_be_is_computed_again(
    reference: Result, tmp_path: Path
) -> None:
    simulate(PROBLEM, {"UCB1": UCB1()}, **SETTINGS, store=tmp_path)
    paths = sorted((tmp_path / "chunks").iterdir())
    for path, change in zip(paths, ((-1, 0, 1), (-1, 1, 1), (-2, 1, 1), (-1, 2, 5)), strict=False):
        rows = np.load(path)
        rows[0, change[0], change[1]] += change[2]
        np.save(path, rows)
    assert_same(simulate(PROBLEM, {"UCB1": UCB1()}, **SETTINGS, store=tmp_path), reference)


def test_a_store_of_another_stop_is_refused(tmp_path: Path) -> None:
    simulate(PROBLEM, [UCB1()], **SETTINGS, store=tmp_path / "stopped")
    simulate(PROBLEM, [UCB1()], **SETTINGS | {"stop": None}, store=tmp_path / "not")
    for folder, stop, message in (
        ("stopped", None, r"with stop \{.*, not without"),
        ("stopped", Certificate(0.01), r"stop.delta 0.05, not 0.01"),
        ("not", STOP, r"made without stop, not with \{"),
    ):
        with pytest.raises(InvalidInput, match=message):
            simulate(PROBLEM, [UCB1()], **SETTINGS | {"stop": stop}, store=tmp_path / folder)
    assert "stop" not in json.loads((tmp_path / "not/settings.json").read_text())


def stopped_by_hand() -> Result:
    """Two policies, four replicates up to 10: gaps 0, 1/4; one wrong winner, one without."""
    reports = np.array([[[3, 1], [2, 2], [6, 4], [4, 1]], [[1, 1], [5, 5], [2, 1], [3, 2]]])
    winner = np.array([[0, 1, -1, 0], [0, -1, 0, 0]])
    last = reports.copy()
    for place in np.ndindex(winner.shape):
        if winner[place] >= 0:
            last[place][winner[place]] += 10 - reports[place].sum()
    stops = Stops(STOP, reports.astype(np.int32), winner.astype(np.int32))
    return Result.from_pulls(
        last[:, :, None], problem=TWO_ARMS, policies={"p": {}, "q": {}}, times=[10], seed=1,
        provenance={}, stops=stops,
    )  # fmt: skip


def test_the_summary_by_hand() -> None:
    result = stopped_by_hand()
    stops = result.stops.sel(policy="p")
    assert stops["reports"].values.tolist() == [4, 4, 10, 5]
    assert stops["winner"].values.tolist() == ["good", "bad", "", "good"]
    assert stops["lost"].values.tolist() == [0.25, 0.5, 1, 0.25]
    assert stops["wrong"].values.tolist() == [False, True, False, False]
    summary = result.stopping_summary().loc["p"]
    assert summary["mean"] == 5.75
    assert summary["standard_error"] == pytest.approx(np.std([4, 4, 10, 5], ddof=1) / 2)
    assert summary["median"] == 5
    assert math.isinf(summary["q95"])
    assert summary[["never", "wrong", "lost"]].tolist() == [0.25, 0.25, 0.5]
    low, high = clopper_pearson([1], 4)
    assert summary[["wrong_lower", "wrong_upper"]].tolist() == [low[0], high[0]]
    paired = result.compare_stops("p").loc["q"]
    assert paired["difference"] == np.mean([-2, 6, -7, 0])
    assert paired["conclusion"] == "not separated"
    assert result.dataset.sizes["replicate"] == 4


def test_the_figure_shows_the_share_with_a_certificate() -> None:
    axes = stopped_by_hand().plot_stops()
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert lines["p"].tolist() == [[0, 0], [4, 0.25], [4, 0.5], [5, 0.75], [10, 0.75]]  # type: ignore[union-attr]  # it has data
    assert {text.get_text() for text in axes.texts} == {"p", "q"}


def test_policies_are_compared_on_the_same_reports(reference: Result) -> None:
    rows = reference.compare_stops("TopTwo-CF")
    means = reference.stopping_summary()["mean"]
    assert rows.loc["UCB1", "difference"] == pytest.approx(means["UCB1"] - means["TopTwo-CF"])
    with pytest.raises(InvalidInput, match="one of two policies or more"):
        reference.compare_stops("nobody")


def test_one_replicate_has_a_summary_without_spread() -> None:
    one = simulate(PROBLEM, [UCB1()], **SETTINGS | {"replicates": 1})
    summary = one.stopping_summary()
    assert "standard_error" not in summary
    assert summary["mean"].tolist() == one.stops["reports"].values.ravel().tolist()


def test_equal_arms_end_with_a_tolerance_only() -> None:
    equal = Problem([0.5, 0.5])
    settings = SETTINGS | {"replicates": 20}
    never = simulate(equal, [Turns()], **settings).stopping_summary()
    assert never["never"].item() == 1
    good_enough = settings | {"stop": Certificate(0.05, tolerance=0.3)}
    ended = simulate(equal, [Turns()], **good_enough).stopping_summary()
    assert ended["never"].item() == 0
    assert ended["wrong"].item() == 0


def test_of_two_best_arms_neither_may_be_certified() -> None:
    gaps = np.array([[0.0, 0.0, 0.1], [0.2, 0.0, 0.1]])
    assert wrong_winners(gaps, 0).tolist() == [[True, True, True], [True, False, True]]
    assert wrong_winners(gaps, 0.15).tolist() == [[False] * 3, [True, False, False]]


def test_a_saved_result_is_the_same_again(reference: Result, tmp_path: Path) -> None:
    problems = [Problem([0.9, 0.4], RandomizedResponse.from_epsilon(e)) for e in (1, 3)]
    stop = Certificate(0.1, tolerance=0.01, expect=Expect(rate=0.5, difference=0.2))
    swept = simulate_many(
        [(problem, [UCB1()]) for problem in problems], coordinate="reports to come",
        values=[1, 3], **SETTINGS | {"stop": stop},
    )  # fmt: skip
    for result in (reference, swept, stopped_by_hand()):
        result.save(tmp_path / "result.nc")
        loaded = Result.load(tmp_path / "result.nc")
        assert loaded == result
        assert loaded.stop == result.stop
        assert loaded.stops.equals(result.stops)
    assert loaded != two_arms(walks(1, 3, 20, [4, 16, 64]))


def test_what_is_no_stop_is_refused_before_any_work(tmp_path: Path) -> None:
    for changes, message in (
        ({"stop": 0.05}, r"stop=0.05: give a Certificate, such as"),
        ({"problem": Problem([0.5])}, "two arms or more"),
        ({"policies": [DPUCBInt()]}, "DP-UCB-INT keeps more than counts of feedback"),
        ({"policies": {"mine": TS(feedback="wrapped")}}, "mine keeps more than counts"),
    ):
        given: dict[str, Any] = {"problem": PROBLEM, "policies": [UCB1()], "store": tmp_path / "s"}
        with pytest.raises(InvalidInput, match=message):
            simulate(**given | SETTINGS | changes)
    assert not (tmp_path / "s").exists()


def test_a_result_without_stops_says_so() -> None:
    result = two_arms(walks(1, 3, 20, [4, 16, 64]))
    assert result.stop is None
    for ask in (lambda: result.stops, result.stopping_summary, result.plot_stops):
        with pytest.raises(InvalidInput, match=r"simulate with stop=Certificate\(\)"):
            ask()


def test_results_with_and_without_stops_do_not_stack() -> None:
    stopped = stopped_by_hand()
    plain = Result.from_pulls(
        stopped.pulls.values, problem=TWO_ARMS, policies={"p": {}, "q": {}}, times=[10], seed=1,
        provenance={},
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="others stop at"):
        Result.stack([stopped, plain], "x", [1, 2])
    with pytest.raises(InvalidInput, match="coordinate='lost'"):
        Result.stack([stopped, stopped], "lost", [1, 2])
    assert Result.stack([plain, plain], "lost", [1, 2]).coordinate == "lost"


@pytest.mark.parametrize(
    ("reports", "winner"),
    [
        ([[3, 1]], [1]),  # the pulls after the stop are the other arm's
        ([[3, 1]], [-1]),  # nobody won, and there are fewer reports than steps
        ([[3, 1]], [2]),
        ([[3, 1]], [-2]),
        ([[12, 1]], [0]),
        ([[-1, 1]], [0]),
        ([[9, 2]], [0]),
    ],
)
def test_stops_that_cannot_be_are_seen(reports: list[list[int]], winner: list[int]) -> None:
    last = np.array([[9, 1]])
    assert are_sound(last, np.array([[3, 1]]), np.array([0]))
    assert are_sound(last, last, np.array([-1]))
    assert not are_sound(last, np.array(reports), np.array(winner))


class Last:
    """The last arm, always: it never tries another, so that nothing can be certified."""

    def choose(
        self, pulls: Array, successes: Array, channels: Sequence[Channel], t: int, words: Array
    ) -> int:
        return len(pulls) - 1


def test_arms_that_nobody_tried_are_not_beaten() -> None:
    result = simulate(PROBLEM, [Last()], **SETTINGS | {"replicates": 2})
    assert result.stopping_summary()["never"].item() == 1
    assert result.stops["lost"].values.ravel().tolist() == pytest.approx([0.4 * 2000] * 2)
