"""`duetto evaluate RUN [--episodes N] [--checkpoint last|best|STEP]`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from duetto.runs.run import Run
from duetto.tools.cli.options import Checkpoint, EnvironmentOptions, Json, RunFolder, Trust, parse_options
from duetto.tools.cli.output import print_json, print_notices
from duetto.tools.cli.parser import Flag
from duetto.training.progress_lines import working


def evaluate(
    run: RunFolder,
    episodes: Annotated[int, arg(help="Whole episodes.")] = 10,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, arg(help="Seed of the initial states; by default the run's own.")] = None,
    environment: Annotated[
        str | None, arg(help="Another environment of the same spaces.", metavar="ID|FILE.py:CLASS")
    ] = None,
    environment_options: EnvironmentOptions = (),
    stochastic: Annotated[Flag, arg(help="Explore as in training.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Run episodes and print their returns.

    The agent acts as in the run's evaluations: without exploration, unless its options say otherwise (presets for
    Atari). It acts in the environment of its training, or in another one; that one gets only the options given here.
    """
    options = parse_options(environment_options)
    trained = Run(run, trust=trust)
    with working(Console(stderr=True), f"evaluating {run}") as tell:
        result = trained.evaluate(episodes, checkpoint, seed, tell, environment, options, stochastic)
    if json:
        print_json({"run": run, "checkpoint": checkpoint, **result.to_dict(), "notices": trained.notices})
        return
    print_notices(trained.notices)
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True), start=1):
        print(f"episode {number:3d}  return {total:10.2f}  steps {length:6d}")
    print(f"mean return {result}")
