"""The price of privacy as curves: rewards lost, days until one knows, and losses over the year."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from whitelie.figure import BLUE, FONT, GREY, PLAIN, VERMILLION, ink, label_ends
from whitelie.page import Picture, svg
from whitelie.planning.design import YEAR
from whitelie.planning.option import Option, amount, epsilon_text
from whitelie.planning.proposal import Plan

BEYOND = f"> {YEAR}"
WIDTH, HEIGHT = 3.7, 2.7
LEFT, RIGHT, BOTTOM, TOP = 0.68, 0.12, 0.5, 0.3
"""A panel and its margins in inches."""


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
    """The options by epsilon; the recommended one is marked, and added if it is not there."""
    found = plan.recommendation
    options = [Marked(option) for option in plan.options]
    if found is not None:
        mark = "recommended" if found.met else "closest"
        channel = found.option.mechanism.channel
        others = [one for one in options if one.option.mechanism.channel != channel]
        options = [*others, Marked(found.option, mark)]
    return sorted(options, key=lambda one: one.option.epsilon)


def pictures(plan: Plan) -> tuple[Picture, ...]:
    """Return the two panels of the price curve; none where no epsilon is finite."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    if not shown:
        return ()
    return (
        _picture("lost", "Rewards lost in a year", lost_figure(plan), _said(shown, _lost_words)),
        _picture("days", "Days until one knows", days_figure(plan), _said(shown, _know_words)),
        _picture(
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
    """Draw the days until one knows against epsilon; beyond the year they are at the top."""
    shown = [one for one in marked_options(plan) if one.option.epsilon < math.inf]
    axes = _panel("days until one knows")
    times = [one.option.know for one in shown]
    lines = [(_days(t.days_low), _days(t.days), _days(t.days_high)) for t in times]
    ends = [end for line in lines for end in line if end < math.inf]
    beyond = any(math.inf in line for line in lines)
    _limits(axes, [*ends, YEAR] if beyond else ends)
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
    axes.set_xlim(1, YEAR * 4)
    axes.set_xticks([1, 7, 30, 100, YEAR], ["1", "7", "30", "100", str(YEAR)])
    ends = [(f"{one.name}", one.option.lost_rewards, ink(GREY)) for one in shown]
    _styled(axes, "day; ε at the end of each line")
    label_ends(axes, float(YEAR), ends)
    return _figure(axes)


def _panel(title: str) -> Axes:
    figure = Figure(figsize=(WIDTH, HEIGHT))
    figure.subplots_adjust(LEFT / WIDTH, BOTTOM / HEIGHT, 1 - RIGHT / WIDTH, 1 - TOP / HEIGHT)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=FONT, color=GREY, x=(0.1 - LEFT) / WIDTH * 1.3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return axes


def _limits(axes: Axes, ends: Sequence[float]) -> None:
    """At least a factor of three is seen, so that small differences look small."""
    low, high = min(ends, default=1.0), max(ends, default=1.0)
    room = max(1.25, math.sqrt(3 * low / high))
    axes.set_ylim(low / room, high * room)
    wide = high > 300 * low
    axes.yaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5), numticks=20))
    axes.yaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_minor_locator(NullLocator())


def _beyond_the_year(axes: Axes) -> None:
    """Make room above the year for what takes longer, with a tick that says so."""
    low, _ = axes.get_ylim()
    top = YEAR * (YEAR / low) ** 0.16
    axes.set_ylim(low, top)
    axes.axhline(YEAR, color=GREY, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    ticks = [tick for tick in axes.get_yticks() if low <= tick < YEAR / (YEAR / low) ** 0.08]
    axes.set_yticks([*ticks, math.sqrt(YEAR * top)], [*(f"{t:,g}" for t in ticks), BEYOND])


def _draw(axes: Axes, shown: Sequence[Marked], lines: Sequence[tuple[float, ...]]) -> None:
    """Draw points with their intervals; infinite ones as arrows above the year."""
    top = axes.get_ylim()[1]
    above = math.sqrt(YEAR * top)
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
    """Return those places that can be named on a log axis without meeting."""
    least = max(math.log(max(places) / min(places)) * 0.09, 1e-9)
    kept: list[float] = []
    for place in sorted(places):
        if not kept or math.log(place / kept[-1]) >= least:
            kept.append(place)
    return kept


def _picture(name: str, title: str, figure: Figure, alt: str) -> Picture:
    return Picture(name, title, "", f"{title}, against ε. {alt}", svg(figure))


def _said(shown: Sequence[Marked], words: Callable[[Option], str]) -> str:
    return "; ".join(f"ε = {one.name}: {words(one.option)}" for one in shown) + "."


def _lost_words(option: Option) -> str:
    return amount(option.lost_rewards)


def _know_words(option: Option) -> str:
    return str(option.know)


def _days(days: float | None) -> float:
    return math.inf if days is None else days


def _is_symmetric(option: Option) -> bool:
    return option.mechanism.channel.p00 == option.mechanism.channel.p11
