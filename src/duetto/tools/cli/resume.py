"""`duetto resume RUN [--steps N] [--accept-changes] [--without-memory] [--cluster [ADDRESS]]`."""

from __future__ import annotations

import dataclasses
from inspect import signature
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import arg

from duetto.algorithms import ALGORITHMS
from duetto.errors import UsageError
from duetto.storage.config import RunOptions
from duetto.tools.cli import options as shared
from duetto.tools.cli.options import Flag, Json, Quiet, RunFolder, Trust, with_address
from duetto.tools.cli.output import expendable, print_json


def main(arguments: list[str]) -> None:
    """Parse the options and resume."""
    _check_known(arguments)
    tyro.cli(resume, args=with_address(arguments), prog="duetto resume")


def _check_known(arguments: list[str]) -> None:
    """Raise UsageError for options of `train`, with the way to change them in a run."""
    options = {name for kind in ALGORITHMS.values() for name in kind.options()}
    options |= {field.name for field in dataclasses.fields(RunOptions)}
    for argument in arguments:
        name = argument.removeprefix("--").partition("=")[0].replace("-", "_")
        name = name if name in options else name.removeprefix("no_")
        if argument.startswith("--") and name in options - signature(resume).parameters.keys():
            raise UsageError(
                f"duetto resume has no option {argument.partition('=')[0]}. Change {name} in the run's config.yaml, "
                f"and give --accept-changes; in Python: duetto.Run(path).resume({name}=...). Duetto then refuses "
                "options that cannot change in a run, such as its networks' sizes."
            )


def resume(
    run: RunFolder,
    steps: Annotated[int | None, arg(help="Steps in all; by default as the run was started.")] = None,
    without_memory: Annotated[
        Flag, arg(help="Continue with an empty replay memory if the checkpoint's is damaged.")
    ] = False,
    accept_changes: Annotated[
        Flag, arg(help="Continue with changed options of config.yaml, such as a learning rate.")
    ] = False,
    keep_schedule: Annotated[Flag, arg(help="With more --steps, end schedules where they would have ended.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    trust: Trust = False,
    cluster: shared.Address = None,
    actors: shared.Actors = None,
    mode: shared.AnyMode = None,
    block: shared.Blocks = None,
    ahead: shared.Ahead = None,
    replay_shards: shared.ReplayShards = None,
    stop_at_return: shared.StopAtReturn = None,
    time_limit: shared.TimeLimit = None,
    video_every: shared.VideoEvery = None,
    track: shared.Track = None,
) -> None:
    """Continue a run exactly from its last checkpoint, also after kill -9.

    A run that was started on a cluster needs --cluster again, and keeps its mode, its block length and, in the mode
    sync, its number of actors.
    In config.yaml, steps, schedule_steps, threads, vectorization, worker_timeout, keep, evaluation_episodes
    and the intervals of evaluations, checkpoints and metrics may be changed; Duetto reports the effect on the numbers.
    Other options that decide the numbers need --accept-changes.
    """
    from duetto.training.progress import shown

    how = {"actors": actors, "mode": mode, "block": block, "ahead": ahead, "replay_shards": replay_shards}
    placed = shared.cluster(cluster, **how)
    with expendable() as stream:
        console = Console(stderr=True) if json else Console(file=stream)
        doing = f"{run}: reading the checkpoint, making environments and networks"
        with shown(console, doing, quiet or json) as display:
            from duetto.runs.run import ResumeOptions, Run  # slow to import: the display shows something already

            callbacks = shared.callbacks(stop_at_return, time_limit, video_every, track)
            resumed = Run(run, trust=trust)
            going = ResumeOptions(
                steps,
                callbacks=[display, *callbacks],
                on_start=display.announce,
                without_memory=without_memory,
                accept_changes=accept_changes,
                keep_schedule=keep_schedule,
                cluster=placed,
            )
            resumed.resume_with(going)
        display.finish(resumed.path)
    if json:
        print_json(display.summaries([resumed.path])[0])
