"""`duetto video RUN [--output FILE.mp4]`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from duetto.runs.run import Run
from duetto.tools.cli.options import Checkpoint, Json, RunFolder, Trust
from duetto.tools.cli.output import print_file, print_json, print_notices
from duetto.training.progress_lines import working


def video(
    run: RunFolder,
    output: Annotated[str | None, arg(help="The mp4; by default in the run's folder videos/.", metavar="FILE")] = None,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, arg(help="Seed of the initial state; by default the run's own.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Record an episode as an mp4, the agent acting as in the run's evaluations."""
    trained = Run(run, trust=trust)
    with working(Console(stderr=True), f"recording {run}") as tell:
        path = trained.video(output, checkpoint, seed, tell)
    if json:
        print_json({"run": run, "checkpoint": checkpoint, "file": str(path), "notices": trained.notices})
        return
    print_notices(trained.notices)
    print_file(path, as_json=False)
