"""`duetto watch RUN [--episodes N]`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from duetto.runs.run import Run
from duetto.tools.cli.options import Checkpoint, Json, RunFolder, Trust
from duetto.tools.cli.output import print_json, print_notices


def watch(
    run: RunFolder,
    episodes: Annotated[int, arg(help="Whole episodes; 0 shows them until Ctrl-C.")] = 1,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, arg(help="Seed of the first initial state; by default the run's own.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Show the agent live in the environment's own window, acting as in the run's evaluations."""
    trained = Run(run, trust=trust)
    seen = trained.watch(episodes, checkpoint, seed, lambda text: None if json else print(text, flush=True))
    if json:
        scores = {"returns": [each.total_reward for each in seen], "lengths": [each.length for each in seen]}
        print_json({"run": run, "checkpoint": checkpoint, **scores, "notices": trained.notices})
        return
    print_notices(trained.notices)
