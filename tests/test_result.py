"""Results: numbers checked by hand and against scipy, coverage, files, pictures, refusals."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path as Path2D
from matplotlib.text import Text
from numpy.typing import NDArray
from scipy import stats

from whitelie import IDENTITY, InvalidInput, Monotone, Problem, RandomizedResponse, bands, figure
from whitelie import archive as module
from whitelie.bounds import lower_bound, randomized_response_bound
from whitelie.result import Result

NOISY = RandomizedResponse(p00=0.75, p11=0.75)
TABLE = Monotone.from_points([(0, 0.2), (0.5, 0.3), (1, 0.9)])
PROBLEM = Problem({"good": 0.75, "bad": 0.5}, NOISY)
TIMES = [4, 16, 64]
NAMES = ("kl-UCB-CF", "TS-CF", "mine")
Bands = Literal["pointwise", "simultaneous"]


def two_arms(bad: Any, times: Any = TIMES, names: Any = NAMES, **changes: Any) -> Result:
    """A result on PROBLEM from pulls of its bad arm: (policy, replicate, time), gap 1/4."""
    second = np.asarray(bad)
    pulls = np.stack([np.asarray(times) - second, second], axis=-1)
    fixed: dict[str, Any] = {"problem": PROBLEM, "seed": 7, "provenance": {"whitelie": "0.1.0"}}
    policies = {name: {"name": name} for name in names}
    return Result.from_pulls(pulls, times=times, **{"policies": policies, **fixed, **changes})


def walks(seed: int, curves: int, replicates: int, times: list[int]) -> NDArray[np.int64]:
    """Numbers of bad pulls that are chosen by a coin of 0.3 at every step: mean 0.3·t."""
    steps = np.diff([0, *times])
    rng = np.random.default_rng(seed)
    return rng.binomial(steps, 0.3, size=(curves, replicates, len(times))).cumsum(axis=-1)


@pytest.fixture
def found() -> Result:
    return two_arms(walks(1, 3, 20, TIMES))


@pytest.fixture
def swept() -> Result:
    cells = [
        two_arms(walks(n, 3, 20, TIMES), problem=Problem({"good": 0.75, "bad": mean}, NOISY))
        for n, mean in enumerate((0.5, 0.25, 0.125))
    ]
    return Result.stack(cells, "epsilon", [4.0, 0.25, 1.0])


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


def test_summary_agrees_with_scipy(found: Result) -> None:
    summary: Any = found.summary(at=16)
    assert list(summary.index) == list(NAMES)
    for name in NAMES:
        regret = found.regret.sel(policy=name, time=16).values
        row = summary.loc[name]
        assert row["mean"] == pytest.approx(regret.mean())
        assert row["standard_error"] == pytest.approx(stats.sem(regret))
        ends = stats.t.interval(0.95, 19, loc=regret.mean(), scale=stats.sem(regret))
        assert (row["lower"], row["upper"]) == pytest.approx(ends)
        quantiles = np.quantile(regret, [0.05, 0.5, 0.95])
        assert row[["q05", "median", "q95"]].tolist() == pytest.approx(quantiles)
        assert row["best_share"] == pytest.approx(1 - 4 * regret.mean() / 16)
    assert found.summary().equals(found.summary(at=64))
    assert not found.summary().equals(summary)


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
    error = np.sqrt(0.95 * 0.05 / bands.DRAWS) / (2 * stats.t.pdf(exact, 5))
    found = bands.multiplier_quantile(matrix, level=0.95, seed=1)
    assert abs(found - exact) < 3.9 * error < exact - stats.norm.ppf(0.975)


def test_simultaneous_is_never_narrower_than_pointwise() -> None:
    single = two_arms(walks(4, 20, 8, [64]), [64], [f"p{n}" for n in range(20)])
    pointwise, together = single.bands(), single.bands(simultaneous=True)
    assert (together["lower"] <= pointwise["lower"]).all()
    assert (together["upper"] >= pointwise["upper"]).all()


def test_the_bootstrap_is_repeatable_in_any_blocks(
    found: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found.bands(simultaneous=True)
    assert not first.equals(found.bands(simultaneous=True, seed=1))
    monkeypatch.setattr(bands, "BLOCK", 700)
    xr.testing.assert_allclose(first, found.bands(simultaneous=True), rtol=1e-12)


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


def test_stack_refuses_what_does_not_fit(found: Result, swept: Result) -> None:
    other = two_arms(walks(1, 3, 20, TIMES), names=("kl-UCB-CF", "TS-CF", "yours"))
    cases: list[tuple[list[Result], str, list[Any], str]] = [
        ([found, other], "epsilon", [1, 2], "results"),
        ([found, two_arms(walks(1, 3, 19, TIMES))], "epsilon", [1, 2], "results"),
        ([swept], "delta", [1], "results"),
        ([found, found], "epsilon", [1], "values"),
        ([found], "epsilon", [1, 2], "values"),
        ([found, found], "epsilon", [1, 1], "values"),
        ([found], "epsilon", [float("nan")], "values"),
        ([], "epsilon", [], "values"),
        ([found], "time", [1], "coordinate"),
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


def test_questions_that_have_no_answer(found: Result) -> None:
    asks: list[tuple[Callable[[], object], str]] = [
        (lambda: found.summary(at=17), "at"),
        (lambda: found.summary(at=True), "at"),
        (lambda: found.compare("UCB1"), "baseline"),
        (lambda: two_arms(walks(1, 1, 5, TIMES), names=["a"]).compare("a"), "baseline"),
        (lambda: found.bands(level=95), "level"),
        (lambda: found.bands(simultaneous=True, seed=-1), "seed"),
        (lambda: found.plot(time="weekly"), "time"),  # type: ignore[arg-type]
        (lambda: found.plot(bands="wide"), "bands"),  # type: ignore[arg-type]
        (lambda: found.plot(bounds="upper"), "bounds"),  # type: ignore[arg-type]
    ]
    for ask, field in asks:
        with pytest.raises(InvalidInput) as refusal:
            ask()
        assert refusal.value.field == field
    assert found.summary(at=1.6e1).equals(found.summary(at=16))


def test_to_dataframe_has_a_row_per_checkpoint(found: Result, swept: Result) -> None:
    frame = found.to_dataframe()
    columns = ["policy", "replicate", "time", "regret", "pulls_good", "pulls_bad"]
    assert list(frame.columns) == columns
    assert len(frame) == 3 * 20 * 3
    assert (frame["regret"] == frame["pulls_bad"] / 4).all()
    assert (frame["pulls_good"] + frame["pulls_bad"] == frame["time"]).all()
    assert list(swept.to_dataframe().columns) == ["epsilon", *columns]


def test_saved_and_loaded_is_the_same(tmp_path: Path, found: Result, swept: Result) -> None:
    odd = Problem({("a", 1): 0.75, 2: 0.5}, [TABLE, RandomizedResponse.from_epsilon(1)])
    provenance = {"versions": {"numpy": "2"}, "Δ": [0.1, None, True]}
    strange = two_arms(walks(1, 3, 5, TIMES), problem=odd, provenance=provenance)
    for number, result in enumerate((found, swept, strange)):
        path = tmp_path / f"{number}.nc"
        result.save(path)
        loaded = Result.load(str(path))
        assert loaded == result
        assert hash(loaded) == hash(result)
        assert loaded.cells == result.cells
        assert loaded.pulls.dtype == np.int32
        assert loaded.summary().equals(result.summary())
    assert loaded.problem == Problem({"('a', 1)": 0.75, 2: 0.5}, odd.channels)
    assert loaded.provenance == provenance
    assert loaded.cells[0].policies["mine"] == {"name": "mine"}
    assert found != two_arms(walks(1, 3, 20, TIMES), seed=8)
    with xr.open_dataset(tmp_path / "0.nc", engine="h5netcdf") as foreign_reader:
        assert foreign_reader["pulls"].equals(found.pulls)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as refusal:
        act()
    assert refusal.value.field == "path"
    return refusal.value.reason


def test_damaged_and_foreign_files_are_refused(tmp_path: Path, found: Result) -> None:
    path, other = tmp_path / "result.nc", tmp_path / "other.nc"
    found.save(path)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 41, len(whole) - 1):
        other.write_bytes(whole[:length])
        assert "cut short" in refused(lambda: Result.load(other))
    for place in range(0, len(whole) - 40, 1111):
        other.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "damaged" in refused(lambda: Result.load(other))
    found.dataset.to_netcdf(other, engine="h5netcdf")
    assert "something else wrote it" in refused(lambda: Result.load(other))
    assert "cannot be read" in refused(lambda: Result.load(tmp_path / "nowhere.nc"))
    assert "cannot be read" in refused(lambda: Result.load(tmp_path))


def test_a_newer_file_asks_for_an_upgrade(
    tmp_path: Path, found: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as future:
        future.setattr(module, "FORMAT", module.FORMAT + 1)
        two_arms(walks(1, 3, 20, TIMES)).save(tmp_path / "new.nc")
    assert "upgrade" in refused(lambda: Result.load(tmp_path / "new.nc"))


def test_only_results_are_overwritten(tmp_path: Path, found: Result) -> None:
    path, foreign = tmp_path / "result.nc", tmp_path / "thesis.tex"
    two_arms(walks(9, 3, 5, TIMES)).save(path)
    found.save(path)
    assert Result.load(path) == found
    foreign.write_text("years of work")
    (tmp_path / "empty").touch()
    for taken in (foreign, tmp_path / "empty", tmp_path):
        assert "choose a name that is free" in refused(lambda taken=taken: found.save(taken))  # type: ignore[misc]
    assert foreign.read_text() == "years of work"
    for hopeless in (tmp_path / "nowhere" / "a.nc", foreign / "a.nc"):
        assert "written" in refused(lambda path=hopeless: found.save(path))  # type: ignore[misc]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "empty",
        "result.nc",
        "thesis.tex",
    ]


@pytest.mark.parametrize(("place", "step"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_save_leaves_the_old_file(
    tmp_path: Path, found: Result, monkeypatch: pytest.MonkeyPatch, place: Any, step: str
) -> None:
    path = tmp_path / "result.nc"
    found.save(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, step, full)
    assert "No space left" in refused(lambda: two_arms(walks(9, 3, 5, TIMES)).save(path))
    assert Result.load(path) == found
    assert list(tmp_path.iterdir()) == [path]


def ends_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def heights(shape: Line2D | Path2D) -> NDArray[np.float64]:
    if isinstance(shape, Line2D):
        return np.asarray(shape.get_ydata(), dtype=float)
    return np.asarray(shape.vertices, dtype=float)[:, 1]


def test_plot_draws_curves_bounds_and_names() -> None:
    clear = Problem({"good": 0.75, "bad": 0.5})
    found = two_arms(walks(1, 3, 20, TIMES), problem=clear)
    axes = found.plot()
    curves = {str(line.get_label()): line for line in axes.lines}
    assert list(curves) == [*NAMES, "Theorem 1 (lower bound)"] == ends_of(axes)
    mean = found.regret.mean("replicate")
    for name in NAMES:
        np.testing.assert_allclose(heights(curves[name]), mean.sel(policy=name).values)
    bound = curves["Theorem 1 (lower bound)"]
    np.testing.assert_allclose(heights(bound), lower_bound(clear, np.array(TIMES)))
    assert bound.is_dashed()
    assert not curves["TS-CF"].is_dashed()
    assert axes.get_xscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "regret")
    assert "20 replicates, pointwise 95 %" in axes.get_title(loc="left")


def test_plot_draws_what_is_asked_for(found: Result) -> None:
    own = Figure().add_subplot()
    assert found.plot(own, time="linear", bands=None, bounds=False) is own
    assert own.get_xscale() == "linear"
    assert (len(own.lines), len(own.collections)) == (3, 0)
    both = found.plot(bands="simultaneous", bounds="both")
    assert (len(both.lines), len(both.collections)) == (5, 3)
    expected = randomized_response_bound(PROBLEM, np.array(TIMES), form="tight")
    np.testing.assert_allclose(heights(both.lines[-1]), expected)
    tabulated = two_arms(walks(1, 3, 5, TIMES), problem=Problem({"good": 0.75, "bad": 0.5}, TABLE))
    assert len(tabulated.plot().lines) == 4
    with pytest.raises(InvalidInput, match="randomised response"):
        tabulated.plot(bounds="both")


def test_bands_of_a_long_curve_are_filled() -> None:
    times = list(range(10, 510, 10))
    result = two_arms(walks(1, 1, 20, times), times, ["TS-CF"])
    for kind in get_args(Bands):
        (filled,) = result.plot(bands=kind).collections
        band = result.bands(simultaneous=kind == "simultaneous").sel(policy="TS-CF")
        corners = heights(filled.get_paths()[0])
        assert np.isin(band["lower"].values, corners).all()
        assert np.isin(band["upper"].values, corners).all()


def test_a_bound_far_above_leaves_the_picture() -> None:
    hard = Problem({"good": 0.75, "bad": 0.5}, RandomizedResponse.from_epsilon(0.1))
    axes = two_arms(walks(1, 3, 20, TIMES), problem=hard).plot()
    assert axes.get_ylim()[1] < 2 * 0.25 * 64 < lower_bound(hard, 64)
    assert ends_of(axes)[-1] == "Theorem 1 (lower bound) ↑"


def test_names_do_not_overlap() -> None:
    names = [*figure.KNOWN, "mine", "yours"]
    axes = two_arms(walks(1, len(names), 20, TIMES), names=names).plot(bounds="both")
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without its leader
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == 16
    for below, above in pairwise(boxes):
        assert below.y1 <= above.y0 + 2  # descenders may come near
    assert all(box.x0 > axes.bbox.x1 for box in boxes)
    assert boxes[-1].x1 < axes.figure.bbox.x1


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.floats(0.5, 10))
def test_spread_keeps_order_and_distance(targets: list[float], distance: float) -> None:
    wanted = np.array(targets)
    places = figure.spread(wanted, distance, 0, 100)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(places[order]) >= distance - 1e-9).all()
    assert places.min() >= 0
    assert places.max() <= 100 + 1e-9
    if (np.diff(wanted[order]) > distance).all():
        np.testing.assert_allclose(places, wanted, atol=1e-9)


def test_every_policy_has_its_own_look_everywhere() -> None:
    in_grey = [(look.dash, look.marker) for look in (*figure.KNOWN.values(), *figure.OTHERS)]
    assert len(set(in_grey)) == len(in_grey)
    alone, crowd = figure.looks(["TS-CF"]), figure.looks(["mine", "UCB1", "yours", "TS-CF"])
    assert alone["TS-CF"] == crowd["TS-CF"]
    assert len(set(crowd.values())) == 4


def test_a_sweep_is_drawn_against_its_parameter(swept: Result) -> None:
    axes = swept.plot(bounds="both")
    assert axes.get_xscale() == "log"  # 0.25 to 4
    assert axes.get_xlabel() == "epsilon"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "0.25", "1"]
    ordered = swept.regret.isel(time=-1).sel(epsilon=[0.25, 1, 4]).mean("replicate")
    for line, name in zip(axes.lines, NAMES, strict=False):
        assert np.asarray(line.get_xdata()).tolist() == [0.25, 1, 4]
        np.testing.assert_allclose(heights(line), ordered.sel(policy=name).values)
    bounds = [lower_bound(swept.problems[cell], 64) for cell in (1, 2, 0)]
    np.testing.assert_allclose(heights(axes.lines[3]), np.array(bounds))
    narrow, wide = (
        heights(swept.plot(bands=kind).collections[0].get_paths()[0]) for kind in get_args(Bands)
    )
    summary: Any = swept.summary()
    row = summary.loc[(0.25, "kl-UCB-CF")]
    assert narrow.tolist() == pytest.approx([row["lower"], row["upper"]])
    assert np.ptp(wide) > np.ptp(narrow)


def test_values_that_are_no_points_on_a_line_stand_side_by_side(found: Result) -> None:
    for values, shown in (([1.0, np.inf], ["1", "∞"]), (["low", "high"], ["low", "high"])):
        axes = Result.stack([found, found], "epsilon", values).plot()
        assert [text.get_text() for text in axes.get_xticklabels()] == shown
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 1]


def test_a_problem_without_gaps_can_be_drawn() -> None:
    equal = Problem({"good": 0.5, "bad": 0.5}, NOISY)
    axes = two_arms(walks(1, 3, 5, TIMES), problem=equal).plot(bounds="both")
    assert ends_of(axes) == list(NAMES)


def test_representations_tell_what_is_there(found: Result, swept: Result) -> None:
    assert "3 policies × 20 replicates × 3 times, 2 arms" in repr(found)
    assert f"{found.summary()['mean']['mine']:.4f}" in repr(found)
    assert "3 values of epsilon" in repr(swept)
    assert "regret" in found._repr_html_()


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import whitelie.result", ("matplotlib", "scipy", "numba")),
        ("from test_result import *; two_arms(walks(1, 3, 5, TIMES)).plot()", ("pyplot",)),
    ],
)
def test_nothing_is_imported_before_it_is_needed(code: str, absent: tuple[str, ...]) -> None:
    asked = f"{code}; import sys; print(*sys.modules)"
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", asked], check=True, capture_output=True, text=True, cwd=folder
    )
    loaded = {name.rpartition("matplotlib.")[2] for name in done.stdout.split()}
    assert "whitelie.result" in loaded
    assert loaded.isdisjoint(absent)
