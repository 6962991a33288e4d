"""`duetto sweep ALGORITHM,... ENVIRONMENT,... [options]`: many runs at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from duetto.errors import DuettoError, near
from duetto.tools.cli.learning import LearningCommand, is_overview
from duetto.tools.cli.options import Seeds, Track, parse_options
from duetto.tools.cli.output import print_json
from duetto.tools.cli.parser import Arg, Flag

if TYPE_CHECKING:  # slow to import: a display shows something first
    from duetto.tools.sweep.plan import Experiment, PlannedRun

USAGE = "duetto sweep ALGORITHM[,ALGORITHM ...] ENVIRONMENT[,ENVIRONMENT ...] [options]"
ABOUT = """Trains every algorithm in every environment with every seed. Each run has its
own process; one that fails does not end the others. The same command continues.

duetto sweep td3 --help lists the options with td3's."""
OPTIONS: dict[str, dict[str, Any]] = {
    "": {"environment": Annotated[str, Arg("Their ids.", "ENVIRONMENT[,ENVIRONMENT ...]", is_positional=True)]},
    "run": {
        "seeds": Seeds,
        "jobs": Annotated[int, Arg("Runs at a time.")],
        "output": Annotated[str, Arg("The folder of the runs.", "FOLDER")],
        "dry_run": Annotated[Flag, Arg("List the runs and their progress.")],
    },
    "evaluation and logging": {"track": Track},
}
DEFAULTS: dict[str, Any] = {"seeds": "3", "jobs": 1}


def main(arguments: list[str]) -> None:
    """Parse the options, and train."""
    if is_overview(arguments, USAGE, ABOUT):
        return
    calls = [(command, command.parse(arguments[1:])) for command in map(_command, arguments[0].split(","))]
    if (given := calls[0][1]) is not None:
        _sweep(DEFAULTS | given, calls)


def setting(name: str, arguments: Sequence[str], seeds: Sequence[int]) -> Experiment:
    """Return the experiment that `duetto train ARGUMENTS` would train, with these seeds; `name` starts its runs'."""
    command = _command(arguments[0])
    (found,) = _experiments(command, command.parser().parse(arguments[1:]))
    return dataclasses.replace(found, spec=dataclasses.replace(found.spec, name=name), seeds=tuple(seeds))


def _command(word: str) -> LearningCommand:
    return LearningCommand("sweep", word, OPTIONS, ("seed",), DEFAULTS)


def _experiments(command: LearningCommand, given: dict[str, Any]) -> list[Experiment]:
    """Return the experiment of the algorithm in each environment."""
    from duetto.tools.sweep.plan import experiments

    options = command.learning_options(given) | {"track": given.get("track", ())}
    options["environment_options"] = parse_options(given.get("environment_options", ()))
    if "preset" in given:
        options["preset"] = given["preset"]
    return experiments(command.word, given["environment"].split(","), given.get("seeds", 3), options)


def _sweep(given: dict[str, Any], calls: Sequence[tuple[LearningCommand, dict[str, Any] | None]]) -> None:
    """Train, and print the results. DuettoError, and so exit code 1, if a run failed."""
    from duetto.tools.sweep.display import SweepDisplay

    def experiments() -> list[Experiment]:
        return [experiment for command, options in calls for experiment in _experiments(command, options or {})]

    if "dry_run" in given:
        _list(experiments(), given)
        return
    with SweepDisplay(Console(stderr="json" in given), "quiet" in given or "json" in given) as display:
        display.doing("making environments")
        from duetto.tools.sweep import api  # slow to import

        swept = api.conduct(experiments(), given.get("output"), given["jobs"], display)
    display.finish(swept)
    if "json" in given:
        print_json(swept.to_dict())
    if swept.failed:
        lines = "\n".join(f"  {near(run.path)}: {run.log and near(run.log)}" for run in swept.failed)
        raise DuettoError(
            f"{len(swept.failed)} of {len(swept.runs)} runs failed; their logs say why. The same command tries them "
            f"again.\n{lines}"
        )


def _list(experiments: list[Experiment], given: dict[str, Any]) -> None:
    from duetto.tools.sweep import api

    folder, planned = api.listed(experiments, given.get("output"))
    if "json" in given:
        runs = [{"path": str(run.folder), "state": _state(run), "step": run.checkpoint_step()} for run in planned]
        print_json({"folder": str(folder), "runs": runs})
        return
    for run in planned:
        made = f", {run.checkpoint_step():,} of {run.config.run.steps:,} steps" if _state(run) == "started" else ""
        print(f"{near(run.folder)}  {_state(run)}{made}")


def _state(run: PlannedRun) -> str:
    return "complete" if run.complete else "started" if run.has_config else "new"
