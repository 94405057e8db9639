"""`whitelie demo`: a shop, its simulated visitors, and the service that learns from them."""

from typing import Annotated

import typer

from whitelie.cli.command import service_extra
from whitelie.demo import DEFAULT_PACE, MAX_PACE


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen on this port; 0 takes a free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    pace: Annotated[
        float,
        typer.Option(min=0, max=MAX_PACE, metavar="N", help="Visitors per second to begin with."),
    ] = DEFAULT_PACE,
) -> None:
    """Show on this machine, in a minute, how the best variant is found without a true click.

    Starts the service on a store in a temporary folder, a small shop that uses the browser client,
    and simulated visitors. It runs until interrupted and leaves nothing behind.
    """
    with service_extra():
        from whitelie.demo.server import run

    run(port, pace, opens_browser=browser)
