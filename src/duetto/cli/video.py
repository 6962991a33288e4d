"""`duetto video RUN [--output FILE.mp4] [--frames DIR]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto.cli.options import Json, Trust
from duetto.cli.output import print_json
from duetto.cli.showing import warn
from duetto.display.progress import working
from duetto.errors import escaped
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and record."""
    tyro.cli(video, args=arguments, prog="duetto video")


def video(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    output: Annotated[str | None, arg(help="The mp4; by default in the run's folder videos/.")] = None,
    checkpoint: Annotated[str, arg(help="last, best, or a step.", metavar="last|best|STEP")] = "last",
    seed: Annotated[int | None, arg(help="Seed of the initial state; by default the run's own.")] = None,
    frames: Annotated[str | None, arg(help="A folder for the same pictures as numbered PNG files.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Record an episode as an mp4, the agent acting as in the run's evaluations."""
    folder = Run(run, trust=trust)
    with working(Console(stderr=True), f"recording {run}") as tell:
        path = folder.video(output, checkpoint, seed, frames, tell)
    if json:
        print_json({"run": run, "checkpoint": checkpoint, "file": str(path), "notices": folder.notices})
        return
    warn(folder)
    print(escaped(str(path)))
