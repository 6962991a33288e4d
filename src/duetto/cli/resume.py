"""`duetto resume RUN [--steps N] [--learners N] [--accept-changes] [--without-memory] [--cluster [ADDRESS]]`."""

from __future__ import annotations

import dataclasses
from inspect import signature
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, Positional, arg

from duetto.algorithms import ALGORITHMS
from duetto.cli import clusters, watching
from duetto.cli.clusters import Actors, Address, Ahead, AnyPace, Blocks, ReplayShards, with_address
from duetto.cli.options import Json, Quiet, Trust
from duetto.cli.output import expendable, print_json
from duetto.errors import UsageError
from duetto.storage.config import RunOptions


def main(arguments: list[str]) -> None:
    """Parse, and resume."""
    _check_known(arguments)
    tyro.cli(resume, args=with_address(arguments), prog="duetto resume")


def _check_known(arguments: list[str]) -> None:
    """Raise UsageError for options that a run is begun with, and say how to change those."""
    options = {name for kind in ALGORITHMS.values() for name in kind.options()}
    options |= {field.name for field in dataclasses.fields(RunOptions)}
    for argument in arguments:
        name = argument.removeprefix("--").partition("=")[0].replace("-", "_")
        name = name if name in options else name.removeprefix("no_")
        if argument.startswith("--") and name in options - signature(resume).parameters.keys():
            raise UsageError(
                f"duetto resume has no option {argument.partition('=')[0]}. Change {name} in the run's config.yaml, "
                f"and give --accept-changes; in Python: duetto.Run(path).resume({name}=...). What cannot change in a "
                "run that has begun, such as its networks' sizes, is refused then."
            )


def resume(
    run: Annotated[Positional[str], arg(help="The run's folder.")],
    steps: Annotated[int | None, arg(help="Steps in all; by default as the run was started.")] = None,
    without_memory: Annotated[
        FlagCreatePairsOff[bool], arg(help="Go on with an empty replay memory, where the checkpoint's is damaged.")
    ] = False,
    accept_changes: Annotated[
        FlagCreatePairsOff[bool], arg(help="Go on with what was changed in config.yaml since, such as a learning rate.")
    ] = False,
    keep_schedule: Annotated[
        FlagCreatePairsOff[bool], arg(help="With more --steps, end schedules where they would have ended.")
    ] = False,
    learners: Annotated[int | None, arg(help="Share each batch among so many; by default as the run was.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    trust: Trust = False,
    cluster: Address = None,
    actors: Actors = None,
    pace: AnyPace = None,
    block: Blocks = None,
    ahead: Ahead = None,
    replay_shards: ReplayShards = None,
    stop_at_return: watching.StopAtReturn = None,
    time_limit: watching.TimeLimit = None,
    video_every: watching.VideoEvery = None,
    track: watching.Track = None,
) -> None:
    """Go on with a run exactly where its last checkpoint was made, also after kill -9.

    On a cluster or not, and on one of another size, the numbers stay the same, unless actors act themselves (--pace):
    then the run goes on as it began. With another number of learners they stay the same to rounding.
    In config.yaml, steps, schedule_steps, threads, learners, vectorization, worker_timeout, keep, evaluation_episodes
    and the intervals of evaluations, checkpoints and metrics may be changed; what that does to the numbers is said.
    What else decides the numbers needs --accept-changes.
    """
    from duetto.display.showing import shown

    how = {"actors": actors, "pace": pace, "block": block, "ahead": ahead, "replay_shards": replay_shards}
    placed = clusters.cluster(cluster, **how)
    with expendable() as stream:
        console = Console(stderr=True) if json else Console(file=stream)
        beginning = f"{run}: reading the checkpoint, making environments and networks"
        with shown(console, beginning, quiet or json) as display:
            from duetto.runs.run import GoingOn, Run  # with all that it imports, while something is shown already

            looking_on = watching.callbacks(stop_at_return, time_limit, video_every, track)
            resumed = Run(run, trust=trust)
            going = GoingOn(
                steps,
                callbacks=[display, *looking_on],
                on_start=display.announce,
                without_memory=without_memory,
                accept_changes=accept_changes,
                keep_schedule=keep_schedule,
                cluster=placed,
                learners=learners,
            )
            resumed.go_on(going)
        display.finish(resumed.path)
    if json:
        print_json(display.summary(resumed.path))
