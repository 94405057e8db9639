"""The reproduction's figures: every curve, label and theory line is what it claims to be."""

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from whitelie import DPUCBInt, Monotone, simulate
from whitelie.bounds import local_privacy_bound, lower_bound, lower_constant
from whitelie.kernel.divergence import divergence
from whitelie.paper import experiments
from whitelie.paper.figures import diagrams, panels
from whitelie.paper.survey import contested_problem
from whitelie.policy import Policy
from whitelie.simulation.plot import KNOWN
from whitelie.simulation.result import Result
from whitelie.simulation.work import simulate_many

MAIN, TWO_ARMS = experiments.SCENARIOS[:2]
RUN: dict[str, Any] = {"horizon": 2_000, "replicates": 4, "seed": 1, "jobs": 1}


@pytest.fixture(scope="module")
def nine() -> Result:
    return simulate(MAIN.unequal_noise, experiments.OVER_TIME, **RUN)


@pytest.fixture(scope="module")
def private() -> Result:
    local = {policy.label: policy for policy in experiments.AGAINST_EPSILON}
    redrawn = {"DP-UCB-INT, redrawn": DPUCBInt(noise="every round")}
    policies: dict[str, Policy] = {**local, **experiments.GLOBAL_PRIVACY, **redrawn}
    return simulate(TWO_ARMS.private(experiments.COMPARED_EPSILON), policies, **RUN)


@pytest.fixture(scope="module")
def sweep() -> Result:
    cells = [(MAIN.private(level), experiments.AGAINST_EPSILON) for level in experiments.EPSILONS]
    return simulate_many(cells, coordinate="epsilon", values=experiments.EPSILONS, **RUN)


@pytest.fixture(scope="module")
def tuned() -> dict[str, Result]:
    return {
        scenario.title: simulate(scenario.unequal_noise, experiments.EXPLORATION, **RUN)
        for scenario in experiments.SCENARIOS
    }


@pytest.fixture(scope="module")
def surveyed() -> Result:
    return simulate(contested_problem(), experiments.SURVEY_POLICIES, **RUN)


@pytest.fixture(scope="module")
def figures(
    nine: Result, private: Result, sweep: Result, tuned: dict[str, Result], surveyed: Result
) -> dict[str, Figure]:
    optimal = simulate(MAIN.unequal_noise, experiments.OPTIMALITY, **RUN)
    return {
        "over time": panels.over_time(nine, MAIN),
        "against epsilon": panels.against_epsilon(sweep, MAIN),
        "local and global": panels.local_and_global(private, MAIN),
        "optimality": panels.optimality(optimal),
        "exploration": panels.exploration(tuned),
        "survey": panels.survey(surveyed),
        "uninformative": diagrams.uninformative(),
        "informative": diagrams.informative(),
        "index": diagrams.index(),
    }


def curves(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines}


def heights(line: Line2D) -> Any:
    return np.asarray(line.get_ydata(), dtype=float)


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def written(figure: Figure) -> list[Text]:
    """All that can be read: titles, names of axes, labels of ticks within them, annotations."""
    texts: list[Text] = []
    for axes in figure.axes:
        title = [text for text in axes.get_children() if isinstance(text, Text)]
        texts += [*title, axes.xaxis.label, axes.yaxis.label]
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            texts += [label for place, label in ticks if low <= place <= high]
    return [text for text in texts if text.get_text()]


def test_what_is_written_lies_within_the_figure_and_apart(figures: dict[str, Figure]) -> None:
    for name, figure in figures.items():
        figure.draw_without_rendering()
        shown = written(figure)
        boxes = [Text.get_window_extent(text) for text in shown]
        for text, box in zip(shown, boxes, strict=True):
            outside = min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) < 0
            assert not outside, (name, text.get_text())
        for (one, first), (two, second) in combinations(zip(shown, boxes, strict=True), 2):
            deep = min(first.y1, second.y1) - max(first.y0, second.y0)
            wide = min(first.x1, second.x1) - max(first.x0, second.x0)
            assert deep <= 2 or wide <= 0, (name, one.get_text(), two.get_text())


def test_every_policy_is_drawn_in_its_own_look(figures: dict[str, Figure], private: Result) -> None:
    drawn: dict[str, set[str]] = {}
    for name in ("over time", "against epsilon", "local and global", "optimality", "survey"):
        lines = {key: line for key, line in curves(figures[name]).items() if key in KNOWN}
        drawn[name] = set(lines)
        for policy, line in lines.items():
            look = KNOWN[policy]
            assert (line.get_color(), line.get_marker()) == (look.colour, look.marker)
            assert line.is_dashed() == (look.dash != "solid")
    assert drawn["over time"] == {policy.label for policy in experiments.OVER_TIME}
    assert drawn["against epsilon"] == {"kl-UCB-CF", "TS-CF"}
    assert drawn["local and global"] == set(private.policies)
    assert drawn["optimality"] == set(experiments.OPTIMALITY)
    assert drawn["survey"] == {policy.label for policy in experiments.SURVEY_POLICIES}


def test_curves_that_the_paper_lacks_are_marked(figures: dict[str, Figure]) -> None:
    marked = {text for text in labels(figures["over time"].axes[0]) if text.endswith("†")}
    assert marked == {"UCB-CF †", "WR(UCB1) †"}
    assert figures["over time"].axes[0].get_title(loc="left").startswith("Main problem: mean of 4")


def test_regret_over_time_stands_beside_theorem_1(nine: Result) -> None:
    figure = panels.over_time(nine, MAIN)
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    bound = curves(figure)["Theorem 1\n(lower bound)"]
    times = np.asarray(bound.get_xdata())
    assert times[0] >= panels.FIRST_STEP_DRAWN
    np.testing.assert_allclose(heights(bound), lower_bound(MAIN.unequal_noise, times))
    mean = nine.regret.sel(policy="TS", time=times).mean("replicate")
    np.testing.assert_allclose(heights(curves(figure)["TS"]), mean)
    assert len(axes.collections) == 9


def test_regret_against_epsilon_stands_beside_corollary_3(sweep: Result) -> None:
    figure = panels.against_epsilon(sweep, MAIN)
    axes, lines = figure.axes[0], curves(figure)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    for form, label in (("printed", "as printed"), ("tight", "tight")):
        expected = [
            local_privacy_bound(MAIN.private(1), level, 2_000.0, form=form)  # type: ignore[arg-type]  # the two literals are listed above
            for level in experiments.EPSILONS
        ]
        np.testing.assert_allclose(heights(lines[f"Corollary 3\n{label}"]), expected, rtol=1e-9)
    np.testing.assert_allclose(heights(lines["uniform play"]), 0.09 * 2_000)


def test_labels_state_the_guarantee_of_what_was_run(private: Result) -> None:
    shown = labels(panels.local_and_global(private, MAIN).axes[0])
    for name in ("DP-UCB-INT", "DP-UCB-INT, calibrated"):
        total = experiments.GLOBAL_PRIVACY[name].guarantee(2_000)
        assert f"{name}\nglobal {total.size}" in shown
    assert "DP-UCB-INT, redrawn\nno guarantee" in shown
    assert "TS-CF\nlocal ε = 1 per report" in shown
    assert "Theorem 1, local\n(lower bound)" in shown
    longer = simulate(
        TWO_ARMS.private(1),
        experiments.GLOBAL_PRIVACY,
        **RUN | {"horizon": 100_000, "replicates": 2},
    )
    assert panels.privacy(longer, "DP-UCB-INT") == "global ε = 15.9, δ = 4.6e-05"


def test_regret_over_ln_t_stands_beside_the_constant(figures: dict[str, Figure]) -> None:
    lines = curves(figures["optimality"])
    constant = lower_constant(MAIN.unequal_noise)
    np.testing.assert_allclose(heights(lines["Theorem 1\n(constant)"]), constant)
    result = simulate(MAIN.unequal_noise, experiments.OPTIMALITY, **RUN)
    last = result.regret.sel(policy="TS-CF").isel(time=-1).mean() / np.log(2_000)
    assert heights(lines["TS-CF"])[-1] == pytest.approx(float(last))
    assert figures["optimality"].axes[0].get_ylim()[0] == 0


def test_exploration_has_a_row_per_scenario_and_names_its_points(tuned: dict[str, Result]) -> None:
    axes = panels.exploration(tuned).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(tuned)
    rows = axes.get_yticks()
    assert all(above > below for above, below in pairwise(rows))
    points = [line for line in axes.lines if line.get_label() in KNOWN]
    assert len(points) == 25
    for title, centre, row in zip(tuned, rows, np.split(np.array(points), 5), strict=True):
        mean: Any = tuned[title].summary()["mean"]
        assert np.mean([heights(point)[0] for point in row]) == pytest.approx(centre)
        for point in row:
            name = str(point.get_label())
            assert point.get_xdata()[0] == mean[name]
            assert (point.get_markerfacecolor() == "white") == name.endswith("c = 0")
    assert labels(axes) == list(experiments.EXPLORATION)
    assert len({(point.get_marker(), point.get_markerfacecolor()) for point in points}) == 5


def test_the_survey_counts_choices_of_the_right_question(surveyed: Result) -> None:
    share = panels.right_share(surveyed)
    right = surveyed.pulls.sel(arm="fought with a teacher")
    times = surveyed.pulls["time"].values
    ends = np.unique(times[np.searchsorted(times, np.geomspace(10, 2_000, 25)).clip(0, 158)])
    first, last = right.sel(time=ends[-2]), right.sel(time=ends[-1])
    expected = (last - first) / (ends[-1] - ends[-2])
    np.testing.assert_allclose(share.isel(time=-1).values, expected.values)
    assert share["time"].values[-1] == pytest.approx(np.sqrt(ends[-1] * ends[-2]))
    figure = panels.survey(surveyed)
    means = 100 * share.sel(policy="TS-CF").mean("replicate")
    np.testing.assert_allclose(heights(curves(figure)["TS-CF"]), means)
    low, high = figure.axes[0].get_ylim()
    assert low == 0
    assert 100 <= high < 110


@pytest.mark.parametrize("draw", [diagrams.index, diagrams.informative])
def test_a_figure_is_saved_with_the_same_bytes_each_time(
    tmp_path: Path, draw: Callable[[], Figure]
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        panels.save(draw(), tmp_path / folder, "figure")
    for name in ("figure.svg", "figure.pdf"):
        first, second = (tmp_path / folder / name for folder in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
        assert len(first.read_bytes()) > 5_000


def test_an_uninformative_channel_hides_the_gap() -> None:
    worse, best = diagrams.WORSE, diagrams.BEST
    assert worse < best
    assert diagrams.hump(worse) == pytest.approx(diagrams.hump(best))
    with pytest.raises(ValueError, match="monotone"):
        Monotone(diagrams.hump)


def test_an_informative_channel_widens_the_gap_whatever_the_feedback_of_arm_1() -> None:
    worse, best = diagrams.STEEP_WORSE, diagrams.STEEP_BEST
    steep, shallow = Monotone(diagrams.steep), Monotone(diagrams.shallow)
    assert steep.increasing
    assert shallow.increasing
    level = steep.mean_feedback(worse)
    assert steep.mean_feedback(best) - level > best - worse > 0
    assert shallow.mean_feedback(best) == pytest.approx(level, abs=1e-6)


def test_an_index_is_the_best_mean_reward_within_the_budget(figures: dict[str, Figure]) -> None:
    budget = diagrams.budget()
    low, high = diagrams.ends()
    rate = diagrams.RATE
    assert low < rate < high
    for end in (low, high):
        assert divergence(rate, end) == pytest.approx(budget)
    shown = labels(figures["index"].axes[1])
    grid = np.linspace(0, 1, 10_001)
    for name, channel in (
        ("increasing", diagrams.INCREASING),
        ("decreasing", diagrams.DECREASING),
    ):
        within = [mu for mu in grid if divergence(rate, channel.mean_feedback(mu)) <= budget]
        assert f"{name} $g_a$:\nindex {max(within):.2f}" in shown
    assert f"without corruption:\nindex {high:.2f}" in shown
