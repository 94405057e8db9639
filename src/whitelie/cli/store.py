"""`whitelie store`: what the service remembers, moved as a whole."""

from contextlib import closing
from typing import Annotated

import typer

from whitelie.cli.frame import ADDRESSES, open_store, refusing, service_extra

app = typer.Typer(no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help=ADDRESSES)]
Target = Annotated[str, typer.Argument(metavar="TARGET", help=ADDRESSES)]


@app.callback()  # without it `copy` would not be a word of the command
def store() -> None:
    """Move a store."""


@app.command("copy")
@refusing
def copy_all(source: Source, target: Target) -> None:
    """Copy all that SOURCE holds into TARGET, which must be empty.

    Stop the servers of both first. The secret that seals tokens is in no store: carry it yourself.
    """
    with service_extra():
        from whitelie.service.store import address  # noqa: PLC0415
        from whitelie.service.store.copy import copy  # noqa: PLC0415
    with closing(open_store(source)) as full, closing(address.open_store(target)) as empty:
        copied = copy(full, empty)
    typer.echo("copied " + ", ".join(f"{rows:,} {table}" for table, rows in copied.items()))
