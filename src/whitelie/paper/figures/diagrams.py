"""The paper's three diagrams: what feedback can tell, and how kl indices are read from it.

The curves are computed: from a g that the text describes, or from the functions that the algorithm
runs.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from whitelie.channel import RandomizedResponse
from whitelie.kernel.divergence import divergence, lower_end, upper_end
from whitelie.paper.figures.panels import blank, fit
from whitelie.simulation.plot import (
    BLUE,
    DARK,
    DASH_DOT,
    DASHED,
    FONT,
    GREEN,
    GREY,
    SKY,
    SOLID,
    TITLE,
    VERMILLION,
    ink,
    label_ends,
)

WORSE, BEST = 0.3, 0.9
"""μ_a and μ_1 of the first diagram."""

STEEP_WORSE, STEEP_BEST = 0.4, 0.7
"""μ_a and μ_1 of the second diagram."""

RATE, PULLS, STEPS = 0.45, 100, 1_000
"""λ̂_a(t), N_a(t) and t of the third diagram."""

INCREASING = RandomizedResponse(p00=0.8, p11=0.8)
DECREASING = RandomizedResponse(p00=0.15, p11=0.15)

_POINT: Any = {"marker": "o", "markersize": 6, "markeredgecolor": "white", "zorder": 3}
_GUIDE: Any = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (2, 2))}


def hump(mu: float) -> float:
    """g_a of the first diagram: g_a(μ) = 0.8 − 1.6·(μ − 0.6)² is the same at μ_a and μ_1."""
    return 0.8 - 1.6 * (mu - (WORSE + BEST) / 2) ** 2


def steep(mu: float) -> float:
    """g_a of the second diagram: g_a(μ) = 0.1 + 0.8/(1 + e^(−10·(μ − 0.55)))."""
    return 0.1 + 0.8 / (1 + math.exp(-10 * (mu - 0.55)))


def shallow(mu: float) -> float:
    """g_1 of the second diagram: g_1(μ) = λ_a·(μ/μ_1)², so that λ_1 = λ_a."""
    return steep(STEEP_WORSE) * (mu / STEEP_BEST) ** 2


def budget() -> float:
    """f(t)/N of the third diagram, with f(t) = ln t + 3·ln ln t."""
    return (math.log(STEPS) + 3 * math.log(math.log(STEPS))) / PULLS


def uninformative() -> Figure:
    """A g_a that is not monotone, with λ_a = g_a(μ_1): feedback cannot tell arm a from arm 1."""
    axes = _corruption("Uninformative: arm a may be as good as arm 1", middle=0.35)
    _curve(axes, hump, "$g_a$", at=0.6)
    level = hump(WORSE)
    _drop(axes, (WORSE, level), BLUE)
    _drop(axes, (BEST, hump(BEST)), BLUE)
    axes.hlines(level, 0, BEST, **_GUIDE)
    _rewards(axes, WORSE, BEST)
    axes.set_yticks([0, level, 1], ["0", "$\\lambda_a = g_a(\\mu_1)$", "1"])
    return _figure(axes)


def informative() -> Figure:
    """A steep monotone g_a, which turns Δ_a into a clear gap between λ_a and g_a(μ_1).

    Another g_1 makes the two arms have the same mean feedback, λ_1 = λ_a, by chance: that gap does
    not matter.
    """
    axes = _corruption("Informative: a steep $g_a$ widens the gap", middle=0.5)
    _curve(axes, steep, "$g_a$", at=0.83)
    _curve(axes, shallow, "$g_1$", at=0.9, colour=VERMILLION, dash=DASHED)
    level, confused = steep(STEEP_WORSE), steep(STEEP_BEST)
    _drop(axes, (STEEP_WORSE, level), BLUE)
    _drop(axes, (STEEP_BEST, confused), BLUE)
    _drop(axes, (STEEP_BEST, shallow(STEEP_BEST)), VERMILLION)
    axes.hlines([level, confused], 0, STEEP_BEST, **_GUIDE)
    _rewards(axes, STEEP_WORSE, STEEP_BEST)
    _span(axes, (0.12, level), (0.12, confused))
    axes.text(0.14, (level + confused) / 2, "what tells arm a\nfrom arm 1", **_text(BLUE))
    labels = ["0", "$\\lambda_a = \\lambda_1$", "$g_a(\\mu_1)$", "1"]
    axes.set_yticks([0, level, confused, 1], labels)
    return _figure(axes)


def index() -> Figure:
    """How a kl index is computed: which feedback is within the budget, and its best mean reward.

    Above, d(λ̂, q) ≤ f(t)/N holds between two ends. Below, the index is the mean reward that is read
    at an end: at the upper one without corruption and with an increasing g, at the lower one with a
    decreasing g.
    """
    above = blank()
    figure = _figure(above)
    grid = figure.add_gridspec(2, 1, hspace=0.12)
    above.set_subplotspec(grid[0])
    below = figure.add_subplot(grid[1])
    _budget(above)
    low, high = ends()
    notes = []
    for name, inverse, end, colour, dash in (
        ("without corruption", float, high, GREEN, DASH_DOT),
        ("increasing $g_a$", INCREASING.mean_reward, high, BLUE, SOLID),
        ("decreasing $g_a$", DECREASING.mean_reward, low, VERMILLION, DASHED),
    ):
        reward = inverse(end)
        below.plot([0, 1], [inverse(0), inverse(1)], color=colour, linestyle=dash, linewidth=1.8)
        below.hlines(reward, end, 1, **_GUIDE)
        below.plot(end, reward, color=colour, **_POINT)
        notes.append((f"{name}:\nindex {reward:.2f}", reward, ink(colour)))
    below.set_ylim(0, 1.02)
    below.set_yticks([0, 0.5, 1])
    below.set_ylabel("mean reward", fontsize=FONT)
    below.set_xlabel("mean feedback $q$", fontsize=FONT)
    for axes in (above, below):
        axes.vlines([low, high], 0, 2, **_GUIDE)
        axes.set_xlim(0, 1)
    above.set_xticks([0, low, RATE, high, 1], [])
    names = ["0", "lower end", "$\\hat\\lambda_a$", "upper end", "1"]
    below.set_xticks([0, low, RATE, high, 1], names)
    _figure(below)
    label_ends(below, 1.0, notes)
    return fit(below)


def ends() -> tuple[float, float]:
    """The smallest and the largest mean feedback within the budget of the third diagram."""
    return lower_end(RATE, budget()), upper_end(RATE, budget())


def _budget(axes: Axes) -> None:
    low, high = ends()
    places = np.linspace(0.05, 0.95, 181)
    axes.plot(places, [divergence(RATE, q) for q in places], color=DARK, linewidth=1.8)
    within = np.linspace(low, high, 91)
    distances = [divergence(RATE, q) for q in within]
    axes.fill_between(within, distances, budget(), color=SKY, alpha=0.25, linewidth=0)
    axes.axhline(budget(), **_GUIDE)
    axes.set_ylim(0, 0.36)
    label_ends(axes, 1.0, [("budget $f(t)/N_a(t)$", budget(), GREY)])
    axes.text(0.88, 0.31, "$d(\\hat\\lambda_a, q)$", **_text(DARK))
    axes.set_ylabel("divergence", fontsize=FONT)
    title = f"{PULLS} feedbacks of arm a, {100 * RATE:.0f} % ones, in {STEPS:,} steps"
    axes.set_title(title, **TITLE)


def _corruption(title: str, *, middle: float) -> Axes:
    axes = blank(left=1.0)
    axes.set_xlim(0, 1.04)
    axes.set_ylim(0, 1.04)
    axes.set_xlabel("mean reward $\\mu$", fontsize=FONT)
    axes.set_ylabel("mean feedback", fontsize=FONT)
    axes.yaxis.set_label_coords(-0.05, middle)
    axes.set_title(title, **TITLE)
    return axes


def _curve(
    axes: Axes,
    g: Callable[[float], float],
    name: str,
    *,
    at: float,
    colour: str = BLUE,
    dash: Any = SOLID,
) -> None:
    places = np.linspace(0, 1, 201)
    axes.plot(places, [g(mu) for mu in places], color=colour, linestyle=dash, linewidth=1.8)
    corner = {"fontsize": 12, "ha": "right", "va": "bottom"}
    axes.text(at, g(at) + 0.02, name, **_text(colour) | corner)


def _drop(axes: Axes, point: tuple[float, float], colour: str) -> None:
    axes.vlines(point[0], 0, point[1], **_GUIDE)
    axes.plot(*point, color=colour, **_POINT)


def _rewards(axes: Axes, worse: float, best: float) -> None:
    axes.set_xticks([0, worse, best, 1], ["0", "$\\mu_a$", "$\\mu_1$", "1"])
    _span(axes, (worse, 0.07), (best, 0.07))
    centred = {"ha": "center", "va": "bottom"}
    axes.text((worse + best) / 2, 0.085, "$\\Delta_a$", **_text(GREY) | centred)


def _span(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "<->", "color": GREY, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", start, end, arrowprops=arrow)


def _text(colour: str) -> dict[str, Any]:
    return {"color": ink(colour), "fontsize": FONT, "va": "center"}


def _figure(axes: Axes) -> Figure:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(color=GREY, labelsize=FONT)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
