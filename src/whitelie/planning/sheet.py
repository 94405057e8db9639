"""The price sheet: a plan as one page to hand to those who decide, and to print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from whitelie.composition import rounded_up
from whitelie.estimate import ALPHA
from whitelie.figure import BLUE, FONT, GREY, PLAIN, VERMILLION, ink, label_ends
from whitelie.page import Picture, Table, render, svg
from whitelie.planning.budget import Budget
from whitelie.planning.design import YEAR, Design
from whitelie.planning.knowing import LEVEL, SURE, Chance, Time
from whitelie.planning.option import Mechanism, Option, People, amount, epsilon_text, percent
from whitelie.planning.proposal import Plan
from whitelie.planning.runs import KNOWN, RECENT, SHARE
from whitelie.policy import KLUCB, TS, UCB, UCB1, Policy

TITLE = "What privacy costs"
BEYOND = f"> {YEAR}"
WIDTH, HEIGHT = 3.7, 2.7
LEFT, RIGHT, BOTTOM, TOP = 0.68, 0.12, 0.5, 0.3
"""A panel and its margins in inches."""

POLICIES: dict[type[Policy], str] = {
    TS: "Thompson sampling",
    KLUCB: "kl-UCB",
    UCB: "UCB",
    UCB1: "UCB1",
}
FEW = 4
"""So many different rates are listed; of more the smallest and largest are given."""


def sheet(plan: Plan) -> str:
    """Return the price sheet of a plan as the text of one HTML file."""
    marked = _marked(plan)
    page = render(
        "planning/sheet.html",
        title=TITLE,
        design=_design(plan.design),
        advice=_advice(plan),
        pictures=pictures(plan),
        beyond=any(one.option.know.days_high is None for one in marked),
        left_out=_left_out(marked),
        options=_options(plan, marked),
        gains=_gains(marked),
        theory=_theory(plan, marked),
        terms=_terms(plan),
        provenance=_provenance(plan),
    )
    return page.replace(" %", "\N{NO-BREAK SPACE}%")


@dataclass(frozen=True)
class Marked:
    """An option of the sheet, and a word for it if the recommendation is about it."""

    option: Option
    mark: str = ""

    @property
    def name(self) -> str:
        """Its epsilon."""
        return epsilon_text(self.option.epsilon)


@dataclass(frozen=True)
class Advice:
    """The recommendation in words: the budget, what is recommended, and if the rates differ."""

    budget: str
    met: bool
    text: str
    guesses: tuple[tuple[str, str, bool], ...]


def pictures(plan: Plan) -> tuple[Picture, ...]:
    """Return the two panels of the price curve; none where no epsilon is finite."""
    shown = [one for one in _marked(plan) if one.option.epsilon < math.inf]
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
    shown = [one for one in _marked(plan) if one.option.epsilon < math.inf]
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
    shown = [one for one in _marked(plan) if one.option.epsilon < math.inf]
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
    shown = [one for one in _marked(plan) if one.option.epsilon < math.inf]
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


def _marked(plan: Plan) -> list[Marked]:
    """The options by epsilon; the recommended one is marked, and added if it is not there."""
    found = plan.recommendation
    options = [Marked(option) for option in plan.options]
    if found is not None:
        mark = "recommended" if found.met else "closest"
        channel = found.option.mechanism.channel
        others = [one for one in options if one.option.mechanism.channel != channel]
        options = [*others, Marked(found.option, mark)]
    return sorted(options, key=lambda one: one.option.epsilon)


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


def _said(shown: Sequence[Marked], words: Any) -> str:
    return "; ".join(f"ε = {one.name}: {words(one.option)}" for one in shown) + "."


def _lost_words(option: Option) -> str:
    return amount(option.lost_rewards)


def _know_words(option: Option) -> str:
    return str(option.know)


def _days(days: float | None) -> float:
    return math.inf if days is None else days


def _is_symmetric(option: Option) -> bool:
    return option.mechanism.channel.p00 == option.mechanism.channel.p11


def _left_out(marked: Sequence[Marked]) -> str:
    """Name the options that an axis of finite epsilons cannot show."""
    endless = [one.option for one in marked if one.option.epsilon == math.inf]
    if not endless:
        return ""
    names = [reveals(option.mechanism).partition("\n")[0] for option in endless]
    return f"Not on the axis, since ε = ∞: {'; '.join(names)}."


def _design(design: Design) -> str:
    """Describe a design in a sentence or two."""
    arriving = "" if design.arrive == 1 else f", of which {percent(design.arrive)} arrive"
    several = design.reports_per_person
    each = f" Each person sends {several} reports in all." if several > 1 else ""
    rates = sorted(design.rates, reverse=True)
    lead = 100 * (rates[0] - max(rate for rate in rates if rate < rates[0]))
    points = "percentage point" if f"{lead:.3g}" == "1" else "percentage points"
    policy = f"{POLICIES[type(design.policy)]} ({design.policy.label})"
    return (
        f"{len(rates)} variants {_rates(rates)}. The difference that matters is "
        f"{lead:.3g} {points}. {design.traffic:,.10g} answers are asked for on a day"
        f"{arriving}.{each} {policy} decides what is shown."
    )


def _rates(rates: Sequence[float]) -> str:
    """Return expected rates in words, largest first.

    >>> _rates([0.06, 0.05, 0.05])
    'with expected rates: one at 6 % and two at 5 %'
    """
    different = list(dict.fromkeys(rates))
    if len(different) > FEW:
        return f"with expected rates from {percent(different[-1])} to {percent(different[0])}"
    if len(different) == len(rates):
        return f"with expected rates {_listed([percent(rate) for rate in different])}"
    counts = [f"{_count(rates.count(rate))} at {percent(rate)}" for rate in different]
    return f"with expected rates: {_listed(counts)}"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _count(number: int) -> str:
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number - 1] if number <= len(words) else str(number)


def _advice(plan: Plan) -> Advice | None:
    found = plan.recommendation
    if found is None:
        return None
    return Advice(
        budget=_budget(found.budget),
        met=found.met,
        text=str(found)[:1].upper() + str(found)[1:],
        guesses=tuple(
            (guess.guess, found.budget.words(guess.spent), guess.met) for guess in found.sensitivity
        ),
    )


def _budget(budget: Budget) -> str:
    if budget.kind == "lose_at_most":
        return f"lose at most {amount(budget.amount)} rewards in a year"
    return f"know the best variant within {budget.amount:g} days"


def _options(plan: Plan, marked: Sequence[Marked]) -> Table:
    columns = [
        "ε",
        "What one report reveals",
        "One noise-free report is worth",
        "Rewards lost in a year\nmean; 90 % of runs",
        "Until one knows\n95 % interval",
        "Until intervals separate\n95 % interval",
        "Chance to end on a wrong variant",
    ]
    several = plan.design.reports_per_person > 1
    if several:
        columns.append(f"ε of {plan.design.reports_per_person} reports of one person")
    rows = [_row(one, several=several) for one in marked]
    return Table("", tuple(columns), tuple(rows))


def _row(one: Marked, *, several: bool) -> tuple[str, ...]:
    option = one.option
    last = option.lost
    cells = [
        f"{one.name}\n{one.mark}" if one.mark else one.name,
        reveals(option.mechanism),
        f"{_figures(option.mechanism.worth)}\nof these",
        f"{amount(option.lost_rewards)}\n{amount(last.lucky[-1])} to {amount(last.unlucky[-1])}",
        _time(option.know),
        _time(option.separate),
        _chance(option.wrong),
    ]
    return (*cells, _people(option.people)) if several else tuple(cells)


def reveals(mechanism: Mechanism) -> str:
    r"""Say what one report tells about the person who sent it.

    >>> from whitelie.channel import RandomizedResponse
    >>> print(reveals(Mechanism(RandomizedResponse.from_epsilon(8), 1.0)))
    Truthful with probability 99.966 %
    moves anyone's belief by at most a factor 2,990
    """
    return f"{mechanism.truth[0].upper()}{mechanism.truth[1:]}\n{mechanism.belief}"


def _time(time: Time) -> str:
    text, _, ends = str(time).partition(" (")
    return f"{text}\n{ends.removesuffix(')')}" if ends else text


def _chance(chance: Chance) -> str:
    most = float(rounded_up(100 * chance.high, 2))
    return f"{percent(chance.estimate)}\nat most {min(most, 100.0):g} %"


def _people(people: People) -> str:
    if people.basic == math.inf:
        return "∞"
    total = f"{people.basic:g}"
    if not people.composed < people.basic * (1 - 1e-9):
        return total
    return f"{total}\nor {rounded_up(people.composed, 3)} with δ = {people.delta:g}"


def _gains(marked: Sequence[Marked]) -> list[tuple[str, str]]:
    """Return how many times as much a report tells where only a yes is sensitive."""
    unequal = [(one.name, one.option.unequal) for one in marked]
    return [(name, _figures(gain.only_yes)) for name, gain in unequal if gain is not None]


def _theory(plan: Plan, marked: Sequence[Marked]) -> Table:
    """Return the bounds; those above what can be lost at all say nothing, and are left out."""
    design = plan.design
    most = YEAR * design.traffic * (max(design.rates) - min(design.rates))
    columns = ["ε", "C", "C·ln\N{NO-BREAK SPACE}T"]
    bounded = any(one.option.theory.leading is not None for one in marked)
    explicit = any(one.option.theory.explicit is not None for one in marked)
    columns += ["Corollary 2, leading term"] * bounded
    columns += ["Theorem 2, upper bound"] * explicit
    rows = []
    for one in marked:
        theory = one.option.theory
        bounds = [theory.lower, *[theory.leading] * bounded, *[theory.explicit] * explicit]
        texts = ["–" if b is None or b > most else amount(b) for b in bounds]
        rows.append((one.name, _figures(theory.constant), *texts))
    return Table("", tuple(columns), tuple(rows))


def _terms(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the words of the sheet and their meanings."""
    known, sure, arms = percent(KNOWN), percent(SURE), len(plan.design.rates)
    return (
        (
            "ε",
            "how much one report can say about the person who sent it. It multiplies or divides "
            "the odds of whatever anyone believed by at most e to the power ε, the factor in the "
            "table. Smaller is more private. k reports of one person cost k·ε together.",
        ),
        (
            "Rewards lost (regret)",
            "what always showing the best variant would have earned more, on all answers "
            "asked for in a year.",
        ),
        (
            "Until one knows",
            f"the first time at which in {sure} of simulated runs the best variant had more than "
            f"{known} of the last {percent(1 / RECENT)} of reports.",
        ),
        (
            "Until intervals separate",
            f"the first time by which in {sure} of runs one variant’s confidence interval lay "
            f"above all others. The intervals may be watched all the time; each is at level "
            f"{percent(ALPHA)}/{arms}. A learner that stops showing poor variants may never "
            "get there.",
        ),
        (
            "Wrong variant",
            "the one with most of the last reports of the year is not the best; “at most” is the "
            f"upper end of a {percent(LEVEL)} interval.",
        ),
    )


def _provenance(plan: Plan) -> str:
    return (
        f"Simulated: {plan.replicates:,} runs of a year each, in batches of {percent(SHARE)} of "
        f"the reports before; seed {plan.seed}; whitelie {version('whitelie')}."
    )


def _figures(value: float) -> str:
    """Return a number to three figures, without an exponent.

    >>> _figures(299.26), _figures(1837.9), _figures(1.0), _figures(math.inf)
    ('299', '1,840', '1.00', '∞')
    """
    if value == math.inf:
        return "∞"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:#.3g}"
