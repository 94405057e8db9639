"""`whitelie serve`: the private decision service on this machine."""

from typing import Annotated

import typer

from whitelie.cli.frame import DEFAULT_STORE, Address, refusing, service_extra
from whitelie.service import MOST_EPSILON, PER_ADDRESS


@refusing
def serve(  # noqa: PLR0913, PLR0917 (one parameter per option)
    store: Address = DEFAULT_STORE,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen there.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen on this port.")] = 8000,
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Serve in N processes, from PostgreSQL."),
    ] = 1,
    max_epsilon: Annotated[
        float,
        typer.Option(min=0, metavar="EPSILON", help="Refuse experiments that reveal more."),
    ] = MOST_EPSILON,
    per_address: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Decisions per minute and client address, under publishable keys.",
        ),
    ] = PER_ADDRESS,
    trusted_proxies: Annotated[
        str,
        typer.Option(
            metavar="ADDRESSES", help="Believe X-Forwarded-For of these, parted by commas."
        ),
    ] = "127.0.0.1",
    connections: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Open at most N connections; by default as files allow."
        ),
    ] = None,
) -> None:
    """Serve decisions and learn from flipped bits, until interrupted.

    The first start makes an admin key. Tokens are sealed with WHITELIE_SECRET, or with a secret
    kept beside the SQLite file; WHITELIE_ADMIN_KEY sets the admin key. Operators read
    docs/service.md, and docs/scaling.md for PostgreSQL.
    """
    with service_extra():
        from whitelie.service.server import Settings, run  # noqa: PLC0415

    settings = Settings(
        host=host,
        port=port,
        workers=workers,
        most_epsilon=max_epsilon,
        per_address=per_address,
        trusted_proxies=trusted_proxies,
        connections=connections,
    )
    run(store, settings)
