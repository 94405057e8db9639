"""Regret drawn: curves, their confidence bands, and what theory says.

Colour and marker tell the rule (kl-UCB, UCB, UCB1, TS), the line tells how it reads feedback:
corrected solid, naive dashed, wrapped dotted; variants of a policy differ in the line alone. So
the paper's policies look the same in every figure, to colour-blind eyes (the palette is Okabe and
Ito's) and in grey; others take what is left, in their order. Names stand where the lines end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, PercentFormatter
from numpy.typing import NDArray

from whitelie.bounds import lower_bound, randomized_response_bound
from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.problem import Problem
from whitelie.simulation.intervals import simultaneous_band, t_interval

Dash = str | tuple[float, tuple[float, ...]]
Numbers = NDArray[np.float64]
Theory = Mapping[str, Callable[[Problem, Any], Any]]
"""Curves by label: functions of a problem and a horizon, or of an array of horizons."""

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, DARK, GREY = "#E69F00", "#56B4E9", "#333333", "#6B6B6B"
SOLID: Dash = "solid"
DASHED: Dash = (0, (3.5, 1.3))
DOTTED: Dash = (0, (1, 1))
DASH_DOT: Dash = (0, (5, 1.3, 1, 1.3))
LONG_DASHES: Dash = (0, (8, 3))
FINE_DOTS: Dash = (0, (1, 2.5))
THEORY_DASHES = (LONG_DASHES, DASH_DOT, FINE_DOTS)

FONT = 9.0
LINE_HEIGHT = 1.3 * FONT
LABEL_DISTANCE = 12.0
LEADER: Any = {
    "arrowstyle": "-",
    "relpos": (0, 0.5),
    "shrinkA": 1,
    "shrinkB": 3,
    "linewidth": 0.6,
}
TITLE: Any = {"loc": "left", "fontsize": FONT, "color": GREY, "y": 1}
PLAIN = "{x:,.10g}"
FIRST_LOG_STEP = 10
"""The first step shown where regret is on a log scale: earlier ones look alike and take room."""


class Look(NamedTuple):
    """How a policy is drawn."""

    colour: str
    dash: Dash
    marker: str


KNOWN = {
    "kl-UCB-CF": Look(BLUE, SOLID, "o"),
    "kl-UCB-CF, c = 0": Look(BLUE, DASH_DOT, "o"),
    "kl-UCB": Look(BLUE, DASHED, "o"),
    "WR(kl-UCB)": Look(BLUE, DOTTED, "o"),
    "TS-CF": Look(VERMILLION, SOLID, "^"),
    "TS": Look(VERMILLION, DASHED, "^"),
    "WR(TS)": Look(VERMILLION, DOTTED, "^"),
    "UCB-CF": Look(GREEN, SOLID, "s"),
    "UCB-CF, c = 0": Look(GREEN, DASH_DOT, "s"),
    "UCB": Look(GREEN, DASHED, "s"),
    "WR(UCB)": Look(GREEN, DOTTED, "s"),
    "UCB1": Look(SKY, DASHED, "D"),
    "WR(UCB1)": Look(SKY, DOTTED, "D"),
    "DP-UCB-INT": Look(PURPLE, DASH_DOT, "v"),
    "DP-UCB-INT, calibrated": Look(PURPLE, SOLID, "v"),
    "DP-UCB-INT, redrawn": Look(PURPLE, DOTTED, "v"),
}

OTHERS = [
    Look(colour, dash, marker)
    for dash, markers in ((SOLID, "hP"), (DASHED, "<>"), (DASH_DOT, "pX"), (DOTTED, "d*"))
    for colour, marker in zip((ORANGE, DARK), markers, strict=True)
]


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return the look of every policy: its own if it is known by name, else one by order."""
    others = [name for name in names if name not in KNOWN]
    by_order = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(others)}
    return {name: KNOWN.get(name) or by_order[name] for name in names}


def theory_of(bounds: Literal["both"] | bool, problems: Sequence[Problem]) -> Theory:
    """Return the bounds that `Result.plot` asks for: Theorem 1, and Corollary 2 beside it."""
    if bounds not in (True, False, "both"):
        raise InvalidInput("bounds", bounds, 'choose True, False or "both"')
    lower: Theory = {"Theorem 1 (lower bound)": lower_bound} if bounds else {}
    if bounds != "both":
        return lower
    channels = [channel for problem in problems for channel in problem.channels]
    if not all(isinstance(channel, RandomizedResponse) for channel in channels):
        reason = "the upper bound needs randomised response on all arms: choose True"
        raise InvalidInput("bounds", bounds, reason)
    return {**lower, "Corollary 2 (leading term)": randomized_response_bound}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One set of axes with mean regret: bands at 95 %, what theory says, the vertical axis.

    Another `quantity` than regret is drawn in the same way.
    `names` are the labels of policies that are not to be called by their plain name; `top` is the
    end of a linear vertical axis that does not follow the curves.
    """

    bands: Literal["pointwise", "simultaneous"] | None
    theory: Theory = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    scale: Literal["log", "linear"] = "linear"
    top: float | None = None
    quantity: str = "regret"

    def __post_init__(self) -> None:
        if self.bands not in ("pointwise", "simultaneous", None):
            reason = 'choose "pointwise", "simultaneous" or None'
            raise InvalidInput("bands", self.bands, reason)
        if self.scale not in ("log", "linear"):
            raise InvalidInput("regret", self.scale, 'choose "log" or "linear"')

    def over_time(
        self, regret: xr.DataArray, problem: Problem, *, ax: Axes | None, time: str
    ) -> Axes:
        """Draw mean regret (policy, replicate, time) against time."""
        if time not in ("log", "linear"):
            raise InvalidInput("time", time, 'choose "log" or "linear"')
        if self.scale == "log":
            regret = regret.sel(time=slice(min(FIRST_LOG_STEP, regret["time"].values[-1]), None))
        times = regret["time"].values.astype(float)
        theory = {label: bound(problem, times) for label, bound in self.theory.items()}
        if self.bands == "simultaneous":
            means = simultaneous_band(regret)
        else:
            means = self._means(regret, statements=1)
        axes = _new_axes() if ax is None else ax
        if time == "log":
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_formatter(PLAIN)
        axes.set_yscale(self.scale)
        _caption(axes, ("steps", self.quantity), self._replicates(regret, "band"))
        self._draw(axes, times, means, theory)
        return axes

    def over_parameter(
        self, regret: xr.DataArray, problems: Sequence[Problem], horizon: int, *, ax: Axes | None
    ) -> Axes:
        """Draw mean regret (parameter, policy, replicate) at the horizon against the parameter."""
        parameter = str(regret.dims[0])
        means = self._means(regret, statements=len(problems))
        theory = {
            label: np.array([bound(problem, float(horizon)) for problem in problems])
            for label, bound in self.theory.items()
        }
        axes = _new_axes() if ax is None else ax
        places = _parameter_axis(axes, means[parameter].values)
        order = np.argsort(places)
        if self.scale == "log" or _spans_decade(means["mean"].values):
            axes.set_yscale("log")
        replicates = self._replicates(regret, "interval")
        _caption(axes, (parameter, self.quantity), f"after {horizon:,} steps, {replicates}")
        ordered = {label: bound[order] for label, bound in theory.items()}
        self._draw(axes, places[order], means.isel({parameter: order}), ordered)
        return axes

    def _means(self, regret: xr.DataArray, *, statements: int) -> xr.Dataset:
        if self.bands is None:
            return xr.Dataset({"mean": regret.mean("replicate")})
        return t_interval(regret, statements=statements if self.bands == "simultaneous" else 1)

    def _replicates(self, regret: xr.DataArray, noun: str) -> str:
        replicates = f"mean of {regret.sizes['replicate']:,} replicates"
        return f"{replicates}, {self.bands} 95 % {noun}s" if self.bands else replicates

    def _draw(
        self, axes: Axes, places: Numbers, means: xr.Dataset, theory: dict[str, Numbers]
    ) -> None:
        names = [str(name) for name in means["policy"].values]
        ends: list[tuple[str, float, Any]] = []
        for place, (name, look) in enumerate(looks(names).items()):
            curve = means.sel(policy=name)
            _draw_curve(axes, places, curve, look=look, shift=place / len(names))
            shown = self.names.get(name, name)
            ends.append((shown, float(curve["mean"].values[-1]), ink(look.colour)))
        drawn = {label: bound for label, bound in theory.items() if 0 < bound.max() < np.inf}
        for (label, bound), dash in zip(drawn.items(), THEORY_DASHES, strict=False):
            axes.plot(places, bound, color=GREY, linestyle=dash, lw=1.1, label=label, zorder=1.5)
            ends.append((label, float(bound[-1]), GREY))
        top = self.top or float(means["upper" if self.bands else "mean"].max())
        regret = means["mean"].values
        bottom = float(regret[regret > 0].min(initial=top or 1.0))
        _limit(axes, bottom, top, [] if self.top else list(drawn.values()))
        label_ends(axes, float(places[-1]), ends)


def stopping_times(stops: xr.Dataset, horizon: int, *, ax: Axes | None) -> Axes:
    """Draw the share of replicates (policy, replicate) that had a certificate by each report.

    It is the empirical distribution function; reports are on a log scale if they span a decade.
    """
    axes = _new_axes() if ax is None else ax
    certified = stops["reports"].values[stops["certified"].values].astype(float)
    if certified.size and _spans_decade(certified):
        axes.set_xscale("log")
        first = certified.min() / 1.2
    else:
        axes.xaxis.set_major_formatter(PLAIN)
        first = 0.0
    axes.set_xlim(first, horizon)
    text = f"{stops.sizes['replicate']:,} replicates, looked at after every report"
    _caption(axes, ("reports", "share with a certificate"), text)
    ends: list[tuple[str, float, Any]] = []
    names = [str(name) for name in stops["policy"].values]
    for name, look in looks(names).items():
        of_policy = stops.sel(policy=name)
        times = np.sort(of_policy["reports"].values[of_policy["certified"].values])
        shares = np.arange(len(times) + 1) / stops.sizes["replicate"]
        axes.step(
            [first, *times, horizon],
            [*shares, shares[-1]],
            where="post",
            color=look.colour,
            linestyle=look.dash,
            linewidth=1.8,
            label=name,
        )
        ends.append((name, float(shares[-1]), ink(look.colour)))
    _limit(axes, 0.0, 1.0, [])
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    label_ends(axes, float(horizon), ends)
    return axes


def spread(targets: Numbers, sizes: Numbers | float, low: float, high: float) -> Numbers:
    """Return the places nearest to the targets (least squares) at which things do not overlap.

    They keep the targets' order and stay between low and high if there is room for all. With
    z_i = place_i − step_i, where steps sum the distances that the sizes of neighbours ask for, this
    is isotonic regression: neighbours that would meet are pooled.

    >>> spread(np.array([5.0, 5.0, 20.0]), 2, 0, 30).tolist()
    [4.0, 6.0, 20.0]
    """
    order = np.argsort(targets, kind="stable")
    halves = np.broadcast_to(np.asarray(sizes) / 2, targets.shape)[order]
    steps = np.concatenate([[0.0], np.cumsum(halves[1:] + halves[:-1])])
    pools: list[tuple[float, int]] = []
    for wanted in targets[order] - steps:
        mean, count = float(wanted), 1
        while pools and pools[-1][0] >= mean:
            other, size = pools.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        pools.append((mean, count))
    free = np.concatenate([np.full(count, mean) for mean, count in pools])
    places = np.empty(len(targets))
    places[order] = np.clip(free, low, max(low, high - steps[-1])) + steps
    return places


def _new_axes() -> Axes:
    return Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained").add_subplot()


def _draw_curve(
    axes: Axes, places: Numbers, curve: xr.Dataset, *, look: Look, shift: float
) -> None:
    """Markers are sparse on a long curve, and shifted so that they do not hide each other."""
    dense = len(places) > 20
    axes.plot(
        places,
        curve["mean"].values,
        color=look.colour,
        linestyle=look.dash,
        linewidth=1.8,
        marker=look.marker,
        markersize=5.5,
        markeredgecolor="white",
        markeredgewidth=0.7,
        markevery=(0.03 + 0.12 * shift, 0.12) if dense else None,
        label=str(curve["policy"].values),
    )
    if "lower" not in curve:
        return
    lower, upper = curve["lower"].values, curve["upper"].values
    if dense:
        axes.fill_between(places, lower, upper, color=look.colour, alpha=0.18, linewidth=0)
    else:
        axes.vlines(places, lower, upper, color=look.colour, linewidth=1.2)


def _parameter_axis(axes: Axes, values: NDArray[Any]) -> Numbers:
    """Return where values stand: on a scale if they are finite numbers, else side by side."""
    number = values.dtype.kind in "iuf" and bool(np.isfinite(values).all())
    places = values.astype(float) if number else np.arange(len(values), dtype=float)
    if number and _spans_decade(places):
        axes.set_xscale("log")
    if not number or len(values) <= 12:
        texts = [f"{value:g}" if values.dtype.kind in "iuf" else str(value) for value in values]
        axes.set_xticks(places, [text.replace("inf", "∞") for text in texts])
        axes.xaxis.set_minor_locator(NullLocator())
    return places


def _spans_decade(values: Numbers) -> bool:
    return bool(values.min() > 0 and values.max() > 10 * values.min())


def _caption(axes: Axes, labels: tuple[str, str], text: str) -> None:
    horizontal, vertical = labels
    axes.set_xlabel(horizontal, fontsize=FONT)
    axes.set_ylabel(vertical, fontsize=FONT)
    axes.set_title(text, **TITLE)


def _limit(axes: Axes, bottom: float, top: float, bounds: Sequence[Numbers]) -> None:
    """Set the vertical range by the curves: a bound far above would flatten them."""
    log = axes.get_yscale() == "log"
    near = [float(bound.max()) for bound in bounds if bound.max() <= (10 if log else 2) * top]
    highest = max([top, *near]) or 1.0
    axes.set_autoscaley_on(False)
    axes.margins(x=0.015)
    if log:
        lowest = min([bottom, *(float(bound.min()) for bound in bounds if bound.min() > 0)])
        lowest = max(lowest, bottom / 10)
        axes.set_ylim(lowest / 1.3, 1.3 * highest)
        wide = highest > 1000 * lowest
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.05 * highest)
    axes.yaxis.set_major_formatter(PLAIN)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=GREY, labelsize=FONT)


def label_ends(axes: Axes, right: float, ends: Sequence[tuple[str, float, Any]]) -> None:
    """Write each name beside its line's end, moved up or down so that names do not overlap."""
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
    point = figure.dpi / 72
    axes.get_xlim()  # makes matplotlib fix the scale that the transform below reads
    bottom, top = axes.get_ylim()
    heights = [min(max(height, bottom), top) for _, height, _ in ends]
    pixels = axes.transData.transform([(right, height) for height in heights])[:, 1] / point
    low, high = axes.bbox.y0 / point, axes.bbox.y1 / point
    sizes = np.array([LINE_HEIGHT * (1 + name.count("\n")) for name, _, _ in ends])
    places = spread(pixels, sizes, low, high - sizes[np.argmax(pixels)] / 2)
    for (name, height, colour), shown, shift in zip(ends, heights, places - pixels, strict=True):
        axes.annotate(
            name if height <= top else f"{name} ↑",
            xy=(right, shown),
            xytext=(LABEL_DISTANCE, shift),
            textcoords="offset points",
            annotation_clip=False,
            color=colour,
            fontsize=FONT,
            linespacing=1.1,
            verticalalignment="center" if "\n" in name else "center_baseline",
            arrowprops=LEADER | {"color": colour} if abs(shift) > 1 else None,
        )


def ink(colour: str) -> tuple[float, float, float]:
    """A darker shade of a line's colour, in which a name can be read on white."""
    red, green, blue = to_rgb(colour)
    return 0.65 * red, 0.65 * green, 0.65 * blue
