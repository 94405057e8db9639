"""`whitelie store`: a whole store, copied."""

from contextlib import closing
from typing import Annotated

import typer

from whitelie.cli.command import ADDRESSES, command, open_store, service_extra

app = typer.Typer(no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help=ADDRESSES)]
Target = Annotated[str, typer.Argument(metavar="TARGET", help=ADDRESSES)]


@app.callback()  # without it `copy` would not be a word of the command
def store() -> None:
    """Copy a store."""


@command(app, "copy")
def copy_all(source: Source, target: Target) -> None:
    """Copy everything from SOURCE into TARGET, which must be empty.

    Stop the servers of both first. The secret that seals tokens is in no store: copy it yourself.
    """
    with service_extra():
        from whitelie.service.store import address
        from whitelie.service.store.copy import copy
    with closing(open_store(source)) as full, closing(address.open_store(target)) as empty:
        copied = copy(full, empty)
    typer.echo("copied " + ", ".join(f"{rows:,} {table}" for table, rows in copied.items()))
