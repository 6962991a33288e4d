"""`duetto sweep ALGORITHM,... ENVIRONMENT,... [options]` or `duetto sweep FILE.yaml`: many runs at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from duetto.errors import DuettoError, near
from duetto.tools.cli.learning import LearningCommand, all_parsers, is_overview
from duetto.tools.cli.options import Json, Quiet, Seeds, Track, tracker_names
from duetto.tools.cli.output import expendable, print_json
from duetto.tools.cli.parser import Flag, OptionGroup, Parser

if TYPE_CHECKING:  # slow to import: a display shows something first
    from duetto.tools.sweep.experiments import Experiment
    from duetto.tools.sweep.plan import PlannedRun

USAGE = """duetto sweep ALGORITHM[,ALGORITHM ...] ENVIRONMENT[,ENVIRONMENT ...] [options]
       duetto sweep FILE.yaml [options]"""
ABOUT = """Trains every algorithm in every environment with every seed. Each run has its
own process; one that fails does not end the others. The same command continues.

duetto sweep td3 --help lists the options with td3's. A file has algorithms,
environments, seeds, and options by their names:

  algorithms: {td3: , td3-no-delay: {algorithm: td3, policy_delay: 1}}
  environments: [Pendulum-v1, HalfCheetah-v5]
  seeds: 0-4
  steps: 20000"""
OF_FILE: dict[str, Any] = {
    "jobs": Annotated[int, arg(help="Runs at a time (1).")],
    "output": Annotated[str, arg(help="The folder of the runs.", metavar="FOLDER")],
    "dry_run": Annotated[Flag, arg(help="List the runs and their progress.")],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "": {"environment": Annotated[Positional[str], arg(metavar="ENVIRONMENT[,ENVIRONMENT ...]", help="Their ids.")]},
    "run": {"seeds": Seeds} | OF_FILE,
    "evaluation and logging": {"track": Track},
}


def main(arguments: list[str]) -> None:
    """Parse the options, and train."""
    if is_overview(arguments, USAGE, ABOUT):
        return
    first, *rest = arguments
    if first.endswith((".yaml", ".yml")):
        options = OF_FILE | {"quiet": Quiet, "json": Json}
        parser = Parser("duetto sweep FILE.yaml", [OptionGroup("", options, dict.fromkeys(options))])
        given: dict[str, Any] | None = parser.parse(rest)
        if {"help", "help_all"} & given.keys():
            parser.print_help(getdoc(_from_file) or "")
        else:
            _sweep(given, lambda: _from_file(first), Path(first).stem)
        return
    calls = [(command, command.parse(rest)) for command in map(_command, first.split(","))]
    if any(given is None for _, given in calls[:1]):
        return
    for command, given in calls:
        command.parser().check_complete(given or {})
    _sweep(calls[0][1] or {}, lambda: [each for command, given in calls for each in _experiments(command, given or {})])


def parsers() -> dict[str, Parser]:
    """Return the parser of each algorithm."""
    return all_parsers(_command)


def setting(name: str, arguments: Sequence[str], seeds: Sequence[int]) -> Experiment:
    """Return the experiment that `duetto train ARGUMENTS` would train, with these seeds; `name` starts its runs'."""
    command = _command(arguments[0])
    (found,) = _experiments(command, command.parser().parse(arguments[1:]))
    return dataclasses.replace(found, spec=dataclasses.replace(found.spec, name=name), seeds=tuple(seeds))


def _command(word: str) -> LearningCommand:
    return LearningCommand("sweep", word, OPTIONS, ("seed",), {"seeds": "3"})


def _experiments(command: LearningCommand, given: dict[str, Any]) -> list[Experiment]:
    """Return the experiment of the algorithm in each environment."""
    from duetto.runs.seeds import parse_seeds
    from duetto.tools.sweep.experiments import Experiment, experiment_name

    made = []
    for environment in given["environment"].split(","):
        spec = command.spec(given | {"environment": environment}, environment)
        spec = dataclasses.replace(spec, name=experiment_name(spec.algorithm.name(), spec.label))
        made.append(Experiment(spec, parse_seeds(given.get("seeds", 3)), tracker_names(given.get("track"))))
    return made


def _from_file(path: str) -> list[Experiment]:
    """Train what a file describes."""
    from duetto.tools.sweep.experiments import from_file

    return from_file(path)


def _sweep(given: dict[str, Any], experiments: Callable[[], list[Experiment]], name: str | None = None) -> None:
    """Train, and print the results. DuettoError, and so exit code 1, if a run failed."""
    from duetto.tools.sweep.display import SweepDisplay

    if "dry_run" in given:
        _list(experiments(), name, given)
        return
    with expendable() as stream:
        console = Console(stderr=True) if "json" in given else Console(file=stream)
        with SweepDisplay(console, "quiet" in given or "json" in given) as display:
            display.doing("making environments")
            from duetto.tools.sweep import api  # slow to import

            swept = api.conduct(experiments(), name, given.get("output"), given.get("jobs"), display)
        display.finish(swept)
    if "json" in given:
        print_json(swept.to_dict())
    if swept.failed:
        lines = "\n".join(f"  {near(run.path)}: {run.log and near(run.log)}" for run in swept.failed)
        raise DuettoError(
            f"{len(swept.failed)} of {len(swept.runs)} runs failed; their logs say why. The same command tries them "
            f"again.\n{lines}"
        )


def _list(experiments: list[Experiment], name: str | None, given: dict[str, Any]) -> None:
    from duetto.tools.sweep import api

    folder, planned = api.listed(experiments, name, given.get("output"))
    if "json" in given:
        runs = [{"path": str(run.folder), "state": _state(run), "step": run.checkpoint_step()} for run in planned]
        print_json({"folder": str(folder), "runs": runs})
        return
    for run in planned:
        made = f", {run.checkpoint_step():,} of {run.config.run.steps:,} steps" if _state(run) == "begun" else ""
        print(f"{near(run.folder)}  {_state(run)}{made}")


def _state(run: PlannedRun) -> str:
    if run.complete:
        return "complete"
    return "begun" if run.begun else "new"
