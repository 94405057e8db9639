"""The command `whitelie`: what the library does, from a shell.

A refused input is one line on stderr and exit code 2. Trouble from outside (a missing extra, an
unreachable scheduler, a full disk) is one line and exit code 1, an interrupt 130. What is slow to
import is imported by the command that needs it, so that help and refusals come at once.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from whitelie.errors import InvalidInput, WhitelieError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whitelie.paper.report import Claim
    from whitelie.result import Result

SECONDS_TO_CONNECT = 5

Parameters = ParamSpec("Parameters")

app = typer.Typer(
    help="Learn which option people like best from answers that were randomised.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def command(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Make the function a subcommand whose refusals are one line, without a traceback."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except InvalidInput as refused:
            _stop(str(refused), 2)
        except (WhitelieError, OSError) as error:
            _stop(str(error), 1)

    return app.command()(run)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"whitelie {version('whitelie')}")
        raise typer.Exit


def _print_example(asked: bool) -> None:
    if asked:
        from whitelie.specification import EXAMPLE  # noqa: PLC0415

        typer.echo(EXAMPLE, nl=False)
        raise typer.Exit


@app.callback()
def _whitelie(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that go before a command; they do their work in callbacks."""


@command
def simulate(
    specification: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="What to simulate; see --example.")
    ],
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep finished work here, and go on from it.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Work in N threads; by default all cores."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster at this address.")
    ] = None,
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
    with _interruptible(store), _cluster(scheduler) as (executor, threads):
        found = asked.run(jobs=jobs or threads, executor=executor, store=store, progress=True)
        written = files.write(found)
    _print_summary(found)
    _print(written)


@command
def reproduce(  # noqa: PLR0913, PLR0917 (one parameter per option)
    quick: Annotated[
        bool, typer.Option("--quick", help="Run few replicates: the same report in a minute.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="1a,2b,…", help="Make these pictures only; see the report's names."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="By default reproduction, or reproduction-quick."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Work in N threads; by default all cores."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster at this address.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(metavar="N", help="Steps of a run; in the paper 100,000.")
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(metavar="N", help="Runs of each policy; in the paper 1,000.")
    ] = None,
) -> None:
    """Reproduce the whole paper: every figure, its claims checked, and one report."""
    from whitelie.paper import settings  # noqa: PLC0415
    from whitelie.paper.reproduction import ALL, Reproduction  # noqa: PLC0415
    from whitelie.paper.runs import Scale  # noqa: PLC0415
    from whitelie.simulation import Workers  # noqa: PLC0415

    usual = settings.QUICK_REPLICATES if quick else settings.REPLICATES
    scale = Scale(
        horizon=settings.HORIZON if horizon is None else horizon,
        replicates=usual if replicates is None else replicates,
    )
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    pictures = tuple(name.strip() for name in only.split(",")) if only is not None else ALL
    asked = Reproduction(folder, scale, pictures)
    with _interruptible(folder), _cluster(scheduler) as (executor, threads):
        report = asked.run(Workers(jobs or threads, executor, progress=True))
    _print_claims(report.claims)
    _print(f"\n{report.summary[0]}" if report.claims else "")
    _print(f"wrote {folder / 'report.html'}")


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
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(layout="constrained")
    found.plot(figure.add_subplot(), bands="pointwise" if found.replicates > 1 else None)
    with rc_context({"svg.hashsalt": "whitelie"}):  # the same result gives the same file
        figure.savefig(path, format="svg", metadata={"Creator": FIGURE_CREATOR, "Date": None})


@contextmanager
def _cluster(address: str | None) -> Iterator[tuple["Executor | None", int | None]]:
    """Yield the executor of a Dask cluster and how many threads it has, if an address is given."""
    if address is None:
        yield None, None
        return
    try:
        distributed = import_module("distributed")
    except ImportError:
        _stop('--scheduler needs Dask: pip install "whitelie[dask]"', 1)
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except Exception as error:  # whatever listens there may answer anything
        _stop(f"no Dask scheduler answers at {address!r}: {error}", 1)
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            typer.echo("the cluster has no workers yet; waiting for them", err=True)
        yield client.get_executor(), max(1, threads)


@contextmanager
def _interruptible(store: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if store is None:
            _stop("interrupted; nothing was kept: with --store DIR a second run goes on", 130)
        _stop("interrupted; run the same command again to go on from the store", 130)


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
    _print(table)


def _print_claims(claims: "Sequence[Claim]") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD)
    table.add_column("what the paper says", overflow="fold")
    table.add_column("verdict", overflow="fold", min_width=14)
    for claim in claims:
        table.add_row(claim.says, claim.verdict)
    if claims:
        _print(table)


def _short(value: float) -> str:
    """Return the number with four digits, or as a whole one where that takes more.

    >>> _short(0.5), _short(12.3456), _short(123456.7)
    ('0.5000', '12.35', '123,457')
    """
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"


def _stop(message: str, code: int) -> NoReturn:
    """Print one red line to stderr and leave."""
    from rich.console import Console  # noqa: PLC0415

    line = " ".join(message.split())
    Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def _print(shown: Any) -> None:
    from rich.console import Console  # noqa: PLC0415

    Console(highlight=False, markup=False).print(shown, soft_wrap=isinstance(shown, str))
