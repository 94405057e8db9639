"""Regret as a picture: curves, how sure they are, and what theory says.

Colour and marker tell the rule (kl-UCB, UCB, UCB1, TS), the line tells how it reads feedback:
corrected solid, naive dashed, wrapped dotted. So every policy looks the same in every figure, to
colour-blind eyes (the palette is Okabe and Ito's) and in grey. Names stand where the lines end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from whitelie.bands import simultaneous_band, t_interval
from whitelie.bounds import lower_bound, randomized_response_bound
from whitelie.channel import RandomizedResponse
from whitelie.errors import InvalidInput
from whitelie.problem import Problem

Dash = str | tuple[float, tuple[float, ...]]
Numbers = NDArray[np.float64]

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, DARK, GREY = "#E69F00", "#56B4E9", "#333333", "#6B6B6B"
SOLID: Dash = "solid"
DASHED: Dash = (0, (3.5, 1.3))
DOTTED: Dash = (0, (1, 1))
DASH_DOT: Dash = (0, (5, 1.3, 1, 1.3))
LONG_DASHES: Dash = (0, (8, 3))

FONT = 9.0
LINE_HEIGHT = 1.3 * FONT
LABEL_DISTANCE = 12.0
LEADER = {"arrowstyle": "-", "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}
PLAIN = "{x:,.10g}"


class Look(NamedTuple):
    """How a policy is drawn."""

    colour: str
    dash: Dash
    marker: str


KNOWN = {
    "kl-UCB-CF": Look(BLUE, SOLID, "o"),
    "kl-UCB": Look(BLUE, DASHED, "o"),
    "WR(kl-UCB)": Look(BLUE, DOTTED, "o"),
    "TS-CF": Look(VERMILLION, SOLID, "^"),
    "TS": Look(VERMILLION, DASHED, "^"),
    "WR(TS)": Look(VERMILLION, DOTTED, "^"),
    "UCB-CF": Look(GREEN, SOLID, "s"),
    "UCB": Look(GREEN, DASHED, "s"),
    "WR(UCB)": Look(GREEN, DOTTED, "s"),
    "UCB1": Look(SKY, DASHED, "D"),
    "WR(UCB1)": Look(SKY, DOTTED, "D"),
    "DP-UCB-INT": Look(PURPLE, DASH_DOT, "v"),
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


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What is drawn beside the mean regret: bands at 95 %, and bounds."""

    bands: Literal["pointwise", "simultaneous"] | None
    bounds: Literal["both"] | bool

    def __post_init__(self) -> None:
        if self.bands not in ("pointwise", "simultaneous", None):
            reason = 'choose "pointwise", "simultaneous" or None'
            raise InvalidInput("bands", self.bands, reason)
        if self.bounds not in (True, False, "both"):
            raise InvalidInput("bounds", self.bounds, 'choose True, False or "both"')

    def over_time(
        self, regret: xr.DataArray, problem: Problem, *, ax: Axes | None, time: str
    ) -> Axes:
        """Draw mean regret (policy, replicate, time) against time."""
        if time not in ("log", "linear"):
            raise InvalidInput("time", time, 'choose "log" or "linear"')
        times = regret["time"].values.astype(float)
        theory = {label: bound(problem, times) for label, bound in self._theory([problem]).items()}
        if self.bands == "simultaneous":
            found = simultaneous_band(regret)
        else:
            found = self._found(regret, statements=1)
        axes = _new_axes() if ax is None else ax
        if time == "log":
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_formatter(PLAIN)
        _caption(axes, "steps", self._replicates(regret, "band"))
        self._draw(axes, times, found, theory)
        return axes

    def over_parameter(
        self, regret: xr.DataArray, problems: Sequence[Problem], horizon: int, *, ax: Axes | None
    ) -> Axes:
        """Draw mean regret (parameter, policy, replicate) at the horizon against the parameter."""
        parameter = str(regret.dims[0])
        found = self._found(regret, statements=len(problems))
        theory = {
            label: np.array([bound(problem, float(horizon)) for problem in problems])
            for label, bound in self._theory(problems).items()
        }
        axes = _new_axes() if ax is None else ax
        places = _parameter_axis(axes, found[parameter].values)
        order = np.argsort(places)
        if _spans_decade(found["mean"].values):
            axes.set_yscale("log")
        replicates = self._replicates(regret, "interval")
        _caption(axes, parameter, f"after {horizon:,} steps, {replicates}")
        ordered = {label: bound[order] for label, bound in theory.items()}
        self._draw(axes, places[order], found.isel({parameter: order}), ordered)
        return axes

    def _found(self, regret: xr.DataArray, *, statements: int) -> xr.Dataset:
        if self.bands is None:
            return xr.Dataset({"mean": regret.mean("replicate")})
        return t_interval(regret, statements=statements if self.bands == "simultaneous" else 1)

    def _theory(self, problems: Sequence[Problem]) -> dict[str, Any]:
        theory: dict[str, Any] = {}
        if self.bounds:
            theory["Theorem 1 (lower bound)"] = lower_bound
        if self.bounds == "both":
            for problem in problems:
                for channel in problem.channels:
                    if not isinstance(channel, RandomizedResponse):
                        reason = (
                            "the upper bound needs randomised response on all arms: choose True"
                        )
                        raise InvalidInput("bounds", self.bounds, reason)
            theory["Corollary 2 (leading term)"] = randomized_response_bound
        return theory

    def _replicates(self, regret: xr.DataArray, noun: str) -> str:
        replicates = f"mean of {regret.sizes['replicate']:,} replicates"
        return f"{replicates}, {self.bands} 95 % {noun}s" if self.bands else replicates

    def _draw(
        self, axes: Axes, places: Numbers, found: xr.Dataset, theory: dict[str, Numbers]
    ) -> None:
        names = [str(name) for name in found["policy"].values]
        ends: list[tuple[str, float, Any]] = []
        for place, (name, look) in enumerate(looks(names).items()):
            curve = found.sel(policy=name)
            _draw_curve(axes, places, curve, look=look, shift=place / len(names))
            ends.append((name, float(curve["mean"].values[-1]), _ink(look.colour)))
        drawn = {label: bound for label, bound in theory.items() if 0 < bound.max() < np.inf}
        for (label, bound), dash in zip(drawn.items(), (LONG_DASHES, DASH_DOT), strict=False):
            axes.plot(places, bound, color=GREY, linestyle=dash, lw=1.1, label=label, zorder=1.5)
            ends.append((label, float(bound[-1]), GREY))
        _limit(axes, float(found["upper" if self.bands else "mean"].max()), list(drawn.values()))
        _label_ends(axes, float(places[-1]), ends)


def spread(targets: Numbers, distance: float, low: float, high: float) -> Numbers:
    """Return the places nearest to the targets (least squares) that are `distance` apart.

    They keep the targets' order and stay between low and high if there is room for all. With
    z_i = place_i − i·distance this is isotonic regression: neighbours that would meet are pooled.

    >>> spread(np.array([5.0, 5.0, 20.0]), 2, 0, 30).tolist()
    [4.0, 6.0, 20.0]
    """
    order = np.argsort(targets, kind="stable")
    steps = distance * np.arange(len(targets))
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


def _caption(axes: Axes, horizontal: str, text: str) -> None:
    axes.set_xlabel(horizontal)
    axes.set_ylabel("regret")
    axes.set_title(text, loc="left", fontsize=FONT, color=GREY)


def _limit(axes: Axes, top: float, bounds: Sequence[Numbers]) -> None:
    """A bound far above all curves leaves the picture, rather than flattening them."""
    log = axes.get_yscale() == "log"
    near = [float(bound.max()) for bound in bounds if bound.max() <= (10 if log else 2) * top]
    highest = max([top, *near]) or 1.0
    axes.margins(x=0.015)
    if log:
        axes.set_ylim(top=1.3 * highest)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.05 * highest)
    axes.yaxis.set_major_formatter(PLAIN)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=GREY, labelsize=FONT)


def _label_ends(axes: Axes, right: float, ends: Sequence[tuple[str, float, Any]]) -> None:
    """Write each name beside its line's end, moved up or down as far as names would overlap."""
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    figure.draw_without_rendering()
    point = figure.dpi / 72
    bottom, top = axes.get_ylim()
    heights = [min(max(height, bottom), top) for _, height, _ in ends]
    pixels = axes.transData.transform([(right, height) for height in heights])[:, 1] / point
    low, high = axes.bbox.y0 / point, axes.bbox.y1 / point
    places = spread(pixels, LINE_HEIGHT, low, high)
    for (name, height, ink), shown, shift in zip(ends, heights, places - pixels, strict=True):
        axes.annotate(
            name if height <= top else f"{name} ↑",
            xy=(right, shown),
            xytext=(LABEL_DISTANCE, shift),
            textcoords="offset points",
            annotation_clip=False,
            color=ink,
            fontsize=FONT,
            verticalalignment="center_baseline",
            arrowprops=LEADER | {"color": ink, "linewidth": 0.6 if abs(shift) > 1 else 0},
        )


def _ink(colour: str) -> tuple[float, float, float]:
    """A darker shade of a line's colour, in which a name can be read on white."""
    red, green, blue = to_rgb(colour)
    return 0.7 * red, 0.7 * green, 0.7 * blue
