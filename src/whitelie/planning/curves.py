"""The price of privacy as curves: rewards lost, days to the goal, losses by day; know or earn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from whitelie.page import PageFigure, svg
from whitelie.planning.certified import Certified
from whitelie.planning.comparison import Frontier
from whitelie.planning.design import DAYS_PER_YEAR
from whitelie.planning.option import Option, amount, epsilon_text
from whitelie.planning.proposal import Plan
from whitelie.planning.times import CONFIDENCE_LEVEL
from whitelie.policy import TopTwo
from whitelie.simulation.intervals import student
from whitelie.simulation.plot import BLUE, FONT, GREY, PLAIN, VERMILLION, ink, label_ends

BEYOND_YEAR = f"> {DAYS_PER_YEAR}"
WIDTH, HEIGHT = 3.7, 2.7
LEFT, RIGHT, BOTTOM, TOP = 0.68, 0.12, 0.5, 0.3
"""A panel and its margins in inches."""

WIDE_RIGHT = 0.28
"""The right margin of a panel whose last label may be half beyond the axis."""

ROOM_FOR_NAMES = 0.85
"""The axis of days reaches so far below the soonest certificate."""

RIGHT_PART = 0.6
"""From this share of a panel's width on, names are written to the left of their point."""


@dataclass(frozen=True)
class Marked:
    """An option of the sheet, and a word for it if the recommendation is about it."""

    option: Option
    mark: str = ""

    @property
    def name(self) -> str:
        """Its epsilon."""
        return epsilon_text(self.option.epsilon)


def marked_options(plan: Plan) -> list[Marked]:
    """The options by epsilon, of which the recommended one is marked."""
    recommended = plan.recommendation
    if recommended is None:
        return [Marked(option) for option in plan.shown]
    mark = "recommended" if recommended.met else "closest"
    return [Marked(each, mark if each is recommended.option else "") for each in plan.shown]


def figures(plan: Plan) -> tuple[PageFigure, ...]:
    """Return the three figures of the price of privacy; none where no epsilon is finite."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    if not shown:
        return ()
    return (
        _page_figure(
            "lost", "Rewards lost in a year", lost_figure(plan), _said(shown, _lost_words)
        ),
        _page_figure("days", _days_title(plan), days_figure(plan), _said(shown, _days_words)),
        _page_figure(
            "year", "Rewards lost over the year", year_figure(plan), _said(shown, _lost_words)
        ),
    )


def lost_figure(plan: Plan) -> Figure:
    """Draw the mean of rewards lost in a year against epsilon, with 95 % intervals."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    axes = _panel("rewards lost in a year")
    lines = [
        (float(o.lost.low[-1]), o.lost_rewards, float(o.lost.high[-1]))
        for o in (one.option for one in shown)
    ]
    _limits(axes, [end for line in lines for end in line if end > 0])
    _draw(axes, shown, lines)
    return _finished(axes, shown)


def days_figure(plan: Plan) -> Figure:
    """Draw the days until the goal is reached against epsilon; beyond the year, at the top."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    axes = _panel(_days_title(plan).lower())
    times = [one.option.reached for one in shown]
    lines = [(_days(t.days_low), _days(t.days), _days(t.days_high)) for t in times]
    ends = [end for line in lines for end in line if end < math.inf]
    beyond = any(math.inf in line for line in lines)
    _limits(axes, [*ends, DAYS_PER_YEAR] if beyond else ends)
    if beyond:
        _beyond_the_year(axes)
    _draw(axes, shown, lines)
    return _finished(axes, shown)


def year_figure(plan: Plan) -> Figure:
    """Draw the mean of rewards lost by every day of the year, with its 95 % band."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    axes = _panel("rewards lost by day")
    for one in shown:
        lost, colour = one.option.lost, VERMILLION if one.mark else BLUE
        seen = lost.mean > 0
        axes.plot(lost.days[seen], lost.mean[seen], color=colour, lw=1.5, label=f"ε = {one.name}")
        low = np.maximum(lost.low[seen], 0.02 * lost.mean[seen])
        axes.fill_between(lost.days[seen], low, lost.high[seen], color=colour, alpha=0.18, lw=0)
    _limits(axes, [end for one in shown for end in (1.0, float(one.option.lost.high[-1]))])
    axes.set_xlim(1, DAYS_PER_YEAR * 4)
    axes.set_xticks([1, 7, 30, 100, DAYS_PER_YEAR], ["1", "7", "30", "100", str(DAYS_PER_YEAR)])
    ends = [(f"{one.name}", one.option.lost_rewards, ink(GREY)) for one in shown]
    _styled(axes, "day; ε at the end of each line")
    label_ends(axes, float(DAYS_PER_YEAR), ends)
    return _figure(axes)


def frontier_page_figure(plan: Plan) -> PageFigure | None:
    """Return what `know` trades as a figure of the sheet, if a run has its certificate at all."""
    curve = plan.frontier
    if curve is None or all(point.certified.share.estimate == 0 for point in curve.points):
        return None
    said = [f"{name}: {_trade_words(certified)}" for name, certified in _traded(plan, curve)]
    title = f"Days to the certificate and rewards lost at ε = {epsilon_text(curve.epsilon)}"
    drawn = svg(frontier_figure(plan, curve))
    return PageFigure("frontier", title, "", f"{title}. {'; '.join(said)}.", drawn)


def _traded(plan: Plan, curve: Frontier) -> list[tuple[str, Certified]]:
    """Return the points of the curve, then other policies on the same mechanism."""
    points = [(f"know = {point.know:g}", point.certified) for point in curve.points]
    rows = [i for i, option in enumerate(plan.shown) if option.epsilon == curve.epsilon]
    others = [
        (policy.name, policy.certified[row])
        for policy in plan.comparisons
        for row in rows[:1]
        if not policy.name.startswith(TopTwo().label)
    ]
    return points + others


def _trade_words(certified: Certified) -> str:
    return f"{certified.mean_text} days, {amount(certified.lost_in_year.value)} rewards lost"


def frontier_figure(plan: Plan, curve: Frontier) -> Figure:
    """Draw mean days to the certificate against mean rewards lost, for shares of `know`.

    Other policies are drawn beside the curve, if all of their runs are certified within the year.
    """
    axes = _panel("days to the certificate, mean")
    _figure(axes).subplots_adjust(right=1 - WIDE_RIGHT / WIDTH)
    traded = [
        (name, certified)
        for name, certified in _traded(plan, curve)
        if certified.in_all_runs or (name.startswith("know") and certified.share.estimate > 0)
    ]
    days = [certified.days.value for _, certified in traded]
    _limits(axes, [ROOM_FOR_NAMES * min(days), *days])
    _limits(axes, [certified.lost_in_year.value for _, certified in traded], along="x")
    line = [
        (certified.lost_in_year.value, certified.days.value)
        for name, certified in traded
        if name.startswith("know")
    ]
    axes.plot(*zip(*line, strict=True), color=BLUE, lw=1.2, alpha=0.5)
    for name, certified in traded:
        ours = name.startswith("know")
        colour = BLUE if ours else GREY
        _cross(axes, certified, colour)
        axes.plot(
            certified.lost_in_year.value,
            certified.days.value,
            marker=("o" if ours else "s") if certified.in_all_runs else "^",
            color=colour,
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            linestyle="none",
            label=name,
            zorder=2.5,
        )
    _name_points(axes, traded)
    _styled(axes, "rewards lost in a year, winner shipped")
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.8)
    return _figure(axes)


def _cross(axes: Axes, certified: Certified, colour: str) -> None:
    """Draw the 95 % intervals of both means."""
    lost, days, reach = (
        certified.lost_in_year,
        certified.days,
        student(1000, level=CONFIDENCE_LEVEL),
    )
    for mean, fixed, draw in ((lost, days, axes.hlines), (days, lost, axes.vlines)):
        ends = mean.value - reach * mean.error, mean.value + reach * mean.error
        draw(fixed.value, *ends, color=colour, linewidth=1, alpha=0.6)


def _name_points(axes: Axes, traded: Sequence[tuple[str, Certified]]) -> None:
    """Name points of the curve to the left of it, but the last; others away from the panel's side.

    To the left nothing can be that is as soon and loses less.
    """
    left, right = np.log(axes.get_xlim())
    for name, certified in traded:
        lost, days = certified.lost_in_year.value, certified.days.value
        ours = name.startswith("know")
        late = (math.log(lost) - left) / (right - left) > RIGHT_PART
        if ours:
            late = name != "know = 1"
        axes.annotate(
            name.removeprefix("know = ") if ours and name != "know = 1" else name,
            xy=(lost, days),
            xytext=(-6 if late else 6, -1 if ours else 4),
            textcoords="offset points",
            horizontalalignment="right" if late else "left",
            verticalalignment="top" if ours else "bottom",
            fontsize=FONT,
            color=ink(BLUE if ours else GREY),
        )


def _panel(title: str) -> Axes:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    figure.subplots_adjust(LEFT / WIDTH, BOTTOM / HEIGHT, 1 - RIGHT / WIDTH, 1 - TOP / HEIGHT)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=FONT, color=GREY, x=(0.1 - LEFT) / WIDTH * 1.3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return axes


def _limits(axes: Axes, ends: Sequence[float], along: Literal["x", "y"] = "y") -> None:
    """At least a factor of three is seen, so that small differences look small."""
    low, high = min(ends, default=1.0), max(ends, default=1.0)
    room = max(1.25, math.sqrt(3 * low / high))
    axes.set(**{f"{along}lim": (low / room, high * room)})
    axis = axes.xaxis if along == "x" else axes.yaxis
    steps = (1, 2, 3, 5, 7) if high < 8 * low else (1, 2, 5) if high <= 300 * low else (1,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def _beyond_the_year(axes: Axes) -> None:
    """Make room above the year for what takes longer, with a tick that says so."""
    low, _ = axes.get_ylim()
    top = DAYS_PER_YEAR * (DAYS_PER_YEAR / low) ** 0.16
    axes.set_ylim(low, top)
    axes.axhline(DAYS_PER_YEAR, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    ticks = [
        tick
        for tick in axes.get_yticks()
        if low <= tick < DAYS_PER_YEAR / (DAYS_PER_YEAR / low) ** 0.08
    ]
    axes.set_yticks(
        [*ticks, math.sqrt(DAYS_PER_YEAR * top)], [*(f"{t:,g}" for t in ticks), BEYOND_YEAR]
    )


def _draw(axes: Axes, shown: Sequence[Marked], lines: Sequence[tuple[float, ...]]) -> None:
    """Draw points with their intervals; infinite ones as arrows above the year."""
    top = axes.get_ylim()[1]
    above = math.sqrt(DAYS_PER_YEAR * top)
    ends = axes.get_ylim()
    line = [
        (one.option.epsilon, middle)
        for one, (_, middle, _) in zip(shown, lines, strict=True)
        if middle < math.inf and _is_symmetric(one.option)
    ]
    axes.plot(*zip(*line, strict=True) if line else ([], []), color=BLUE, lw=1.2, alpha=0.5)
    for one, (low, middle, high) in zip(shown, lines, strict=True):
        colour = VERMILLION if one.mark else BLUE
        place = one.option.epsilon
        if low < math.inf:
            bar = max(low, ends[0]), min(high, top)
            axes.vlines(place, *bar, color=colour, linewidth=1.8)
        beyond = middle == math.inf
        marker = "^" if beyond else "D" if one.mark else "o"
        axes.plot(
            place,
            above if beyond else middle,
            marker=marker,
            color=colour,
            markersize=7 if one.mark or beyond else 5.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            linestyle="none",
            label=f"ε = {one.name}",
            zorder=3 if one.mark else 2.5,
        )


def _finished(axes: Axes, shown: Sequence[Marked]) -> Figure:
    places = np.array([one.option.epsilon for one in shown])
    axes.set_xlim(places.min() / 1.35, places.max() * 1.35)
    for one in shown:
        if one.mark:
            _name_mark(axes, one)
    ticks = _apart([one.option.epsilon for one in shown if not one.mark] or list(places))
    axes.set_xticks(ticks, [epsilon_text(tick) for tick in ticks])
    _styled(axes, "ε of one report: more privacy ← → less")
    return _figure(axes)


def _styled(axes: Axes, horizontal: str) -> None:
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(horizontal, fontsize=FONT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=GREY, labelsize=FONT)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _name_mark(axes: Axes, one: Marked) -> None:
    """Draw a line at the recommended epsilon, and name it where a falling curve leaves room."""
    place = one.option.epsilon
    left, right = np.log(axes.get_xlim())
    share = (math.log(place) - left) / (right - left)
    early, late = share < 0.35, share > 0.6
    axes.axvline(place, color=VERMILLION, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1)
    axes.annotate(
        f"{one.mark}\nε = {one.name}",
        xy=(place, 0.8 if late else 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(5 if early else -5, 0),
        textcoords="offset points",
        horizontalalignment="left" if early else "right",
        verticalalignment="top" if late else "bottom",
        fontsize=FONT,
        linespacing=1.15,
        color=ink(VERMILLION),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )


def _apart(places: Sequence[float]) -> list[float]:
    """Return those places whose labels do not overlap on a log axis."""
    least = max(math.log(max(places) / min(places)) * 0.09, 1e-9)
    chosen: list[float] = []
    for place in sorted(places):
        if not chosen or math.log(place / chosen[-1]) >= least:
            chosen.append(place)
    return chosen


def _page_figure(name: str, title: str, figure: Figure, alt: str) -> PageFigure:
    return PageFigure(name, title, "", f"{title}, against ε. {alt}", svg(figure))


def _said(shown: Sequence[Marked], words: Callable[[Option], str]) -> str:
    return "; ".join(f"ε = {one.name}: {words(one.option)}" for one in shown) + "."


def _lost_words(option: Option) -> str:
    return amount(option.lost_rewards)


def _days_title(plan: Plan) -> str:
    if plan.design.goal.ships:
        return "Days until 95 % of runs are certified"
    return "Days until traffic goes to the best"


def _days_words(option: Option) -> str:
    return str(option.reached)


def _days(days: float | None) -> float:
    return math.inf if days is None else days


def _is_symmetric(option: Option) -> bool:
    return option.mechanism.channel.p00 == option.mechanism.channel.p11
