"""`whitelie reproduce`: the whole paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whitelie.cli.frame import Jobs, Scheduler, cluster, goes_on, interruptible, refusing, show

if TYPE_CHECKING:
    from whitelie.paper.report import Claim


@refusing
def reproduce(  # noqa: PLR0913, PLR0917 (one parameter per option)
    quick: Annotated[
        bool, typer.Option("--quick", help="Run few replicates: the same report in a minute.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="1a,2b,…", help="Make these pictures only; see the report's names."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="By default reproduction, or reproduction-quick."),
    ] = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    horizon: Annotated[
        int | None, typer.Option(metavar="N", help="Steps of a run; in the paper 100,000.")
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(metavar="N", help="Runs of each policy; in the paper 1,000.")
    ] = None,
) -> None:
    """Reproduce the whole paper: every figure, its claims checked, and one report."""
    from whitelie.paper import settings  # noqa: PLC0415
    from whitelie.paper.reproduction import ALL, Reproduction  # noqa: PLC0415
    from whitelie.paper.runs import Scale  # noqa: PLC0415
    from whitelie.simulation import Workers  # noqa: PLC0415

    usual = settings.QUICK_REPLICATES if quick else settings.REPLICATES
    scale = Scale(
        horizon=settings.HORIZON if horizon is None else horizon,
        replicates=usual if replicates is None else replicates,
    )
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    pictures = ALL
    if only is not None:
        named = [name.strip().lower() for name in only.split(",")]
        pictures = tuple(dict.fromkeys(name for name in named if name)) or (only,)
    asked = Reproduction(folder, scale, pictures)
    with interruptible(goes_on(folder)), cluster(scheduler) as (executor, threads):
        report = asked.run(Workers(jobs or threads, executor, progress=True))
    _print_claims(report.claims)
    show(f"\n{report.summary[0]}" if report.claims else "")
    show(f"wrote {folder / 'report.html'}")


def _print_claims(claims: "Sequence[Claim]") -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD)
    table.add_column("statement", overflow="fold")
    table.add_column("verdict", overflow="fold", min_width=14)
    for claim in claims:
        table.add_row(claim.says, claim.verdict)
    if claims:
        show(table)
