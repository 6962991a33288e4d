"""`duetto evaluate RUN [--episodes N] [--checkpoint last|best|STEP]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.cli import options
from duetto.cli.options import Json, PlainEnvironmentOptions, Trust
from duetto.cli.output import print_json
from duetto.cli.showing import warn
from duetto.display.progress import working
from duetto.runs.run import Run


def main(arguments: list[str]) -> None:
    """Parse, and evaluate."""
    tyro.cli(evaluate, args=arguments, prog="duetto evaluate")


def evaluate(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    episodes: Annotated[int, arg(help="Whole episodes.")] = 10,
    checkpoint: Annotated[str, arg(help="last, best, or a step.", metavar="last|best|STEP")] = "last",
    seed: Annotated[int | None, arg(help="Seed of the initial states; by default the run's own.")] = None,
    environment: Annotated[
        str | None, arg(help="Another environment of the same spaces.", metavar="ID|FILE.py:CLASS")
    ] = None,
    environment_options: PlainEnvironmentOptions = (),
    stochastic: Annotated[FlagCreatePairsOff[bool], arg(help="Explore as in training.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Run episodes and print their returns.

    The agent acts as in the run's evaluations: without exploration, unless its options say otherwise (presets for
    Atari). It acts in the environment that it was trained in, or in another one, whose options are then its own alone.
    """
    given = options.environment_options(environment_options)
    folder = Run(run, trust=trust)
    with working(Console(stderr=True), f"evaluating {run}") as tell:
        result = folder.evaluate(episodes, checkpoint, seed, tell, environment, given, stochastic)
    if json:
        print_json({"run": run, "checkpoint": checkpoint, **result.to_dict(), "notices": folder.notices})
        return
    warn(folder)
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True), start=1):
        print(f"episode {number:3d}  return {total:10.2f}  steps {length:6d}")
    print(f"mean return {result}")
