"""`whitelie simulate`: what a file describes, as a table, a result and a figure."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whitelie.cli.frame import Jobs, Scheduler, cluster, goes_on, interruptible, refusing, show
from whitelie.errors import InvalidInput

if TYPE_CHECKING:
    from whitelie.result import Result


def _print_example(asked: bool) -> None:
    if asked:
        from whitelie.specification import EXAMPLE  # noqa: PLC0415

        typer.echo(EXAMPLE, nl=False)
        raise typer.Exit


@refusing
def simulate(
    specification: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="What to simulate; see --example.")
    ],
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep finished work here, and go on from it.")
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
    from whitelie.specification import load_specification  # noqa: PLC0415

    asked = load_specification(specification)
    files = _Files(out or specification.with_suffix(".nc"))
    lost = "nothing was kept: with --store DIR a second run goes on"
    with (
        interruptible(goes_on(store) if store else lost),
        cluster(scheduler) as (executor, threads),
    ):
        found = asked.run(jobs=jobs or threads, executor=executor, store=store, progress=True)
        written = files.write(found)
    _print_summary(found)
    show(written)


class _Files:
    """A result and its figure beside it, checked before any work: nothing else is replaced."""

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
                reason = "this is not from whitelie simulate; move it away, or choose another --out"
                raise InvalidInput("out", str(file), reason)

    def write(self, found: "Result") -> str:
        """Write both, and say what was written and what was replaced."""
        verbs = ["replaced" if file.exists() else "wrote" for file in (self._result, self._figure)]
        found.save(self._result)
        _save_figure(found, self._figure)
        return f"{verbs[0]} {self._result}\n{verbs[1]} {self._figure}"


def _is_result(path: Path) -> bool:
    from whitelie.result import Result  # noqa: PLC0415

    try:
        Result.load(path)
    except InvalidInput:
        return False
    return True


FIGURE_CREATOR = "whitelie simulate"


def _is_figure(path: Path) -> bool:
    return path.is_file() and FIGURE_CREATOR.encode() in path.read_bytes()


def _save_figure(found: "Result", path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    from whitelie.page import svg  # noqa: PLC0415

    figure = Figure(layout="constrained")
    found.plot(figure.add_subplot(), bands="pointwise" if found.replicates > 1 else None)
    path.write_bytes(svg(figure, FIGURE_CREATOR))


def _print_summary(found: "Result") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    summary = found.summary()
    labels = [str(name) for name in summary.index.names]
    title = f"Regret after {found.horizon:,} steps, {found.replicates:,} replicates"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for label in labels:
        table.add_column(label.replace("_", " "), overflow="fold", min_width=9)
    for heading in ("mean", "95 % interval", "best arm"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summary.reset_index().to_dict("records"):
        cells = [row[label] for label in labels]
        names = [Text(cell if isinstance(cell, str) else f"{cell:g}") for cell in cells]
        interval = "-"
        if "lower" in row:  # one replicate has no interval
            interval = f"{_short(row['lower'])} to {_short(row['upper'])}"
        table.add_row(*names, _short(row["mean"]), interval, f"{row['best_share']:.1%}")
    show(table)


def _short(value: float) -> str:
    """Return the number with four digits, or as a whole one where that takes more.

    >>> _short(0.5), _short(12.3456), _short(123456.7)
    ('0.5000', '12.35', '123,457')
    """
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"
