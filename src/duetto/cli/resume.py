"""`duetto resume RUN [--steps N] [--accept-changes] [--without-memory] [--cluster [ADDRESS]]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.cli import clusters
from duetto.cli.clusters import Actors, Address, AnyPace, with_address
from duetto.cli.options import Trust
from duetto.cli.output import expendable
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and resume."""
    tyro.cli(resume, args=with_address(arguments), prog="duetto resume")


def resume(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    steps: Annotated[int | None, arg(help="Steps in all; by default as the run was started.")] = None,
    without_memory: Annotated[
        FlagCreatePairsOff[bool], arg(help="Go on with an empty replay memory, where the checkpoint's is damaged.")
    ] = False,
    accept_changes: Annotated[
        FlagCreatePairsOff[bool], arg(help="Go on with what was changed in config.yaml since, such as a learning rate.")
    ] = False,
    trust: Trust = False,
    cluster: Address = None,
    actors: Actors = None,
    pace: AnyPace = None,
) -> None:
    """Go on with a run exactly where its last checkpoint was made, also after kill -9.

    On a cluster or not, and on one of another size, the numbers stay the same.
    In config.yaml, steps, threads, vectorization and the intervals of evaluations, checkpoints and metrics may change
    freely. All else decides the numbers: a change is refused, or with --accept-changes said, and made.
    """
    from duetto.cli.showing import finish, shown

    placed = clusters.cluster(cluster, actors, pace)
    resumed = Run(run, trust=trust)
    with expendable() as stream:
        console = Console(file=stream)
        with shown(console) as display:
            resumed.resume(
                steps,
                callbacks=[display],
                on_start=display.announce,
                without_memory=without_memory,
                accept_changes=accept_changes,
                cluster=placed,
            )
        finish(console, resumed, display)
