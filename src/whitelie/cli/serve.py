"""`whitelie serve`: the private decision service on this machine."""

from typing import Annotated

import typer

from whitelie.cli.frame import DEFAULT_STORE, Address, refusing, service_extra
from whitelie.service import MOST_EPSILON, PER_ADDRESS


@refusing
def serve(
    store: Address = DEFAULT_STORE,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen there.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen on this port.")] = 8000,
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
) -> None:
    """Serve decisions and learn from flipped bits, until interrupted.

    The first start makes an admin key. Tokens are sealed with WHITELIE_SECRET, or with a secret
    kept beside the database; WHITELIE_ADMIN_KEY sets the admin key. Operators read docs/service.md.
    """
    with service_extra():
        from whitelie.service.server import Settings, run  # noqa: PLC0415
        from whitelie.service.store.address import sqlite_path  # noqa: PLC0415

    settings = Settings(
        host=host,
        port=port,
        most_epsilon=max_epsilon,
        per_address=per_address,
        trusted_proxies=trusted_proxies,
    )
    run(sqlite_path(store), settings)
