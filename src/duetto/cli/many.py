"""`duetto train ALGORITHM ENVIRONMENT --seeds 0-9`: a run for each seed, side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from duetto.cli import watching
from duetto.cli.options import seeds
from duetto.cli.output import expendable, print_json
from duetto.errors import UsageError
from duetto.storage.origin import Origin


def train_many(call: Any, preset: str, environment: dict[str, Any], origin: Origin | None, beginning: Any) -> None:
    """Start the runs that the command line describes, and show where they are and how to go on."""
    from duetto.display.group import GroupDisplay
    from duetto.display.showing import shown

    numbers = seeds(call.seeds)
    _check(call)
    own = (preset, environment, origin)
    if call.dry_run:
        from duetto.runs.many import planned_together

        configs = planned_together(call.hyperparameters, call.environment, call.run, numbers, *own)
        if beginning:
            configs = [beginning.planned(one) for one in configs]
        if call.json:
            print_json({"runs": [config.to_dict() for config in configs]})
        else:
            print("".join(f"---\n{config.to_yaml()}" for config in configs), end="")
        return
    with expendable() as stream:
        console = Console(stderr=True) if call.json else Console(file=stream)
        begins = f"{call.hyperparameters.name()} on {call.environment}: making environments and networks"
        with shown(console, begins, call.quiet or call.json, GroupDisplay) as display:
            from duetto.runs.many import start_many

            runs = start_many(
                call.hyperparameters,
                call.environment,
                call.run,
                numbers,
                runs_dir=call.runs_dir,
                name=call.name,
                preset=preset,
                environment_options=environment,
                callbacks=lambda: [
                    display,
                    *watching.callbacks(call.stop_at_return, call.time_limit, call.video_every, None),
                ],
                on_start=display.announce_all,
                origin=origin,
                beginning=beginning,
            )
        display.finish_all([run.path for run in runs])
    if call.json:
        print_json(display.summary_of_all([run.path for run in runs]))


def _check(call: Any) -> None:
    if call.track is not None:
        raise UsageError("--track follows one run in a process. Leave it out, or train the seeds one by one.")
    for name in ("cluster", "actors", "pace", "block", "ahead", "replay_shards"):
        if getattr(call, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is of a cluster; --seeds trains in this process. Give one of the two.")
