"""`duetto resume RUN [--steps N]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto.cli.options import Trust
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and resume."""
    tyro.cli(resume, args=arguments, prog="duetto resume")


def resume(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    steps: Annotated[int | None, arg(help="Steps in all; by default as the run was started.")] = None,
    trust: Trust = False,
) -> None:
    """Go on with a run exactly where its last checkpoint was made, also after kill -9."""
    from duetto.cli.showing import finish, shown

    console = Console()
    resumed = Run(run, trust=trust)
    with shown(console) as display:
        resumed.resume(steps, callbacks=[display], on_start=display.announce)
    finish(console, resumed, display)
