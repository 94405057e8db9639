"""Results: numbers checked by hand and against scipy, coverage, refusals."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from helpers.result_cases import NAMES, NOISY, PROBLEM, TABLE, TIMES, two_arms, walks
from whitelie import IDENTITY, InvalidInput, Problem
from whitelie.simulation import intervals
from whitelie.simulation.result import Result

Bands = Literal["pointwise", "simultaneous"]


def test_regret_is_gaps_times_pulls() -> None:
    problem = Problem([0.5, 1.0, 0.75], [NOISY, TABLE, IDENTITY])
    pulls = [[[[1, 1, 1], [4, 10, 2]]], [[[3, 0, 0], [0, 0, 16]]]]
    result = Result.from_pulls(
        pulls, problem=problem, policies={"a": {}, "b": {}}, times=[3, 16], seed=0, provenance={}
    )
    assert result.regret.dims == ("policy", "replicate", "time")
    assert result.regret.values.tolist() == [[[0.75, 2.5]], [[1.5, 4.0]]]
    assert result.regret.sel(policy="b", replicate=0, time=16) == 4.0
    assert result.pulls.dtype == np.int32
    assert result.pulls.sel(arm="1", time=16).values.tolist() == [[10], [0]]
    assert (result.policies, result.horizon, result.replicates) == (("a", "b"), 16, 1)


def test_equal_costs_give_equal_regret() -> None:
    gap = 0.9 - 0.8
    assert 4 * gap + 7 * gap + 2 * gap != 13 * gap  # summed arm by arm, they would not
    result = Result.from_pulls(
        [[[[7, 4, 7, 2]], [[7, 13, 0, 0]]]],
        problem=Problem([0.9, 0.8, 0.8, 0.8]),
        policies={"a": {}},
        times=[20],
        seed=0,
        provenance={},
    )
    assert result.regret.values.tolist() == [[[13 * gap], [13 * gap]]]


def test_summary_agrees_with_scipy(small_result: Result) -> None:
    summary: Any = small_result.summary(at=16)
    assert list(summary.index) == list(NAMES)
    for name in NAMES:
        regret = small_result.regret.sel(policy=name, time=16).values
        row = summary.loc[name]
        assert row["mean"] == pytest.approx(regret.mean())
        assert row["standard_error"] == pytest.approx(stats.sem(regret))
        ends = stats.t.interval(0.95, 19, loc=regret.mean(), scale=stats.sem(regret))
        assert (row["lower"], row["upper"]) == pytest.approx(ends)
        quantiles = np.quantile(regret, [0.05, 0.5, 0.95])
        assert row[["q05", "median", "q95"]].tolist() == pytest.approx(quantiles)
        assert row["best_share"] == pytest.approx(1 - 4 * regret.mean() / 16)
    assert small_result.summary().equals(small_result.summary(at=64))
    assert not small_result.summary().equals(summary)


def test_shares_of_several_best_arms_add_up() -> None:
    problem = Problem([0.75, 0.5, 0.75])
    result = Result.from_pulls(
        [[[[5, 4, 1]]]], problem=problem, policies={"a": {}}, times=[10], seed=0, provenance={}
    )
    assert result.summary().loc["a"].to_dict() == {"mean": 1.0, "best_share": 0.6}


def test_one_replicate_has_a_mean_and_no_interval() -> None:
    alone = two_arms(walks(1, 3, 1, TIMES))
    assert list(alone.summary().columns) == ["mean", "best_share"]
    assert "kl-UCB-CF" in repr(alone)
    assert len(alone.plot(bands=None, bounds=False).lines) == 3
    for ask in (lambda: alone.compare("mine"), alone.bands, alone.plot):
        with pytest.raises(InvalidInput, match="two replicates") as refusal:
            ask()
        assert refusal.value.field == "replicates"


def test_compare_says_no_more_than_the_interval() -> None:
    rng = np.random.default_rng(3)
    base = rng.integers(20, 40, size=30)
    noise = rng.integers(-9, 10, size=30)
    assert noise.sum() != 0  # so that one of its two signs goes each way, and neither far
    bad = [base, base - rng.integers(0, 3, size=30), base + 9, base + noise, base - noise]
    names = ("base", "less", "more", "noisy", "mirrored", "alike")
    compared: Any = two_arms(np.array([*bad, base])[:, :, None], [64], names).compare("base")
    assert compared["conclusion"].to_dict() == {
        "less": "lower",
        "more": "higher",
        "noisy": "not separated",
        "mirrored": "not separated",
        "alike": "not separated",
    }
    columns = ["difference", "standard_error", "lower", "upper"]
    assert compared.loc["alike", columns].tolist() == [0, 0, 0, 0]
    assert compared.loc["more", columns].tolist() == [9 / 4, 0, 9 / 4, 9 / 4]
    paired = (bad[1] - base) / 4
    ends = stats.t.interval(1 - 0.05 / 5, 29, loc=paired.mean(), scale=stats.sem(paired))
    assert compared.loc["less", ["lower", "upper"]].tolist() == pytest.approx(ends)


def test_comparisons_of_a_sweep_hold_together(swept: Result) -> None:
    compared: Any = swept.compare("mine")
    regret = swept.regret.sel(time=64, epsilon=0.25)
    paired = (regret.sel(policy="TS-CF") - regret.sel(policy="mine")).values
    ends = stats.t.interval(1 - 0.05 / 6, 19, loc=paired.mean(), scale=stats.sem(paired))
    assert compared.loc[(0.25, "TS-CF"), ["lower", "upper"]].tolist() == pytest.approx(ends)
    assert len(compared) == 6


@pytest.mark.parametrize("simultaneous", [False, True])
def test_bands_have_no_width_where_all_replicates_agree(simultaneous: bool) -> None:
    problem = Problem({"good": 0.9, "bad": 0.6})
    bad = walks(2, 1, 30, [3, 9, 27, 81])
    bad[:, :, :2] = [1, 6]
    result = two_arms(bad, [3, 9, 27, 81], ["a"], problem=problem)
    assert np.mean(result.regret.values[0, :, 1]) != result.regret.values[0, 0, 1]  # rounding
    band = result.bands(simultaneous=simultaneous).sel(policy="a")
    for end in ("mean", "lower", "upper"):
        assert band[end].values[:2].tolist() == result.regret.values[0, 0, :2].tolist()
    assert (band["lower"] < band["mean"]).values.tolist() == [False, False, True, True]
    assert (band["upper"] > band["mean"]).values.tolist() == [False, False, True, True]
    constant = two_arms(bad[:, :, :2], [3, 9], ["a"]).bands(simultaneous=simultaneous)
    assert constant["lower"].equals(constant["upper"])


def test_bands_cover_as_often_as_they_say() -> None:
    curves, times = 800, np.unique(np.geomspace(40, 20_000, 15).astype(int)).tolist()
    result = two_arms(walks(5, curves, 100, times), times, [f"p{n}" for n in range(curves)])
    truth = xr.DataArray(0.25 * 0.3 * np.array(times), dims="time")
    pointwise, together = result.bands(), result.bands(simultaneous=True)

    def covers(band: xr.Dataset) -> xr.DataArray:
        return (band["lower"] <= truth) & (truth <= band["upper"])

    tolerance = 3.9 * np.sqrt(0.95 * 0.05 / curves)  # one false alarm in 10^4
    assert abs(float(covers(pointwise).isel(time=-1).mean()) - 0.95) < tolerance
    assert abs(float(covers(together).all("time").mean()) - 0.95) < tolerance
    assert float(covers(pointwise).all("time").mean()) < 0.85  # the negative control


def test_multipliers_have_students_tails() -> None:
    """At a single time the studentised mean follows Student's law, which is not the normal one."""
    matrix = np.array([[1.0], [3.0], [2.0], [7.0], [5.0], [6.0]])
    exact = stats.t.ppf(0.975, 5)
    error = np.sqrt(0.95 * 0.05 / intervals.BOOTSTRAP_DRAWS) / (2 * stats.t.pdf(exact, 5))
    quantile = intervals.multiplier_quantile(matrix, level=0.95, seed=1)
    assert abs(quantile - exact) < 3.9 * error < exact - stats.norm.ppf(0.975)


def test_simultaneous_is_never_narrower_than_pointwise() -> None:
    single = two_arms(walks(4, 20, 8, [64]), [64], [f"p{n}" for n in range(20)])
    pointwise, together = single.bands(), single.bands(simultaneous=True)
    assert (together["lower"] <= pointwise["lower"]).all()
    assert (together["upper"] >= pointwise["upper"]).all()


def test_the_bootstrap_is_repeatable_in_any_blocks(
    small_result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small_result.bands(simultaneous=True)
    assert not first.equals(small_result.bands(simultaneous=True, seed=1))
    monkeypatch.setattr(intervals, "MOST_MULTIPLIERS", 700)
    xr.testing.assert_allclose(first, small_result.bands(simultaneous=True), rtol=1e-12)


def test_stack_keeps_every_cell(swept: Result) -> None:
    assert swept.coordinate == "epsilon"
    assert swept.regret.dims == ("epsilon", "policy", "replicate", "time")
    middle = walks(1, 3, 20, TIMES)
    np.testing.assert_array_equal(swept.regret.sel(epsilon=0.25).values, 0.5 * middle)
    assert swept.summary().loc[(0.25, "mine"), "mean"] == 0.5 * middle[2, :, -1].mean()
    assert [problem.means[1] for problem in swept.problems] == [0.5, 0.25, 0.125]
    assert (swept.seed, swept.provenance) == (7, {"whitelie": "0.1.0"})
    with pytest.raises(InvalidInput, match="cells"):
        swept.problem  # noqa: B018 (reading it is what is refused)


def test_stack_refuses_what_does_not_fit(small_result: Result, swept: Result) -> None:
    other = two_arms(walks(1, 3, 20, TIMES), names=("kl-UCB-CF", "TS-CF", "yours"))
    cases: list[tuple[list[Result], str, list[Any], str]] = [
        ([small_result, other], "epsilon", [1, 2], "results"),
        ([small_result, two_arms(walks(1, 3, 19, TIMES))], "epsilon", [1, 2], "results"),
        ([swept], "delta", [1], "results"),
        ([small_result, small_result], "epsilon", [1], "values"),
        ([small_result], "epsilon", [1, 2], "values"),
        ([small_result, small_result], "epsilon", [1, 1], "values"),
        ([small_result], "epsilon", [float("nan")], "values"),
        ([], "epsilon", [], "values"),
        ([small_result], "time", [1], "coordinate"),
    ]
    for results, coordinate, values, field in cases:
        with pytest.raises(InvalidInput) as refusal:
            Result.stack(results, coordinate, values)
        assert refusal.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bad": walks(1, 2, 5, TIMES)}, "pulls"),
        ({"bad": walks(1, 3, 5, TIMES)[0]}, "pulls"),
        ({"bad": walks(1, 3, 0, TIMES)}, "pulls"),
        ({"bad": walks(1, 3, 5, TIMES) + 0.5}, "pulls"),
        ({"bad": walks(1, 3, 5, TIMES) - 64}, "pulls"),
        ({"times": [4, 16, 16]}, "times"),
        ({"times": [0, 16, 64]}, "times"),
        ({"times": [4, 16, 2**31]}, "times"),
        ({"times": [4.0, 16.0, 64.0]}, "times"),
        ({"problem": "main"}, "problem"),
        ({"problem": Problem({1: 0.5, "1": 0.25})}, "problem"),
        ({"policies": {}}, "policies"),
        ({"policies": {1: {}, 2: {}, 3: {}}}, "policies"),
        ({"policies": {"a": {"c": object()}, "b": {}, "c": {}}}, "policies['a']"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"provenance": {"created": object()}}, "provenance"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        two_arms(**{"bad": walks(1, 3, 5, TIMES), **changes})
    assert refusal.value.field == field


def test_pulls_must_sum_to_the_time() -> None:
    with pytest.raises(InvalidInput, match="sum to t"):
        Result.from_pulls(
            [[[[1, 2]]]], problem=PROBLEM, policies={"a": {}}, times=[4], seed=0, provenance={}
        )


def test_bad_arguments_of_methods_are_refused(small_result: Result) -> None:
    asks: list[tuple[Callable[[], object], str]] = [
        (lambda: small_result.summary(at=17), "at"),
        (lambda: small_result.summary(at=True), "at"),
        (lambda: small_result.compare("UCB1"), "baseline"),
        (lambda: two_arms(walks(1, 1, 5, TIMES), names=["a"]).compare("a"), "baseline"),
        (lambda: small_result.bands(level=95), "level"),
        (lambda: small_result.bands(simultaneous=True, seed=-1), "seed"),
        (lambda: small_result.plot(time="weekly"), "time"),  # type: ignore[arg-type]  # it is refused
        (lambda: small_result.plot(bands="wide"), "bands"),  # type: ignore[arg-type]  # it is refused
        (lambda: small_result.plot(bounds="upper"), "bounds"),  # type: ignore[arg-type]  # it is refused
    ]
    for ask, field in asks:
        with pytest.raises(InvalidInput) as refusal:
            ask()
        assert refusal.value.field == field
    assert small_result.summary(at=1.6e1).equals(small_result.summary(at=16))


def test_to_dataframe_has_a_row_per_checkpoint(small_result: Result, swept: Result) -> None:
    frame = small_result.to_dataframe()
    columns = ["policy", "replicate", "time", "regret", "pulls_good", "pulls_bad"]
    assert list(frame.columns) == columns
    assert len(frame) == 3 * 20 * 3
    assert (frame["regret"] == frame["pulls_bad"] / 4).all()
    assert (frame["pulls_good"] + frame["pulls_bad"] == frame["time"]).all()
    assert list(swept.to_dataframe().columns) == ["epsilon", *columns]


def test_representations_tell_what_is_there(small_result: Result, swept: Result) -> None:
    assert "3 policies × 20 replicates × 3 times, 2 arms" in repr(small_result)
    assert f"{small_result.summary()['mean']['mine']:.4f}" in repr(small_result)
    assert "3 values of epsilon" in repr(swept)
    assert "regret" in small_result._repr_html_()


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import whitelie.simulation.result", ("matplotlib", "scipy", "numba")),
        (
            "from simulation.test_result import *; two_arms(walks(1, 3, 5, TIMES)).plot()",
            ("pyplot",),
        ),
    ],
)
def test_nothing_is_imported_before_it_is_needed(code: str, absent: tuple[str, ...]) -> None:
    asked = f"{code}; import sys; print(*sys.modules)"
    folder = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", asked], check=True, capture_output=True, text=True, cwd=folder
    )
    loaded = {name.rpartition("matplotlib.")[2] for name in done.stdout.split()}
    assert "whitelie.simulation.result" in loaded
    assert loaded.isdisjoint(absent)
