"""Figures: what is asked for is drawn, named and told apart."""

from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path as Path2D
from matplotlib.text import Text
from numpy.typing import NDArray

from helpers.result_cases import NAMES, NOISY, PROBLEM, TABLE, TIMES, two_arms, walks
from whitelie import InvalidInput, Problem, RandomizedResponse
from whitelie.bounds import lower_bound, randomized_response_bound
from whitelie.simulation import plot
from whitelie.simulation.result import Result

Bands = Literal["pointwise", "simultaneous"]


def ends_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def heights(shape: Line2D | Path2D) -> NDArray[np.float64]:
    if isinstance(shape, Line2D):
        return np.asarray(shape.get_ydata(), dtype=float)
    return np.asarray(shape.vertices, dtype=float)[:, 1]


def test_plot_draws_curves_bounds_and_names() -> None:
    clear = Problem({"good": 0.75, "bad": 0.5})
    noise_free = two_arms(walks(1, 3, 20, TIMES), problem=clear)
    axes = noise_free.plot()
    curves = {str(line.get_label()): line for line in axes.lines}
    assert list(curves) == [*NAMES, "Theorem 1 (lower bound)"] == ends_of(axes)
    mean = noise_free.regret.mean("replicate")
    for name in NAMES:
        np.testing.assert_allclose(heights(curves[name]), mean.sel(policy=name).values)
    bound = curves["Theorem 1 (lower bound)"]
    np.testing.assert_allclose(heights(bound), lower_bound(clear, np.array(TIMES)))
    assert bound.is_dashed()
    assert not curves["TS-CF"].is_dashed()
    assert axes.get_xscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "regret")
    assert "20 replicates, pointwise 95 %" in axes.get_title(loc="left")


def test_plot_draws_what_is_asked_for(small_result: Result) -> None:
    own = Figure().add_subplot()
    assert small_result.plot(own, time="linear", bands=None, bounds=False) is own
    assert own.get_xscale() == "linear"
    assert (len(own.lines), len(own.collections)) == (3, 0)
    both = small_result.plot(bands="simultaneous", bounds="both")
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


def test_a_bound_far_above_does_not_flatten_the_curves() -> None:
    hard = Problem({"good": 0.75, "bad": 0.5}, RandomizedResponse.from_epsilon(0.1))
    axes = two_arms(walks(1, 3, 20, TIMES), problem=hard).plot()
    assert axes.get_ylim()[1] < 2 * 0.25 * 64 < lower_bound(hard, 64)
    assert ends_of(axes)[-1] == "Theorem 1 (lower bound) ↑"


def test_names_do_not_overlap() -> None:
    names = [*plot.KNOWN, "mine", "yours"]
    axes = two_arms(walks(1, len(names), 20, TIMES), names=names).plot(bounds="both")
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # the axes lie on a figure
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without its leader
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == len(names) + 2
    for below, above in pairwise(boxes):
        assert below.y1 <= above.y0 + 2  # descenders may come near
    assert all(box.x0 > axes.bbox.x1 for box in boxes)
    assert boxes[-1].x1 < axes.figure.bbox.x1


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.floats(0.5, 10))
def test_spread_keeps_order_and_distance(targets: list[float], distance: float) -> None:
    wanted = np.array(targets)
    places = plot.spread(wanted, distance, 0, 100)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(places[order]) >= distance - 1e-9).all()
    assert places.min() >= 0
    assert places.max() <= 100 + 1e-9
    if (np.diff(wanted[order]) > distance).all():
        np.testing.assert_allclose(places, wanted, atol=1e-9)


def test_spread_heeds_unequal_sizes() -> None:
    places = plot.spread(np.array([5.0, 4.0, 40.0]), np.array([4.0, 2.0, 2.0]), 0, 50)
    assert places.tolist() == [6.0, 3.0, 40.0]


def test_regret_on_a_log_scale_begins_at_ten(small_result: Result) -> None:
    axes = small_result.plot(regret="log")
    assert axes.get_yscale() == "log"
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [16, 64]
    means = small_result.regret.mean("replicate").sel(time=[16, 64])
    assert 0 < axes.get_ylim()[0] < means.min()
    assert means.max() < axes.get_ylim()[1]
    short = two_arms(walks(1, 3, 5, [2, 4]), times=[2, 4]).plot(regret="log")
    assert np.asarray(short.lines[0].get_xdata()).tolist() == [4]
    with pytest.raises(InvalidInput, match="regret"):
        small_result.plot(regret="square")  # type: ignore[arg-type]  # it is refused


def test_regret_of_zero_fits_a_log_scale() -> None:
    equal = Problem({"good": 0.5, "bad": 0.5}, NOISY)
    axes = two_arms(walks(1, 3, 5, TIMES), problem=equal).plot(regret="log")
    assert 0 < axes.get_ylim()[0] < axes.get_ylim()[1]


def test_a_panel_draws_the_theory_and_the_names_it_is_given(small_result: Result) -> None:
    panel = plot.Panel(
        bands=None,
        theory={"half": lambda _, time: time / 2, "root": lambda _, time: np.sqrt(time)},
        names={"mine": "mine\nno guarantee"},
        top=100,
    )
    axes = panel.over_time(small_result.regret, small_result.problem, ax=None, time="log")
    assert ends_of(axes) == ["kl-UCB-CF", "TS-CF", "mine\nno guarantee", "half", "root"]
    np.testing.assert_allclose(heights(axes.lines[3]), np.array(TIMES) / 2)
    np.testing.assert_allclose(heights(axes.lines[4]), np.sqrt(TIMES))
    assert axes.get_ylim() == (0, 105)


def test_every_policy_has_its_own_look_everywhere() -> None:
    in_grey = [(look.dash, look.marker) for look in (*plot.KNOWN.values(), *plot.OTHERS)]
    assert len(set(in_grey)) == len(in_grey)
    alone, crowd = plot.looks(["TS-CF"]), plot.looks(["mine", "UCB1", "yours", "TS-CF"])
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


def test_values_that_are_no_points_on_a_line_stand_side_by_side(small_result: Result) -> None:
    for values, shown in (([1.0, np.inf], ["1", "∞"]), (["low", "high"], ["low", "high"])):
        axes = Result.stack([small_result, small_result], "epsilon", values).plot()
        assert [text.get_text() for text in axes.get_xticklabels()] == shown
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 1]


def test_a_problem_without_gaps_can_be_drawn() -> None:
    equal = Problem({"good": 0.5, "bad": 0.5}, NOISY)
    axes = two_arms(walks(1, 3, 5, TIMES), problem=equal).plot(bounds="both")
    assert ends_of(axes) == list(NAMES)
