"""`whitelie plan`: what privacy costs, as a table, as JSON, or as a sheet to hand on."""

import json
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from whitelie.cli.command import Jobs, interruptible, show
from whitelie.errors import InvalidInput

if TYPE_CHECKING:
    from whitelie.channel import RandomizedResponse
    from whitelie.planning import Certified, Chance, Frontier, Option, Plan, Time
    from whitelie.policy import Policy


SHEET_MARK = b'<meta name="generator" content="whitelie plan">'


def plan(
    traffic: Annotated[float, typer.Option(metavar="N", help="Answers asked for on a day.")],
    arms: Annotated[
        int | None, typer.Option(metavar="K", help="How many variants, of which one is better.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="P", help='The usual rate of "yes" or clicks.')
    ] = None,
    difference: Annotated[
        float | None, typer.Option(metavar="P", help="The difference that matters: 0.01.")
    ] = None,
    rates: Annotated[
        str | None, typer.Option(metavar="P,P,…", help="Or the expected rate of every variant.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="E,E,…", help="Privacy of a report; by default 0.5,1,2.")
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="Or a mechanism, as in the files of simulate: 'p00 = 0.9, p11 = 0.6', "
            "'design = \"warner\", p = 0.8', 'epsilon0 = inf, epsilon1 = 1'. May be repeated.",
        ),
    ] = None,
    arrive: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of answers that are ever reported on.")
    ] = 1.0,
    delay: Annotated[
        float, typer.Option(metavar="DAYS", help="How long after a decision its report arrives.")
    ] = 0.0,
    reports_per_person: Annotated[
        int, typer.Option(metavar="N", help="How many reports one person sends.")
    ] = 1,
    within_days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Budget: the goal is reached within so many days."),
    ] = None,
    lose_at_most: Annotated[
        float | None,
        typer.Option(metavar="N", help="Budget: at most so many rewards are lost in a year."),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            metavar="GOAL", help="earn all year, or know: until a certificate, then ship the best."
        ),
    ] = "earn",
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The algorithm; TS-CF to earn, TopTwo-CF to know."),
    ] = None,
    know: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Of decisions that serve to know; less earns more."),
    ] = None,
    delta: Annotated[
        float, typer.Option(metavar="P", help="How often a certificate may be wrong.")
    ] = 0.05,
    tolerance: Annotated[
        float, typer.Option(metavar="P", help="A difference that does not matter: 0.001.")
    ] = 0.0,
    expect: Annotated[
        str,
        typer.Option(
            metavar="RATE,DIFFERENCE",
            help="What the certificate expects: as the plan, two numbers, or none.",
        ),
    ] = "plan",
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same plan.")] = 0,
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="SHEET.html", help="Write a sheet to print, or to hand on."),
    ] = None,
) -> None:
    """Say what privacy costs, before it is spent: rewards lost, days to a certificate."""
    from whitelie.planning import plan as make_plan

    if out is not None:
        _check_place(out)
    with interruptible("nothing was written"):
        made = make_plan(
            arms=arms,
            rate=rate,
            difference=difference,
            rates=None if rates is None else _numbers("rates", rates),
            traffic=traffic,
            arrive=arrive,
            delay=delay,
            epsilon=None if epsilon is None else _numbers("epsilon", epsilon),
            channel=_channels(channel) if channel else None,
            policy=None if policy is None else _policy(policy),
            goal=cast("Literal['earn', 'know']", goal),
            know=know,
            delta=delta,
            tolerance=tolerance,
            expect=_expect(expect),
            reports_per_person=reports_per_person,
            within_days=within_days,
            lose_at_most=lose_at_most,
            seed=seed,
            jobs=jobs,
            progress=True,
        )
    if as_json:
        typer.echo(json.dumps(made.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show_plan(made)
    if out is not None:
        from whitelie.planning.sheet import sheet

        out.write_text(sheet(made), encoding="utf-8")
        typer.echo(f"wrote {out}", err=True)


def _check_place(out: Path) -> None:
    """Refuse, before any work, a file that cannot be written or that is not a sheet."""
    if not out.parent.is_dir():
        raise InvalidInput("out", str(out), f"there is no folder {str(out.parent)!r}")
    if out.exists() and not (out.is_file() and SHEET_MARK in out.read_bytes()):
        reason = "this is not a sheet of whitelie plan; move it away, or choose another --out"
        raise InvalidInput("out", str(out), reason)
    try:
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        reason = f"this folder cannot be written to ({error.strerror})"
        raise InvalidInput("out", str(out), reason) from error


def _numbers(field: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(field, text, "give numbers between commas, as 0.5,1,2") from None


def _channels(texts: Sequence[str]) -> "list[RandomizedResponse]":
    from whitelie.simulation.specification import channel_at

    channels: list[Any] = []
    for text in texts:
        given = '"identity"' if text == "identity" else f"{{ {text} }}"
        try:
            table = tomllib.loads(f"channel = {given}")["channel"]
        except tomllib.TOMLDecodeError:
            reason = "give it as in 'p00 = 0.9, p11 = 0.6' or 'design = \"warner\", p = 0.8'"
            raise InvalidInput("channel", text, reason) from None
        channels.append(channel_at("channel", table))
    return channels


def _policy(name: str) -> "Policy":
    from whitelie.simulation.specification import policy_at

    policy: Policy = policy_at("policy", name)[1]
    return policy


def _expect(text: str) -> Any:
    if text in ("plan", "none"):
        return None if text == "none" else text
    numbers = _numbers("expect", text)
    if len(numbers) != 2:
        raise InvalidInput("expect", text, "give a rate and a difference, as 0.05,0.01, or none")
    return dict(zip(("rate", "difference"), numbers, strict=True))


def _show_plan(plan: "Plan") -> None:
    from whitelie.planning.option import certificate_text, delay_text, epsilon_text, percent

    design = plan.design
    if design.goal.ships:
        _show_table(KNOW_HEADINGS, [_know_row(option) for option in plan.options])
        show("Policies side by side:")
        _show_table(COMPARISON_HEADINGS, _comparison_rows(plan))
        if plan.frontier is not None:
            name = epsilon_text(plan.frontier.epsilon)
            show(f"What the share of decisions that serve to know trades, at ε = {name}:")
            _show_table(FRONTIER_HEADINGS, _frontier_rows(plan.frontier))
    else:
        _show_table(EARN_HEADINGS, [_earn_row(option) for option in plan.options])
    if design.arrive < 1 or design.delay:
        show(f"{percent(design.arrive)} of the answers are reported on, {delay_text(design)}.")
    for option in plan.options:
        show(f"ε = {epsilon_text(option.epsilon)}: {option.mechanism}.")
    show(f"{certificate_text(design)}.")
    if not design.goal.ships:
        _show_theory(plan.options)
    _show_unequal(plan.options)
    if plan.design.reports_per_person > 1:
        for option in plan.options:
            show(_people(option))
    if plan.recommendation is not None:
        show(f"\nRecommendation: {plan.recommendation}.")
        for guess in plan.recommendation.sensitivity:
            kept = "kept" if guess.met else "not kept"
            spent = plan.recommendation.budget.words(guess.spent)
            show(f"  if {guess.guess}: {spent}, budget {kept}")


EARN_HEADINGS = (
    "ε",
    "reports\nworth one\nnoise-free",
    "lost\nrewards\nin a year",
    "days until\ntraffic is\non the best",
    "days to\nthe cer-\ntificate",
    "chance\nof a\nwrong arm",
)
KNOW_HEADINGS = (
    "ε",
    "reports\nworth one\nnoise-free",
    "days to\nthe cer-\ntificate",
    "chance\nthat it\nis wrong",
    "rewards\nlost until\nthen",
    "lost in a year,\nwinner\nshipped",
)
COMPARISON_HEADINGS = (
    "ε",
    "until the\ncertificate",
    "days to it,\nmean",
    "in 95 %\nof runs",
    "rewards\nlost until",
    "lost in\na year",
)
FRONTIER_HEADINGS = ("know", *COMPARISON_HEADINGS[2:])
LEAST_TABLE_WIDTH = 76
"""Columns of a terminal in which the tables fit; below, rows are listed one by one."""


def _show_table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    if Console().width < LEAST_TABLE_WIDTH:
        for row in rows:
            for heading, cell in zip(headings, row, strict=True):
                show(f"{heading} {cell}".replace("-\n", "").replace("\n", " "))
            show("")
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    show(table)


def _earn_row(option: "Option") -> tuple[str, ...]:
    from whitelie.planning.option import amount, epsilon_text

    lost = option.lost
    return (
        epsilon_text(option.epsilon),
        f"{option.mechanism.worth:,.1f}",
        f"{amount(lost.mean[-1])}\n{amount(lost.lucky[-1])}–{amount(lost.unlucky[-1])}",
        _days(option.settled),
        _certificate_days(option.certified),
        _chance(option.wrong),
    )


def _know_row(option: "Option") -> tuple[str, ...]:
    from whitelie.planning.option import amount, epsilon_text

    certified, lost = option.certified, option.lost
    return (
        epsilon_text(option.epsilon),
        f"{option.mechanism.worth:,.1f}",
        _certificate_days(certified),
        _chance(certified.wrong),
        f"{amount(certified.lost_until.value)}\n± {amount(certified.lost_until.error)}",
        f"{amount(lost.mean[-1])}\n{amount(lost.lucky[-1])}–{amount(lost.unlucky[-1])}",
    )


def _comparison_rows(plan: "Plan") -> list[tuple[str, ...]]:
    from whitelie.planning.option import epsilon_text

    return [
        (epsilon_text(option.epsilon), policy.name, *_certified_cells(policy.certified[i]))
        for i, option in enumerate(plan.shown)
        for policy in plan.comparisons
    ]


def _frontier_rows(frontier: "Frontier") -> list[tuple[str, ...]]:
    return [(f"{point.know:g}", *_certified_cells(point.certified)) for point in frontier.points]


def _certified_cells(certified: "Certified") -> tuple[str, ...]:
    from whitelie.planning.option import amount

    lost = (amount(certified.lost_until.value), amount(certified.lost_in_year.value))
    return (certified.mean_text, certified.within_text, *lost)


def _certificate_days(certified: "Certified") -> str:
    """The mean of days above those within which 95 % of runs are certified."""
    if certified.share.estimate == 0:
        return certified.mean_text
    return f"{certified.mean_text}\n95 %: {certified.within_text}"


def _chance(chance: "Chance") -> str:
    from whitelie.composition import rounded_up

    most = min(100.0, float(rounded_up(100 * chance.high, 2)))
    return f"{chance.estimate:.1%}\n≤ {most:g}%"


def _days(time: "Time") -> str:
    """The days above their interval."""
    text = str(time).replace(" days", "").replace(" (", "\n").removesuffix(")")
    return text.replace(" to ", "–")


def _show_theory(options: "Sequence[Option]") -> None:
    from whitelie.planning.option import amount, epsilon_text

    parts = [
        f"ε = {epsilon_text(option.epsilon)}: slope {option.mechanism.channel.slope:.3g}, "
        f"C = {amount(option.theory.constant)}"
        for option in options
    ]
    show(f"In the long run at least C·ln T rewards are lost over T reports. {'; '.join(parts)}.")


def _show_unequal(options: "Sequence[Option]") -> None:
    from whitelie.planning.option import epsilon_text

    gains = [
        f"{option.unequal.only_yes:.3g} at ε = {epsilon_text(option.epsilon)}"
        for option in options
        if option.unequal is not None and option.mechanism.gain is None
    ]
    if gains:
        show(
            "Where only “yes” is sensitive, unequal budgets make a report tell more, by a factor "
            f"of {', '.join(gains)}; a report of “no” then proves a “no”."
        )


def _people(option: "Option") -> str:
    from whitelie.composition import rounded_up
    from whitelie.planning.option import epsilon_text

    people = option.people
    composed = ""
    if people.composed < people.basic:
        composed = f", or {rounded_up(people.composed, 3)} with δ = {people.delta:g}"
    return (
        f"{people.reports} reports of one person at ε = {epsilon_text(option.epsilon)} cost "
        f"{epsilon_text(people.basic)} in total{composed}."
    )
