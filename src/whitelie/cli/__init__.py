"""The command `whitelie`: what the library does, from a shell.

A refused input is one line on stderr and exit code 2. Trouble from outside (a missing extra, an
unreachable scheduler, a full disk) is one line and exit code 1, an interrupt 130. What is slow to
import is imported by the command that needs it, so that help and refusals come at once.
"""

from typing import Annotated

import typer

from whitelie.cli import experiment, key, store
from whitelie.cli.command import command
from whitelie.cli.demo import demo
from whitelie.cli.plan import plan
from whitelie.cli.reproduce import reproduce
from whitelie.cli.serve import serve
from whitelie.cli.simulate import simulate

app = typer.Typer(
    help="Learn which option people like best from answers that were randomised.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for each in (reproduce, simulate, plan, serve, demo):
    command(app)(each)
app.add_typer(experiment.app, name="experiment")
app.add_typer(key.app, name="key")
app.add_typer(store.app, name="store")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"whitelie {version('whitelie')}")
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
