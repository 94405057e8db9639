"""The price sheet: one page that says what the plan says, and fits on one sheet of paper."""

import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from playwright.sync_api import Browser

from helpers.chromium_page import look, print_pages
from whitelie import KLUCB, RandomizedResponse
from whitelie.planning import Chance, Plan, plan
from whitelie.planning.curves import (
    days_figure,
    figures,
    frontier_figure,
    frontier_page_figure,
    lost_figure,
)
from whitelie.planning.design import DAYS_PER_YEAR
from whitelie.planning.option import Mechanism
from whitelie.planning.sheet import reveals, sheet

ONE_SIDED = RandomizedResponse.from_epsilons(epsilon0=math.inf, epsilon1=1.0)
SLANTED = RandomizedResponse.from_epsilons(epsilon0=1.5, epsilon1=0.4)


@pytest.fixture(scope="module")
def usual() -> Plan:
    """Seven options for five variants, and a budget that is kept."""
    return plan(
        arms=5,
        rate=0.3,
        difference=0.1,
        traffic=1000,
        epsilon=[0.25, 0.5, 1, 2, 3, 4, 8],
        within_days=60,
        replicates=100,
    )


@pytest.fixture(scope="module")
def hard() -> Plan:
    """Little traffic: beyond the year, epsilon infinite, a budget not kept, several reports."""
    return plan(
        rates=[0.2, 0.25, 0.3],
        traffic=100,
        arrive=0.5,
        reports_per_person=50,
        channel=[RandomizedResponse.from_epsilon(e) for e in (0.1, 2.0)] + [ONE_SIDED, SLANTED],
        within_days=1,
        replicates=100,
    )


@pytest.fixture(scope="module")
def bare() -> Plan:
    """No budget, a policy that explores enough for a certificate, many different rates."""
    return plan(
        rates=[0.1, 0.2, 0.3, 0.4, 0.8],
        traffic=1000,
        epsilon=4,
        policy=KLUCB(),
        replicates=100,
    )


@pytest.fixture(scope="module")
def known() -> Plan:
    """A plan to know, at the default epsilons and with a recommendation: five policies, a curve."""
    return plan(
        arms=5,
        rate=0.3,
        difference=0.4,
        traffic=50,
        goal="know",
        within_days=30,
        replicates=100,
    )


@pytest.fixture(params=["usual", "hard", "bare"])
def planned(request: pytest.FixtureRequest) -> Plan:
    named: Plan = request.getfixturevalue(request.param)
    return named


def written(planned: Plan, folder: Path) -> Path:
    path = folder / "sheet.html"
    path.write_text(sheet(planned), encoding="utf-8")
    return path


def words(page: str) -> str:
    """What a page says, in one line."""
    body = page[page.index("<body>") :]
    text = re.sub(r"<[^>]*>", " ", re.sub(r"</?(?:strong|b)>", "", body))
    return " ".join(unescape(text).split())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 800, 390, 320])
def test_all_is_seen_in_any_window_without_a_network(
    chromium: Browser, planned: Plan, tmp_path: Path, width: int, dark: bool
) -> None:
    rendered = look(chromium, written(planned, tmp_path), width, dark=dark)
    assert rendered.faults == []
    assert len(rendered.images) == 3
    assert len({image.left for image in rendered.images}) == (3 if width >= 800 else 1)
    for option in planned.options:
        assert f"{option.lost_rewards:,.0f}" in rendered.text


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (800, False), (390, True), (320, False)])
def test_a_plan_to_know_is_seen_in_any_window(
    chromium: Browser, known: Plan, tmp_path: Path, width: int, dark: bool
) -> None:
    rendered = look(chromium, written(known, tmp_path), width, dark=dark)
    assert rendered.faults == []
    assert len(rendered.images) == 4
    for policy in known.comparisons:
        for certified in policy.certified:
            assert certified.mean_text in rendered.text


def test_a_plan_to_know_prints_on_one_sheet(chromium: Browser, known: Plan, tmp_path: Path) -> None:
    assert print_pages(chromium, written(known, tmp_path)) == 1


def test_a_plan_to_know_says_its_numbers(known: Plan) -> None:
    page = words(sheet(known))
    for option in known.shown:
        certified = option.certified
        assert f"{certified.mean_text} days in 95 %: {certified.within_text} days" in page
        until = certified.lost_until
        assert f"{until.value:,.0f} ± " in page
    assert known.recommendation is not None
    assert "a certificate within 30 days in 95 % of runs" in page
    assert "then that one is. The certificate is wrong with probability at most 5 %" in page
    assert "100 runs of a year each (100 of what is compared with them)" in page
    for word in ("Theorem", "Until traffic goes to the best", "intervals separate"):
        assert word not in page


def test_the_curve_is_what_know_trades(known: Plan) -> None:
    assert known.frontier is not None
    (axes,) = frontier_figure(known, known.frontier).axes
    drawn = {
        str(line.get_label()): (line.get_xdata()[0], line.get_ydata()[0])  # type: ignore[index]  # matplotlib promises ArrayLike only
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }
    known_of = {f"know = {point.know:g}": point.certified for point in known.frontier.points}
    row = known.shown.index(known.recommendation.option)  # type: ignore[union-attr]  # there is one
    for policy in known.comparisons:
        if policy.name == "equal shares":
            known_of[policy.name] = policy.certified[row]
    for name, certified in known_of.items():
        assert drawn[name] == (certified.lost_in_year.value, certified.days.value), name
    assert not any(name.startswith("TopTwo") for name in drawn)
    figure = frontier_page_figure(known)
    assert figure is not None
    assert "know = 0.35: " in figure.alt


def test_without_any_certificate_there_is_no_curve(known: Plan) -> None:
    never = replace(known.options[0].certified, share=Chance(0.0, 0.0, 0.04))
    assert known.frontier is not None
    points = tuple(replace(point, certified=never) for point in known.frontier.points)
    hopeless = replace(known, frontier=replace(known.frontier, points=points))
    assert frontier_page_figure(hopeless) is None
    assert "Squares" not in sheet(hopeless)


def test_it_prints_on_one_sheet(chromium: Browser, planned: Plan, tmp_path: Path) -> None:
    assert print_pages(chromium, written(planned, tmp_path)) == 1


def test_many_options_print_on_two_sheets(chromium: Browser, usual: Plan, tmp_path: Path) -> None:
    many = replace(usual, options=usual.options * 2)
    assert print_pages(chromium, written(many, tmp_path)) == 2


def test_every_option_has_a_row_with_its_numbers(planned: Plan) -> None:
    page = sheet(planned)
    rows = [words(f"<body>{row}") for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]
    recommended = planned.recommendation
    for option in (*planned.options, *([recommended.option] if recommended else [])):
        name = "∞" if option.epsilon == math.inf else f"{option.epsilon:g}"
        (row,) = (row for row in rows if row.startswith(f"{name} ") and "ruthful" in row)
        ends = f"{option.lost.lucky[-1]:,.0f} to {option.lost.unlucky[-1]:,.0f}"
        assert f"{option.lost_rewards:,.0f} {ends}" in row
        assert " ".join(re.split(r"[()\s]+", str(option.settled))).strip() in row
        assert f"{option.certified.mean_text} days" in row
        assert f"{100 * option.wrong.estimate:.2f}".rstrip("0").rstrip(".") + " %" in row
        assert reveals(option.mechanism).replace("\n", " ") in row


def test_what_a_report_reveals_is_never_understated() -> None:
    for epsilon in (0.1, 0.5, 1.0, 3.0, 8.0, 12.0):
        said = reveals(Mechanism(RandomizedResponse.from_epsilon(epsilon), worth=1.0))
        factor = float(said.split()[-1].replace(",", ""))
        assert math.exp(epsilon) <= factor * (1 + 1e-12) < 1.01 * math.exp(epsilon) + 0.01
        assert "probability 100 %" not in said


def test_the_recommendation_is_shown_if_there_is_one(usual: Plan, hard: Plan, bare: Plan) -> None:
    for planned, mark in ((usual, "recommended"), (hard, "closest")):
        assert planned.recommendation is not None
        page = words(sheet(planned))
        assert str(planned.recommendation).lower() in page.lower()
        assert f"{planned.recommendation.epsilon:g} {mark}" in page
        for guess in planned.recommendation.sensitivity:
            verdict = "✓ within" if guess.met else "✗ over"
            spent = planned.recommendation.budget.words(guess.spent)
            assert f"{spent}, {verdict} the budget" in page
    for word in ("Recommendation", "recommended", "closest", "budget"):
        assert word not in words(sheet(bare))


def test_a_recommended_option_of_the_plan_has_one_row(usual: Plan) -> None:
    recommended = usual.recommendation
    assert recommended is not None
    both = replace(usual, options=(*usual.options, recommended.option))
    assert sheet(both) == sheet(usual)


def test_the_design_and_the_runs_are_described(usual: Plan, hard: Plan, bare: Plan) -> None:
    assert (
        "5 variants with expected rates: one at 40 % and four at 30 %. The difference that matters "
        "is 10 percentage points. 1,000 answers are asked for on a day. Thompson sampling (TS-CF) "
        "decides what is shown. The certificate is wrong with probability at most 5 %, however "
        "often one looks; it expects a rate of 30 % and a difference of 10 percentage points, "
    ) in words(sheet(usual))
    page = words(sheet(hard))
    assert "3 variants with expected rates 30 %, 25 % and 20 %." in page
    assert "on a day, of which 50 % arrive. Each person sends 50 reports in all." in page
    assert "expected rates from 10 % to 80 %" in words(sheet(bare))
    assert "Simulated: 100 runs of a year each, in batches of 1 %" in page


def test_several_reports_of_a_person_are_summed(usual: Plan, hard: Plan) -> None:
    page = words(sheet(hard))
    assert "ε of 50 reports of one person" in page
    people = hard.options[0].people
    assert people.composed < people.basic
    assert f"{people.basic:g} or " in page
    assert f"with δ = {people.delta:g}" in page
    assert "reports of one person" not in words(sheet(usual)).partition("How to read")[0]


def test_gains_of_unequal_budgets_are_told_with_their_price(hard: Plan) -> None:
    page = words(sheet(hard))
    assert "a report of “no” proves a “no”. Never use this where “no” is sensitive too." in page
    for option in hard.options:
        if option.unequal is not None:
            assert f"ε = {option.epsilon:g}: {option.unequal.only_yes:#.3g}" in page
    assert "sensitive" not in words(
        sheet(replace(hard, options=(hard.options[2],), recommendation=None))
    )


def points(figure: Figure) -> dict[str, tuple[float, float]]:
    (axes,) = figure.axes
    return {
        str(line.get_label()): (float(line.get_xdata()[0]), float(line.get_ydata()[0]))  # type: ignore[index, arg-type]  # matplotlib promises ArrayLike only
        for line in axes.lines
        if str(line.get_label()).startswith("ε")
    }


def test_points_are_the_numbers_of_the_plan(planned: Plan) -> None:
    lost, days = points(lost_figure(planned)), points(days_figure(planned))
    for option in planned.options:
        name = f"ε = {option.epsilon:g}"
        if option.epsilon == math.inf:
            assert name not in lost
            assert "∞" not in "".join(lost)
            continue
        assert lost[name] == (option.epsilon, option.lost_rewards)
        assert days[name][0] == option.epsilon
        if option.settled.days is None:
            assert days[name][1] > DAYS_PER_YEAR
        else:
            assert days[name][1] == option.settled.days


def test_bars_are_the_intervals(usual: Plan) -> None:
    (axes,) = lost_figure(usual).axes
    bars = [path.vertices for lines in axes.collections for path in lines.get_paths()]
    for option in usual.options:
        ends = [[option.epsilon, option.lost.low[-1]], [option.epsilon, option.lost.high[-1]]]
        assert any(np.allclose(bar, ends) for bar in bars)


def test_beyond_the_year_is_said_and_infinite_epsilons_are_named(hard: Plan, usual: Plan) -> None:
    (axes,) = days_figure(hard).axes
    assert "> 365" in [label.get_text() for label in axes.get_yticklabels()]
    page = words(sheet(hard))
    assert "Arrows: not within the year." in page
    assert "Not on the axis, since ε = ∞: A “yes” is truthful with probability 100 %" in page
    assert "Not on the axis" not in words(sheet(usual))


def test_one_sided_channels_alone_have_no_figure(
    chromium: Browser, hard: Plan, tmp_path: Path
) -> None:
    alone = replace(hard, options=(hard.options[2],), recommendation=None)
    assert figures(alone) == ()
    assert look(chromium, written(alone, tmp_path), 390).faults == []


def test_texts_are_escaped(usual: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whitelie.planning.sheet.TITLE", '<i title="\'">&amp;</i>')
    page = sheet(usual)
    assert "<i title" not in page
    assert page.count("&lt;i title=&#34;&#39;&#34;&gt;&amp;amp;&lt;/i&gt;") == 2
    assert "> 365" not in re.sub(r"<[^>]*>", "", page)


def test_the_same_plan_gives_the_same_page(usual: Plan) -> None:
    page = sheet(usual)
    assert page == sheet(usual)
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href)="(data:|[^"]*)', page)) == {"data:"}


def test_figures_have_alternative_texts(usual: Plan) -> None:
    for figure in figures(usual):
        assert isinstance(figure.svg, bytes)
        assert ElementTree.fromstring(figure.svg).tag.endswith("svg")
        for option in usual.options:
            assert f"ε = {option.epsilon:g}: " in figure.alt
