"""`whitelie plan`: what privacy costs, as a table, as JSON, or as a sheet to hand on."""

import json
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whitelie.cli.frame import Jobs, interruptible, refusing, show
from whitelie.errors import InvalidInput

if TYPE_CHECKING:
    from whitelie.channel import RandomizedResponse
    from whitelie.planning import Option, Plan, Time
    from whitelie.policy import Policy


SHEET = b'<meta name="generator" content="whitelie plan">'


@refusing
def plan(  # noqa: PLR0913, PLR0917 (one parameter per option)
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
        float, typer.Option(metavar="SHARE", help="The share of answers ever reported on.")
    ] = 1.0,
    delay: Annotated[
        float, typer.Option(metavar="DAYS", help="How long after a decision its report arrives.")
    ] = 0.0,
    reports_per_person: Annotated[
        int, typer.Option(metavar="N", help="How many reports one person sends.")
    ] = 1,
    within_days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Budget: the best is known within these.")
    ] = None,
    lose_at_most: Annotated[
        float | None, typer.Option(metavar="N", help="Budget: rewards lost in a year.")
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="The algorithm: TS-CF, kl-UCB-CF, UCB-CF, …")
    ] = "TS-CF",
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same plan.")] = 0,
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="SHEET.html", help="Write a sheet to print, or to hand on."),
    ] = None,
) -> None:
    """Say what privacy costs, before it is spent: days until you know, and rewards lost."""
    from whitelie.planning import plan as make_plan  # noqa: PLC0415

    if out is not None:
        _check_place(out)
    with interruptible("nothing was written"):
        found = make_plan(
            arms=arms,
            rate=rate,
            difference=difference,
            rates=None if rates is None else _numbers("rates", rates),
            traffic=traffic,
            arrive=arrive,
            delay=delay,
            epsilon=None if epsilon is None else _numbers("epsilon", epsilon),
            channel=_channels(channel) if channel else None,
            policy=_policy(policy),
            reports_per_person=reports_per_person,
            within_days=within_days,
            lose_at_most=lose_at_most,
            seed=seed,
            jobs=jobs,
            progress=True,
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show_plan(found)
    if out is not None:
        from whitelie.planning.sheet import sheet  # noqa: PLC0415

        out.write_text(sheet(found), encoding="utf-8")
        typer.echo(f"wrote {out}", err=True)


def _check_place(out: Path) -> None:
    """Refuse a place that cannot be written, or holds something else than a sheet, before work."""
    if not out.parent.is_dir():
        raise InvalidInput("out", str(out), f"there is no folder {str(out.parent)!r}")
    if out.exists() and not (out.is_file() and SHEET in out.read_bytes()):
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
    from whitelie.specification import channel_at  # noqa: PLC0415

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
    from whitelie.specification import policy_at  # noqa: PLC0415

    found: Policy = policy_at("policy", name)[1]
    return found


def _show_plan(found: "Plan") -> None:
    from whitelie.planning.option import delay_text, epsilon_text, percent  # noqa: PLC0415

    _show_table(found.options)
    design = found.design
    if design.arrive < 1 or design.delay:
        show(f"{percent(design.arrive)} of the answers are reported on, {delay_text(design)}.")
    for option in found.options:
        show(f"ε = {epsilon_text(option.epsilon)}: {option.mechanism}.")
    _show_theory(found.options)
    _show_unequal(found.options)
    if found.design.reports_per_person > 1:
        for option in found.options:
            show(_people(option))
    if found.recommendation is not None:
        show(f"\nRecommendation: {found.recommendation}.")
        for guess in found.recommendation.sensitivity:
            kept = "kept" if guess.met else "not kept"
            spent = found.recommendation.budget.words(guess.spent)
            show(f"  if {guess.guess}: {spent}, budget {kept}")


HEADINGS = (
    "ε",
    "reports\nfor one\nclear one",
    "lost\nrewards\nin a year",
    "days\nuntil\none knows",
    "days until\nintervals\nseparate",
    "chance\nof a\nwrong arm",
)
LEAST_WIDTH = 76
"""Columns of a terminal in which the table fits; below, options are listed one by one."""


def _show_table(options: "Sequence[Option]") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    if Console().width < LEAST_WIDTH:
        for option in options:
            for heading, cell in zip(HEADINGS, _row(option), strict=True):
                show(f"{heading} {cell}".replace("\n", " "))
            show("")
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for option in options:
        table.add_row(*_row(option))
    show(table)


def _row(option: "Option") -> tuple[str, ...]:
    from whitelie.composition import rounded_up  # noqa: PLC0415
    from whitelie.planning.option import amount, epsilon_text  # noqa: PLC0415

    lost = option.lost
    most = min(100.0, float(rounded_up(100 * option.wrong.high, 2)))
    return (
        epsilon_text(option.epsilon),
        f"{option.mechanism.worth:,.1f}",
        f"{amount(lost.mean[-1])}\n{amount(lost.lucky[-1])}–{amount(lost.unlucky[-1])}",
        _days(option.know),
        _days(option.separate),
        f"{option.wrong.estimate:.1%}\n≤ {most:g}%",
    )


def _days(time: "Time") -> str:
    """The days above their interval."""
    text = str(time).replace(" days", "").replace(" (", "\n").removesuffix(")")
    return text.replace(" to ", "–")


def _show_theory(options: "Sequence[Option]") -> None:
    from whitelie.planning.option import amount, epsilon_text  # noqa: PLC0415

    parts = [
        f"ε = {epsilon_text(option.epsilon)}: slope {option.mechanism.channel.slope:.3g}, "
        f"C = {amount(option.theory.constant)}"
        for option in options
    ]
    show(f"In the long run at least C·ln T rewards are lost over T reports. {'; '.join(parts)}.")


def _show_unequal(options: "Sequence[Option]") -> None:
    from whitelie.planning.option import epsilon_text  # noqa: PLC0415

    gains = [
        f"{option.unequal.only_yes:.3g} at ε = {epsilon_text(option.epsilon)}"
        for option in options
        if option.unequal is not None and option.mechanism.gain is None
    ]
    if gains:
        show(
            f"Where only “yes” is sensitive, unequal budgets tell more, by a factor of "
            f"{', '.join(gains)}; a report of “no” then proves a “no”."
        )


def _people(option: "Option") -> str:
    from whitelie.composition import rounded_up  # noqa: PLC0415
    from whitelie.planning.option import epsilon_text  # noqa: PLC0415

    people = option.people
    composed = ""
    if people.composed < people.basic:
        composed = f", or {rounded_up(people.composed, 3)} with δ = {people.delta:g}"
    return (
        f"{people.reports} reports of one person at ε = {epsilon_text(option.epsilon)} cost "
        f"{epsilon_text(people.basic)} in total{composed}."
    )
