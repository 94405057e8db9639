"""`whitelie key`: the keys of a store; a running server notices every change."""

from contextlib import closing
from typing import Annotated

import typer

from whitelie.cli.command import DEFAULT_STORE, Address, command, open_store, service_extra, show
from whitelie.errors import InvalidInput
from whitelie.service import PER_KEY

app = typer.Typer(help="Create, rotate and revoke keys of a store.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")]
PUBLISHABLE = "publishable"


@command(app)
def create(
    name: Name,
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="publishable (for pages: only decides), reader (sees results), or admin.",
        ),
    ] = PUBLISHABLE,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Pages of this origin may use the key; may be repeated."),
    ] = None,
    per_minute: Annotated[
        int, typer.Option(min=1, metavar="N", help="Decisions per minute, of all who use the key.")
    ] = PER_KEY,
    store: Address = DEFAULT_STORE,
) -> None:
    """Create a key and print it; it is not shown again."""
    with service_extra():
        from whitelie.service.engine import keys
        from whitelie.service.store.contract import Key
    asked = Key(name, role, b"", tuple(origin or ()), per_minute)
    with closing(open_store(store)) as opened:
        typer.echo(keys.create(opened, asked))
    if role == PUBLISHABLE and not origin:
        typer.echo("without --origin no page can use it, only apps that are not pages", err=True)


@command(app, "list")
def list_all(store: Address = DEFAULT_STORE) -> None:
    """List all keys, without their texts, which are not stored."""
    with service_extra():
        from rich.table import Table

        from whitelie.service.minutes import time_of
    table = Table("name", "role", "origins", "per minute", "until", box=None, header_style="bold")
    with closing(open_store(store)) as opened:
        keys = opened.keys()
        for key in sorted(keys):
            limit = f"{key.decisions_per_minute:,}" if key.role == PUBLISHABLE else "–"
            until = "–" if key.expiry is None else f"{time_of(key.expiry):%Y-%m-%d %H:%M} UTC"
            table.add_row(key.name, key.role, " ".join(key.origins) or "–", limit, until)
    show(table)


@command(app)
def rotate(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The key; not with --tokens.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Rotate the secret that seals tokens instead.")
    ] = False,
    grace: Annotated[
        int, typer.Option(min=0, metavar="MINUTES", help="The old key stays valid for so long.")
    ] = 60,
    store: Address = DEFAULT_STORE,
) -> None:
    """Replace a key and print the new one; or replace the secret that seals tokens."""
    with service_extra():
        from whitelie.service.engine import keys, secrets
        from whitelie.service.minutes import this_minute
        from whitelie.service.store.address import is_postgresql, sqlite_path
    if tokens and is_postgresql(store):
        reason = "give all servers OLD,NEW first, and when they have it NEW,OLD (docs/scaling.md)"
        raise InvalidInput(secrets.VARIABLE, "(not shown)", reason)
    if tokens and secrets.is_given():
        reason = "the environment gives the secrets: put a new one in front, and a comma between"
        raise InvalidInput(secrets.VARIABLE, "(not shown)", reason)
    if (name is None) != tokens:
        raise InvalidInput("name", name, "give the name of a key, or --tokens")
    with closing(open_store(store)) as opened:
        if name is not None:
            typer.echo(keys.rotate(opened, name, this_minute() + grace))
            return
    secrets.rotate(secrets.file_beside(sqlite_path(store)))
    typer.echo("new tokens are sealed with a new secret; old ones stay valid until they expire")


@command(app)
def revoke(name: Name, store: Address = DEFAULT_STORE) -> None:
    """Remove a key at once."""
    with service_extra():
        from whitelie.service.engine import keys
    with closing(open_store(store)) as opened:
        keys.revoke(opened, name)
    typer.echo(f"{name} is revoked")
