"""`duetto watch RUN [--episodes N]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from duetto.cli.options import Json, Trust
from duetto.cli.output import print_json
from duetto.cli.showing import warn
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and show."""
    tyro.cli(watch, args=arguments, prog="duetto watch")


def watch(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    episodes: Annotated[int, arg(help="Whole episodes; 0 shows them until Ctrl-C.")] = 1,
    checkpoint: Annotated[str, arg(help="last, best, or a step.", metavar="last|best|STEP")] = "last",
    seed: Annotated[int | None, arg(help="Seed of the first initial state; by default the run's own.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Show the agent live in the environment's own window, acting as in the run's evaluations."""
    folder = Run(run, trust=trust)
    seen = folder.watch(episodes, checkpoint, seed, lambda text: None if json else print(text, flush=True))
    if json:
        scores = {"returns": [one.total_reward for one in seen], "lengths": [one.length for one in seen]}
        print_json({"run": run, "checkpoint": checkpoint, **scores, "notices": folder.notices})
        return
    warn(folder)
