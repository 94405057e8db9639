"""What every command is built from: registration, common options, errors in one line, output.

An option is given once, unless it says that it may be repeated: of two values the shell's user
would see only one used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer
from typer.core import TyperCommand

from whitelie.errors import WhitelieError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whitelie.service.store.contract import Store

CONNECT_TIMEOUT_SECONDS = 5

Parameters = ParamSpec("Parameters")

Jobs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Work in N threads; by default all cores.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster at this address.")
]
DEFAULT_STORE = "sqlite:///whitelie.db"
ADDRESSES = "sqlite:///FILE, or postgresql://USER@HOST/DATABASE."
Address = Annotated[str, typer.Option("--store", metavar="ADDRESS", help=ADDRESSES)]


def command(
    group: typer.Typer, name: str | None = None
) -> Callable[[Callable[Parameters, None]], Callable[Parameters, None]]:
    """Register a function as a command of the group, under its own name unless one is given."""

    def register(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
        return group.command(name, cls=_OptionsOnce)(_one_line_errors(function))

    return register


class _OptionsOnce(TyperCommand):
    """Refuses an option that is given twice and takes one value only."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse repeated options, then parse as usual."""
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        once = [each for each in given if each.param_type_name == "option" and not each.is_eager]
        for option in dict.fromkeys(once):
            if once.count(option) > 1 and not getattr(option, "multiple", False):
                several = ",…" in (option.metavar or "")
                advice = f"all values at once, as {option.metavar}" if several else "it once"
                ctx.fail(f"{option.opts[0]} is given {once.count(option)} times; give {advice}")
        return super().parse_args(ctx, args)


def _one_line_errors(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Print an error that the user can mend as one line, without a traceback."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (WhitelieError, OSError) as error:
            exit_with(str(error), 2 if isinstance(error, ValueError) else 1)

    return run


@contextmanager
def cluster(address: str | None) -> Iterator[tuple["Executor | None", int | None]]:
    """Yield the executor of a Dask cluster and how many threads it has, if an address is given."""
    if address is None:
        yield None, None
        return
    try:
        distributed = import_module("distributed")
    except ImportError:
        exit_with('--scheduler needs Dask: pip install "whitelie[dask]"', 1)
    try:
        client = distributed.Client(address, timeout=CONNECT_TIMEOUT_SECONDS)
    except Exception as error:  # whatever listens there may answer anything
        exit_with(f"no Dask scheduler answers at {address!r}: {error}", 1)
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            typer.echo("the cluster has no workers yet; waiting for them", err=True)
        yield client.get_executor(), max(1, threads)


@contextmanager
def service_extra() -> Iterator[None]:
    """Say how to install the service's dependencies, if one cannot be imported."""
    try:
        yield
    except ImportError as error:
        exit_with(f'the service needs {error.name}: pip install "whitelie[service]"', 1)


def open_store(address: str) -> "Store":
    """Return the store that a command works on."""
    with service_extra():
        from whitelie.service.store import address as stores
    return stores.open_store(address, must_exist=True)


@contextmanager
def interruptible(what_remains: str) -> Iterator[None]:
    """Say on an interrupt what became of the work."""
    try:
        yield
    except KeyboardInterrupt:
        exit_with(f"interrupted; {what_remains}", 130)


def how_to_resume(folder: Path) -> str:
    """Return how an interrupted command is resumed."""
    return f"run the same command again to resume from {folder}"


def exit_with(message: str, code: int) -> NoReturn:
    """Print one red line to stderr and exit."""
    from rich.console import Console

    line = " ".join(message.split())
    Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def show(text_or_table: Any) -> None:
    """Print a text as it is, or a table."""
    from rich.console import Console

    Console(highlight=False, markup=False).print(
        text_or_table, soft_wrap=isinstance(text_or_table, str)
    )
