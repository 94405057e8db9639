"""`whitelie reproduce`: the whole paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whitelie.cli.command import Jobs, Scheduler, cluster, how_to_resume, interruptible, show

if TYPE_CHECKING:
    from whitelie.paper.report.page import Claim


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Run few replicates: the same report in a minute.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="1a,2b,…", help="Make only these figures of the report."),
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
        int | None, typer.Option(metavar="N", help="StoredRuns of each policy; in the paper 1,000.")
    ] = None,
) -> None:
    """Reproduce the whole paper: draw every figure, check every claim, write one report."""
    from whitelie.paper import experiments
    from whitelie.paper.reproduction import Reproduction
    from whitelie.paper.runs import Scale
    from whitelie.simulation.work import Workers

    usual = experiments.QUICK_REPLICATES if quick else experiments.REPLICATES
    scale = Scale(
        horizon=experiments.HORIZON if horizon is None else horizon,
        replicates=usual if replicates is None else replicates,
    )
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    figures = experiments.FIGURES
    if only is not None:
        named = [name.strip().lower() for name in only.split(",")]
        figures = tuple(dict.fromkeys(name for name in named if name)) or (only,)
    asked = Reproduction(folder, scale, figures)
    with interruptible(how_to_resume(folder)), cluster(scheduler) as (executor, threads):
        report = asked.run(Workers(jobs or threads, executor, progress=True))
    _print_claims(report.claims)
    show(f"\n{report.summary[0]}" if report.claims else "")
    show(f"wrote {folder / 'report.html'}")


def _print_claims(claims: "Sequence[Claim]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column("statement", overflow="fold")
    table.add_column("verdict", overflow="fold", min_width=14)
    for claim in claims:
        table.add_row(claim.says, claim.verdict)
    if claims:
        show(table)
