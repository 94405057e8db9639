"""`whitelie simulate`: what a file describes, as a table, a result and a figure."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from whitelie.cli.command import Jobs, Scheduler, cluster, how_to_resume, interruptible, show
from whitelie.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from whitelie.simulation.result import Result


def _print_example(asked: bool) -> None:
    if asked:
        from whitelie.simulation.specification import EXAMPLE

        typer.echo(EXAMPLE, nl=False)
        raise typer.Exit


def simulate(
    specification: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="What to simulate; see --example.")
    ],
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save finished work here; resume from it."),
    ] = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The result; by default SPEC.nc.")
    ] = None,
    example: Annotated[
        bool,
        typer.Option(
            "--example", help="Print a SPEC.toml that runs.", callback=_print_example, is_eager=True
        ),
    ] = False,
) -> None:
    """Simulate what a file describes; print a table, write the result and a figure."""
    from whitelie.simulation.specification import load_specification

    asked = load_specification(specification)
    files = _Files(out or specification.with_suffix(".nc"))
    lost = "nothing was saved: with --store DIR a second run resumes"
    with (
        interruptible(how_to_resume(store) if store else lost),
        cluster(scheduler) as (executor, threads),
    ):
        result = asked.run(jobs=jobs or threads, executor=executor, store=store, progress=True)
        written = files.write(result)
    _print_summary(result)
    if result.stop is not None:
        _print_stops(result)
    show(written)


class _Files:
    """The files of a result and its figure, checked before any work: no other is replaced."""

    def __init__(self, path: Path) -> None:
        self._result, self._figure = path, path.with_suffix(".svg")
        if path.suffix == ".svg":
            raise InvalidInput("out", str(path), "this is the figure's name; end it in .nc")
        if not path.parent.is_dir():
            raise InvalidInput("out", str(path), f"there is no folder {str(path.parent)!r}")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            reason = f"this folder cannot be written to ({error.strerror})"
            raise InvalidInput("out", str(path), reason) from error
        for file, ours in ((self._result, _is_result), (self._figure, _is_figure)):
            if file.exists() and not ours(file):
                reason = "whitelie simulate did not write it; move it away, or choose another --out"
                raise InvalidInput("out", str(file), reason)

    def write(self, result: "Result") -> str:
        """Write both, and say what was written and what was replaced."""
        verbs = ["replaced" if file.exists() else "wrote" for file in (self._result, self._figure)]
        result.save(self._result)
        _save_figure(result, self._figure)
        return f"{verbs[0]} {self._result}\n{verbs[1]} {self._figure}"


def _is_result(path: Path) -> bool:
    from whitelie.simulation.result import Result

    try:
        Result.load(path)
    except InvalidInput:
        return False
    return True


FIGURE_CREATOR = "whitelie simulate"


def _is_figure(path: Path) -> bool:
    return path.is_file() and FIGURE_CREATOR.encode() in path.read_bytes()


def _save_figure(result: "Result", path: Path) -> None:
    from matplotlib.figure import Figure

    from whitelie.page import svg

    bands: Literal["pointwise"] | None = "pointwise" if result.replicates > 1 else None
    figure = Figure(layout="constrained")
    if result.stop is None:
        result.plot(figure.add_subplot(), bands=bands)
    else:
        figure.set_figheight(2 * figure.get_figheight())
        regret, stops = figure.subplots(2)
        result.plot(regret, bands=bands)
        result.plot_stops(stops, bands=bands)
    path.write_bytes(svg(figure, FIGURE_CREATOR))


def _print_summary(result: "Result") -> None:
    title = f"Regret after {result.horizon:,} steps, {result.replicates:,} replicates"
    _print_table(title, ("mean", "95 % interval", "best arm"), result.summary(), _regret_cells)


def _regret_cells(row: dict[str, Any]) -> list[str]:
    interval = "-"
    if "lower" in row:  # one replicate has no interval
        interval = f"{_short(row['lower'])} to {_short(row['upper'])}"
    return [_short(row["mean"]), interval, f"{row['best_share']:.1%}"]


def _print_stops(result: "Result") -> None:
    title = f"Reports until the certificate (at most {result.horizon:,}), and rewards lost by then"
    headings = ("mean", "95 % by", "never", "wrong", "lost")
    _print_table(title, headings, result.stopping_summary(), _stop_cells)


def _stop_cells(row: dict[str, Any]) -> list[str]:
    by = "-" if math.isinf(row["q95"]) else f"{row['q95']:,.0f}"
    never, wrong = f"{row['never']:.1%}", f"{row['wrong']:.1%}"
    return [f"{row['mean']:,.0f}", by, never, wrong, _short(row["lost"])]


def _print_table(
    title: str,
    headings: tuple[str, ...],
    frame: "pd.DataFrame",
    cells: Callable[[dict[str, Any]], list[str]],
) -> None:
    """Print a row per policy, after the value of the swept parameter if there is one."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    labels = [str(name) for name in frame.index.names]
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for label in labels:
        table.add_column(label.replace("_", " "), overflow="fold", min_width=9)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in frame.reset_index().to_dict("records"):
        named = [row[label] for label in labels]
        names = [Text(name if isinstance(name, str) else f"{name:g}") for name in named]
        table.add_row(*names, *cells(row))
    show(table)


def _short(value: float) -> str:
    """Return the number with four digits, or as a whole one where that takes more.

    >>> _short(0.5), _short(12.3456), _short(123456.7)
    ('0.5000', '12.35', '123,457')
    """
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"
