"""What all commands share: how they refuse, stop, print, and find their workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from whitelie.errors import WhitelieError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from whitelie.service.store import Store

SECONDS_TO_CONNECT = 5

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


def refusing(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Make refusals of the command one line, without a traceback."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (WhitelieError, OSError) as error:
            stop(str(error), 2 if isinstance(error, ValueError) else 1)

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
        stop('--scheduler needs Dask: pip install "whitelie[dask]"', 1)
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT)
    except Exception as error:  # whatever listens there may answer anything
        stop(f"no Dask scheduler answers at {address!r}: {error}", 1)
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            typer.echo("the cluster has no workers yet; waiting for them", err=True)
        yield client.get_executor(), max(1, threads)


@contextmanager
def service_extra() -> Iterator[None]:
    """Say how to get what the service needs, if it is not installed."""
    try:
        yield
    except ImportError as error:
        stop(f'the service needs {error.name}: pip install "whitelie[service]"', 1)


def open_store(address: str) -> "Store":
    """Return the store that a command works on."""
    with service_extra():
        from whitelie.service.store import address as stores  # noqa: PLC0415
    return stores.open_store(address, must_exist=True)


@contextmanager
def interruptible(said: str) -> Iterator[None]:
    """Say on an interrupt what became of the work."""
    try:
        yield
    except KeyboardInterrupt:
        stop(f"interrupted; {said}", 130)


def goes_on(folder: Path) -> str:
    """Say that a second run goes on."""
    return f"run the same command again to go on from {folder}"


def stop(message: str, code: int) -> NoReturn:
    """Print one red line to stderr and leave."""
    from rich.console import Console  # noqa: PLC0415

    line = " ".join(message.split())
    Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def show(shown: Any) -> None:
    """Print a text as it is, or a table."""
    from rich.console import Console  # noqa: PLC0415

    Console(highlight=False, markup=False).print(shown, soft_wrap=isinstance(shown, str))
