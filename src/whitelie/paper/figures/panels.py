"""Panels: one function for each kind, from a result to a figure."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from whitelie.bounds import lower_bound, lower_constant, randomized_response_bound
from whitelie.channel import RandomizedResponse
from whitelie.composition import rounded_up
from whitelie.page import svg
from whitelie.paper.experiments import NOT_IN_THE_PAPERS_FIGURES, Scenario
from whitelie.paper.measures import uniform_play
from whitelie.policy import DPUCBInt, policy_from_dict
from whitelie.problem import Problem
from whitelie.simulation.plot import (
    FIRST_LOG_STEP,
    FONT,
    GREY,
    LEADER,
    PLAIN,
    SOLID,
    TITLE,
    Panel,
    Theory,
    ink,
    looks,
)
from whitelie.simulation.result import Result

WIDTH, HEIGHT = 5.6, 4.0
LEFT, BOTTOM, TOP, PADDING = 0.78, 0.5, 0.3, 0.08
"""The figure and its margins in inches; the right margin is as wide as the labels."""

THEOREM_1: Theory = {"Theorem 1\n(lower bound)": lower_bound}
NOT_IN_PAPER = " †"
"""What marks the curves that the paper's figures do not have."""

FIRST_STEP_DRAWN = 100
"""Regret over time is drawn from this step on: before it depends on the first pulls alone."""

TIME_SPANS = 24
"""In how many spans of time choices are counted; each is longer than the last by one factor."""


def over_time(result: Result, scenario: Scenario) -> Figure:
    """Panel a: regret over time of nine policies under unequal noise, both on log scales."""
    names = {name: name + NOT_IN_PAPER for name in NOT_IN_THE_PAPERS_FIGURES}
    panel = Panel(bands="pointwise", theory=THEOREM_1, names=names, scale="log")
    axes = panel.over_time(_drawn_regret(result), result.problem, ax=blank(), time="log")
    return fit(_titled(axes, scenario))


def against_epsilon(result: Result, scenario: Scenario) -> Figure:
    """Panel b: regret at the horizon against epsilon, and where it saturates.

    Corollary 3 under the channels of the sweep, which reach the nominal epsilon to a rounding; and
    what choosing at random would cost, mean(Δ)·T.
    """
    theory: Theory = {
        "Corollary 3\nas printed": _printed,
        "Corollary 3\ntight": randomized_response_bound,
        "uniform play": uniform_play,
    }
    panel = Panel(bands="pointwise", theory=theory, scale="log")
    last = Result(result.dataset.isel(time=[-1]))
    regret = last.regret.isel(time=0, drop=True)
    axes = panel.over_parameter(regret, result.problems, result.horizon, ax=blank())
    axes.set_xlabel("privacy ε of a report")
    scale = f"{result.replicates:,} replicates of {result.horizon:,} steps"
    axes.set_title(f"{scenario.title}: {scale}, 95 % intervals", **TITLE)
    return fit(axes)


def local_and_global(result: Result, scenario: Scenario) -> Figure:
    """Panel c: local against global privacy over time; labels state what each one guarantees.

    Theorem 1 binds those who see corrupted feedback alone.
    """
    names = {name: f"{name}\n{privacy(result, name)}" for name in result.policies}
    theory: Theory = {"Theorem 1, local\n(lower bound)": lower_bound}
    panel = Panel(bands="pointwise", theory=theory, names=names, scale="log")
    axes = panel.over_time(_drawn_regret(result), result.problem, ax=blank(), time="log")
    return fit(_titled(axes, scenario))


def optimality(result: Result) -> Figure:
    """Regret over ln t: an asymptotically optimal policy comes down to Theorem 1's constant."""
    regret = _drawn_regret(result)
    theory: Theory = {"Theorem 1\n(constant)": _constant}
    panel = Panel(bands="pointwise", theory=theory)
    ratio = regret / np.log(regret["time"])
    axes = panel.over_time(ratio, result.problem, ax=blank(), time="log")
    axes.set_ylabel("regret / ln(steps)")
    return fit(axes)


def exploration(results: Mapping[str, Result]) -> Figure:
    """Regret at the horizon, a row per scenario: what the weight c of ln ln t in f(t) costs.

    The first row is taller, so that its points can be named; markers are hollow where lines would
    not be solid.
    """
    axes = blank(left=0.98)
    axes.set_xscale("log")
    rows: dict[str, float] = {}
    level = 0.0
    for title, result in results.items():
        step = 0.8 if rows else 1.3
        places = level - step * np.arange(len(result.policies))
        level = places[-1] - step - 0.4
        _points(axes, result, places, named=not rows)
        axes.axhline(places[-1] - step / 2 - 0.2, color="#E6E6E6", linewidth=0.8)
        rows[title] = places.mean()
    replicates = f"mean of {result.replicates:,} replicates, 95 % intervals"
    axes.set_title(f"after {result.horizon:,} steps, {replicates}", **TITLE)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("regret; grey lines: Theorem 1 (lower bound)", fontsize=FONT)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(color=GREY, labelsize=FONT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return fit(axes)


def survey(result: Result) -> Figure:
    """The share of choices that went to the right question, the arm of gap 0, over time."""
    share = 100 * right_share(result)
    panel = Panel(bands="pointwise", top=100)
    axes = panel.over_time(share, result.problem, ax=blank(), time="log")
    axes.set_ylabel("choices of the right question")
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
    axes.set_xlabel("respondents")
    return fit(axes)


def right_share(result: Result) -> xr.DataArray:
    """Return the share of pulls without regret in each span of time, at the span's middle."""
    right = result.pulls.sel(arm=result.dataset["gaps"].values == 0).sum("arm")
    times = result.pulls["time"].values
    wanted = np.geomspace(FIRST_LOG_STEP, times[-1], TIME_SPANS + 1)
    ends = np.unique(times[np.searchsorted(times, wanted).clip(max=len(times) - 1)])
    middles = np.sqrt(ends[1:] * ends[:-1])
    pulls = right.sel(time=ends)
    return (pulls.diff("time") / np.diff(ends)).assign_coords(time=middles)


def privacy(result: Result, name: str) -> str:
    """Return what a policy promises each person, in the words of a label."""
    policy = policy_from_dict(result.cells[0].policies[name])
    if isinstance(policy, DPUCBInt):
        total = policy.guarantee(result.horizon)
        if math.isinf(total.epsilon):
            return "no guarantee"
        return f"global {total.size}"
    channels = result.problem.channels
    worst = max(channel.epsilon for channel in channels if isinstance(channel, RandomizedResponse))
    return f"local ε = {rounded_up(worst, 3)} per report"


def blank(left: float = LEFT) -> Axes:
    """Return empty axes on a figure whose margins are set by hand, which is fast."""
    figure = Figure(figsize=(WIDTH, HEIGHT))
    figure.subplots_adjust(left / WIDTH, BOTTOM / HEIGHT, 1 - PADDING / WIDTH, 1 - TOP / HEIGHT)
    return figure.add_subplot()


def fit(axes: Axes) -> Figure:
    """Return the figure with a right margin in which all labels fit."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]  # matplotlib has no type for it
    labels = [text for text in axes.texts if isinstance(text, Annotation)]
    for _ in range(2):
        for label in labels:
            label.update_positions(renderer)
        reached = max(Text.get_window_extent(label, renderer).x1 for label in labels)
        missing = reached + PADDING * figure.dpi - figure.bbox.x1
        figure.subplots_adjust(right=figure.subplotpars.right - missing / figure.bbox.width)
    return figure


def save(figure: Figure, folder: str | os.PathLike[str], name: str) -> None:
    """Write name.svg and name.pdf, the same bytes each time."""
    (Path(folder) / f"{name}.svg").write_bytes(svg(figure))
    figure.savefig(Path(folder) / f"{name}.pdf", metadata={"CreationDate": None})


def _points(axes: Axes, result: Result, places: NDArray[Any], *, named: bool) -> None:
    """Draw a policy's regret at each place, with its interval, across the line of Theorem 1."""
    half = (places[0] - places[1]) / 2
    bound = lower_bound(result.problem, float(result.horizon))
    axes.vlines(bound, places[-1] - half, places[0] + half, color=GREY, linewidth=1.1)
    summary = result.summary()
    for place, (name, look) in zip(places, looks(result.policies).items(), strict=True):
        mean, lower, upper = summary.loc[name, ["mean", "lower", "upper"]]
        inside = look.colour if look.dash == SOLID else "white"
        style: Any = {"marker": look.marker, "markersize": 5, "markerfacecolor": inside}
        axes.hlines(place, lower, upper, color=look.colour, linewidth=1.6)
        axes.plot(mean, place, color=look.colour, label=name, **style)
        if named:
            axes.annotate(
                name,
                xy=(mean, place),
                xytext=(1.02, place),
                textcoords=("axes fraction", "data"),
                color=ink(look.colour),
                fontsize=FONT,
                verticalalignment="center_baseline",
                arrowprops=LEADER | {"color": ink(look.colour)},
            )


def _titled(axes: Axes, scenario: Scenario) -> Axes:
    axes.set_title(f"{scenario.title}: {axes.get_title(loc='left')}", **TITLE)
    return axes


def _drawn_regret(result: Result) -> xr.DataArray:
    return result.regret.sel(time=slice(min(FIRST_STEP_DRAWN, result.horizon), None))


def _printed(problem: Problem, horizon: Any) -> Any:
    return randomized_response_bound(problem, horizon, form="printed")


def _constant(problem: Problem, horizon: Any) -> Any:
    return np.full_like(horizon, lower_constant(problem))
