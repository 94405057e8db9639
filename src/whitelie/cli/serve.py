"""`whitelie serve`: the private decision service on this machine."""

from typing import Annotated

import typer

from whitelie.cli.command import DEFAULT_STORE, Address, service_extra
from whitelie.service import MOST_EPSILON, PER_ADDRESS


def serve(
    store: Address = DEFAULT_STORE,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen on this port.")] = 8000,
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Serve in N processes; needs PostgreSQL."),
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
            metavar="ADDRESSES", help="Trust X-Forwarded-For from these, separated by commas."
        ),
    ] = "127.0.0.1",
    connections: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Hold at most N connections; by default as open files allow."
        ),
    ] = None,
    auto_ship: Annotated[
        bool,
        typer.Option(
            "--auto-ship/--no-auto-ship",
            envvar="WHITELIE_AUTO_SHIP",
            help="Ship certified arms of experiments that were created so.",
        ),
    ] = True,
) -> None:
    """Serve decisions and learn from flipped bits, until interrupted.

    The first start creates an admin key, or takes it from WHITELIE_ADMIN_KEY. Tokens are sealed
    with WHITELIE_SECRET, or with a secret in a file beside the SQLite file. See docs/service.md,
    and docs/scaling.md for PostgreSQL.
    """
    with service_extra():
        from whitelie.service.process.server import Settings, run

    settings = Settings(
        host=host,
        port=port,
        workers=workers,
        most_epsilon=max_epsilon,
        per_address=per_address,
        trusted_proxies=trusted_proxies,
        connections=connections,
        auto_ship=auto_ship,
    )
    run(store, settings)
