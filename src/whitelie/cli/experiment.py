"""`whitelie experiment`: the experiments of a store; a running server notices every change."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from whitelie.cli.command import DEFAULT_STORE, Address, command, open_store, service_extra, show
from whitelie.service import MOST_EPSILON

if TYPE_CHECKING:
    from rich.table import Table

    from whitelie.service.experiment.results import Results
    from whitelie.service.store.contract import Store, StoredExperiment

app = typer.Typer(
    help="Create, show, pause and stop the experiments of a store.", no_args_is_help=True
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The experiment.")]


@command(app)
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
        float,
        typer.Option(min=0, metavar="EPSILON", help="Refuse what reveals more."),
    ] = MOST_EPSILON,
) -> None:
    """Create an experiment and print its id."""
    with service_extra():
        import msgspec

        from whitelie.service import wire
        from whitelie.service.api import http
        from whitelie.service.experiment import changes
        from whitelie.service.experiment.definition import ExperimentValidator
        from whitelie.service.minutes import this_minute
    asked = http.decode(description.read(), msgspec.json.Decoder(wire.NewExperiment))
    experiment = ExperimentValidator(max_epsilon).create(asked, this_minute(), None)
    with closing(open_store(store)) as opened:
        saved, _ = changes.create(opened, experiment)
    typer.echo(saved.slug)


@command(app, "list")
def list_all(store: Address = DEFAULT_STORE) -> None:
    """List all experiments."""
    with service_extra():
        from rich.table import Table

        from whitelie.service.experiment.changes import definition_of
    table = Table("id", "name", "status", "policy", "ε", box=None, header_style="bold")
    with closing(open_store(store)) as opened:
        for saved in opened.experiments():
            each = definition_of(saved)
            epsilon = f"{each.epsilon:.3g}"
            table.add_row(saved.slug, each.name, each.status, each.policy.label, epsilon)
    show(table if table.row_count else "no experiments yet: whitelie experiment create FILE.json")


@command(app, "show")
def show_one(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Show the results of an experiment."""
    with service_extra():
        from whitelie.service.engine.stored_results import stored_results
        from whitelie.service.minutes import this_minute
    with closing(open_store(store)) as opened:
        results = stored_results(opened, _find(opened, id), this_minute())
    show(results.sentence)
    show(_table(results))
    for alarm in results.alarms:
        show(f"! {alarm.message}")


def _table(results: "Results") -> "Table":
    from rich.table import Table

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


@command(app)
def pause(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Answer no more decisions until `resume`; reports still count."""
    _set_status(store, id, "paused")


@command(app)
def resume(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Resume an experiment after `pause`."""
    _set_status(store, id, "running")


@command(app)
def stop(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Answer no more decisions, ever; reports still count."""
    _set_status(store, id, "stopped")


@command(app)
def ship(
    id: Id,
    arm: Annotated[str, typer.Argument(metavar="ARM", help="The arm that everybody is to see.")],
    store: Address = DEFAULT_STORE,
) -> None:
    """Let everybody see one arm; nobody reports any more. `unship` undoes it within a day."""
    with service_extra():
        from whitelie.service.experiment import changes
        from whitelie.service.experiment.definition import ExperimentValidator
        from whitelie.service.minutes import this_minute
    with closing(open_store(store)) as opened:
        saved = _find(opened, id)
        experiment = changes.definition_of(saved)
        shipped = ExperimentValidator().ship(experiment, arm, this_minute())
        if shipped != experiment:
            changes.change(opened, saved, shipped)
    typer.echo(f"{id} is shipped: everybody sees {arm}")


@command(app)
def unship(id: Id, store: Address = DEFAULT_STORE) -> None:
    """Let an experiment go on as before `ship`, within a day."""
    with service_extra():
        from whitelie.service.experiment import changes
        from whitelie.service.experiment.definition import ExperimentValidator
        from whitelie.service.minutes import this_minute
    with closing(open_store(store)) as opened:
        saved = _find(opened, id)
        changed = ExperimentValidator().unship(changes.definition_of(saved), this_minute())
        changes.change(opened, saved, changed)
    typer.echo(f"{id} is {changed.status}")


def _set_status(store: str, id: str, status: Literal["running", "paused", "stopped"]) -> None:
    with service_extra():
        from whitelie.service import wire
        from whitelie.service.experiment import changes
        from whitelie.service.experiment.definition import ExperimentValidator
    with closing(open_store(store)) as opened:
        saved = _find(opened, id)
        experiment = changes.definition_of(saved)
        changed = ExperimentValidator().change(experiment, wire.Change(status=status))
        changes.change(opened, saved, changed)
    typer.echo(f"{id} is {status}")


def _find(store: "Store", id: str) -> "StoredExperiment":
    from whitelie.errors import InvalidInput

    experiments = {saved.slug: saved for saved in store.experiments()}
    if id not in experiments:
        known = ", ".join(experiments) or "none yet"
        raise InvalidInput("id", id, f"there is no such experiment; there are: {known}")
    return experiments[id]
