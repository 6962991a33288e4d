"""`duetto resume RUN [--steps N] [--accept-changes] [--cluster [ADDRESS]]`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from duetto.algorithms import ALGORITHMS
from duetto.storage.config import RunOptions
from duetto.tools.cli import options as shared
from duetto.tools.cli.options import Json, Quiet, RunFolder, Trust
from duetto.tools.cli.output import expendable, print_json
from duetto.tools.cli.parser import Flag, run_function


def main(arguments: list[str]) -> None:
    """Parse the options and resume."""
    run_function(resume, "duetto resume", arguments, _how_to_change)


def _how_to_change(name: str) -> str:
    """Return how to change an option of `train` in a run; "" for other names."""
    options = {name for kind in ALGORITHMS.values() for name in kind.options()}
    options |= {field.name for field in dataclasses.fields(RunOptions)}
    option, name = name.replace("_", "-"), name if name in options else name.removeprefix("no_")
    if name not in options:
        return ""
    return (
        f"duetto resume has no option --{option}. Change {name} in the run's config.yaml, and give --accept-changes; "
        f"in Python: duetto.Run(path).resume({name}=...). Duetto then refuses options that cannot change in a run, "
        "such as its networks' sizes."
    )


def resume(
    run: RunFolder,
    steps: Annotated[int | None, arg(help="Steps in all; by default as the run was started.")] = None,
    accept_changes: Annotated[
        Flag, arg(help="Continue with changed options of config.yaml, such as a learning rate.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    trust: Trust = False,
    cluster: shared.Address = None,
    actors: shared.Actors = None,
    mode: shared.AnyMode = None,
    block: shared.Blocks = None,
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

    how = {"actors": actors, "mode": mode, "block": block, "replay_shards": replay_shards}
    placed = shared.cluster({"cluster": cluster, **how})
    watching = {"stop_at_return": stop_at_return, "time_limit": time_limit, "video_every": video_every, "track": track}
    with expendable() as stream:
        console = Console(stderr=True) if json else Console(file=stream)
        doing = f"{run}: reading the checkpoint, making environments and networks"
        with shown(console, doing, quiet or json) as display:
            from duetto.runs.run import ResumeOptions, Run  # slow to import: the display shows something already

            callbacks = shared.callbacks({name: value for name, value in watching.items() if value is not None})
            resumed = Run(run, trust=trust)
            going = ResumeOptions(
                steps,
                callbacks=[display, *callbacks],
                on_start=display.announce,
                accept_changes=accept_changes,
                cluster=placed,
            )
            resumed.resume_with(going)
        display.finish(resumed.path)
    if json:
        print_json(display.summaries([resumed.path])[0])
