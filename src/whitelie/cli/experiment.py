"""`whitelie experiment`: experiments of a store, from the shell; a running server notices."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from whitelie.cli.frame import DEFAULT_STORE, Address, open_store, refusing, service_extra, show
from whitelie.service import MOST_EPSILON

if TYPE_CHECKING:
    from rich.table import Table

    from whitelie.service import wire
    from whitelie.service.results import Results
    from whitelie.service.store import Saved, Store

app = typer.Typer(
    help="Create, watch, pause and stop experiments of a store.", no_args_is_help=True
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The experiment.")]


@app.command()
@refusing
def create(
    description: Annotated[
        typer.FileBinaryRead,
        typer.Argument(
            metavar="FILE.json",
            help='As for POST /v1/experiments: {"name", "arms": [{"key"}, …], "epsilon", '
            '"window", "spread"}; - reads it from the standard input.',
        ),
    ],
    store: Address = DEFAULT_STORE,
    max_epsilon: Annotated[
        float, typer.Option(min=0, metavar="EPSILON", help="Refuse to reveal more.")
    ] = MOST_EPSILON,
) -> None:
    """Create an experiment and print its id."""
    with service_extra():
        import msgspec  # noqa: PLC0415

        from whitelie.service import http, registry, wire  # noqa: PLC0415
        from whitelie.service.experiment import Rules  # noqa: PLC0415
        from whitelie.service.moment import this_minute  # noqa: PLC0415
    asked = http.decode(description.read(), msgspec.json.Decoder(wire.NewExperiment))
    experiment = Rules(max_epsilon).create(asked, this_minute(), None)
    with closing(open_store(store)) as opened:
        saved, _ = registry.create(opened, experiment)
    typer.echo(saved.slug)


@app.command("list")
@refusing
def list_all(store: Address = DEFAULT_STORE) -> None:
    """List all experiments."""
    with service_extra():
        from rich.table import Table  # noqa: PLC0415

        from whitelie.service.registry import definition_of  # noqa: PLC0415
    table = Table("id", "name", "status", "policy", "ε", box=None, header_style="bold")
    with closing(open_store(store)) as opened:
        for saved in opened.experiments():
            each = definition_of(saved)
            epsilon = f"{each.epsilon:.3g}"
            table.add_row(saved.slug, each.name, each.status, each.rule.label, epsilon)
    show(table if table.row_count else "no experiments yet: whitelie experiment create FILE.json")


@app.command("show")
@refusing
def show_one(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Show what the reports of an experiment say."""
    with service_extra():
        from whitelie.service.moment import this_minute  # noqa: PLC0415
        from whitelie.service.standing import stored_results  # noqa: PLC0415
    with closing(open_store(store)) as opened:
        results = stored_results(opened, _find(opened, id), this_minute())
    show(results.sentence)
    show(_table(results))
    for alarm in results.alarms:
        show(f"! {alarm.message}")


def _table(results: "Results") -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, header_style="bold")
    table.add_column("arm")
    for title in ("issued", "reports", "raw rate", "estimate", "interval", "best", "traffic"):
        table.add_column(title, justify="right", no_wrap=True)
    for arm in results.arms:
        table.add_row(
            f"{arm.key} (retired)" if arm.retired else arm.key,
            f"{arm.issued:,}",
            f"{arm.answered:,}",
            _share(arm.raw_rate),
            _share(arm.estimate),
            f"{_share(arm.lower)} – {_share(arm.upper)}",
            _share(arm.probability_best),
            _share(arm.traffic_share),
        )
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


@app.command()
@refusing
def pause(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Answer no more decisions until `resume`; reports still count."""
    _set_status(store, id, "paused")


@app.command()
@refusing
def resume(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Go on after `pause`."""
    _set_status(store, id, "running")


@app.command()
@refusing
def stop(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Answer no more decisions, ever; reports still count."""
    _set_status(store, id, "stopped")


def _set_status(store: str, id: str, status: "wire.Status") -> None:
    with service_extra():
        from whitelie.service import registry, wire  # noqa: PLC0415
        from whitelie.service.experiment import Rules  # noqa: PLC0415
    with closing(open_store(store)) as opened:
        saved = _find(opened, id)
        experiment = registry.definition_of(saved)
        changed = Rules().change(experiment, wire.Change(status=status))
        registry.change(opened, saved, changed)
    typer.echo(f"{id} is {status}")


def _find(store: "Store", id: str) -> "Saved":
    from whitelie.errors import InvalidInput  # noqa: PLC0415

    experiments = {saved.slug: saved for saved in store.experiments()}
    if id not in experiments:
        known = ", ".join(experiments) or "none yet"
        raise InvalidInput("id", id, f"there is no such experiment; there are: {known}")
    return experiments[id]
