"""`duetto sweep ALGORITHM,... ENVIRONMENT,... [options]` or `duetto sweep FILE.yaml`: many runs at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.errors import DuettoError, UsageError, near
from duetto.storage import user_code
from duetto.storage.config import RunOptions
from duetto.tools.cli.options import (
    Flag,
    Json,
    Quiet,
    Track,
    cluster,
    learning_fields,
    parse_options,
    tracker_names,
    with_address,
)
from duetto.tools.cli.output import expendable, print_json
from duetto.tools.cli.train import algorithm_named, chosen_preset, parsed

if TYPE_CHECKING:  # with all that it imports, and something is to be seen before that
    from duetto.cluster import Cluster
    from duetto.tools.sweep.experiments import Experiment
    from duetto.tools.sweep.plan import PlannedRun

USAGE = """duetto sweep ALGORITHM[,ALGORITHM ...] ENVIRONMENT[,ENVIRONMENT ...] [options]
       duetto sweep FILE.yaml [options]"""
ABOUT = """Trains every algorithm in every environment with every seed. Each is an ordinary run in a process of its own;
one that fails does not end the others. The same command goes on: what is complete stays, what was begun is taken up.

ALGORITHM is a name, or FILE.py:CLASS. Algorithms: {algorithms}.

  --seeds SEEDS         how many, 5, or which: 0-4, or 0,3,9 (3)
  --jobs N              runs at a time (1; on a cluster as many as it has CPUs)
  --output FOLDER       the folder of the runs (sweeps/ALGORITHMS-ENVIRONMENTS)
  --cluster [ADDRESS]   a Ray cluster trains: the one at this address, or one on this machine
  --dry-run             list the runs, and how far they are
  --quiet, --json       say what has to be known alone; one JSON object at the end

Of `duetto train` it has the options of the run and of the algorithms, --preset, --environment-options and --track.
A file has algorithms, environments, seeds, and options by their names:

  algorithms: {{td3: , td3-no-delay: {{algorithm: td3, policy_delay: 1}}}}
  environments: [Pendulum-v1, HalfCheetah-v5]
  seeds: 0-4
  steps: 20000"""

Jobs = Annotated[int | None, arg(help="Runs at a time; 1, on a cluster as many as it has CPUs.")]
Output = Annotated[str | None, arg(help="The folder of the runs.", metavar="FOLDER")]
OnCluster = Annotated[
    str | None, arg(metavar="[ADDRESS]", help="Train on a Ray cluster: at this address, or one on this machine.")
]
DryRun = Annotated[Flag, arg(help="List the runs, and how far they are.")]


def main(arguments: list[str]) -> None:
    """Parse, and train."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {USAGE}\n\n{ABOUT.format(algorithms=', '.join(ALGORITHMS))}")
        return
    if arguments[0].endswith((".yaml", ".yml")):
        call = tyro.cli(OfFile, args=with_address(arguments[1:]), prog="duetto sweep FILE.yaml")
        _sweep(call, lambda: _from_file(arguments[0]), Path(arguments[0]).stem)
        return
    if "-h" in arguments or "--help" in arguments:
        _parsed(arguments[0].split(",")[0], "", ["--help"])
    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise UsageError(f"Algorithms and environments come first: {USAGE.splitlines()[0]}")
    options = with_address(arguments[2:])
    if any(option.partition("=")[0] == "--seed" for option in options):
        raise UsageError("A sweep has --seeds: how many, --seeds 5, or which, --seeds 0-4 or --seeds 0,3,9.")
    calls = [
        (name, _parsed(name, environment, options))
        for name in arguments[0].split(",")
        for environment in arguments[1].split(",")
    ]
    _sweep(calls[0][1][0], lambda: [_setting(*parts) for _, parts in calls])


@dataclasses.dataclass(frozen=True)
class OfFile:
    """Train what a file describes."""

    jobs: Jobs = None
    output: Output = None
    cluster: OnCluster = None
    dry_run: DryRun = False
    quiet: Quiet = False
    json: Json = False


def setting(name: str, arguments: Sequence[str], seeds: Sequence[int]) -> Experiment:
    """The setting that `duetto train ARGUMENTS` would train, with these seeds; `name` begins its runs' names."""
    algorithm, environment, *options = arguments
    found = _setting(*_parsed(algorithm, environment, options))
    return dataclasses.replace(found, spec=dataclasses.replace(found.spec, name=name), seeds=tuple(seeds))


def _parsed(name: str, environment: str, options: list[str]) -> tuple[Any, ...]:
    algorithm, origin = algorithm_named(name)
    environment = user_code.absolute(environment)
    preset_name, preset = chosen_preset(algorithm, origin, environment, options)
    arguments = [environment, *options] if environment else options
    return parsed(algorithm, arguments, preset_name, preset, _command), preset_name, preset, origin


def _setting(call: Any, preset_name: str, preset: Any, origin: Any) -> Experiment:
    from duetto.runs.seeds import parse_seeds
    from duetto.runs.spec import RunSpec
    from duetto.tools.sweep.experiments import Experiment, experiment_name

    options = preset.environment | parse_options(call.environment_options)
    spec = RunSpec(call.hyperparameters, call.environment, call.run, preset_name, options, origin)
    spec = dataclasses.replace(spec, name=experiment_name(call.hyperparameters.name(), call.environment))
    return Experiment(spec, parse_seeds(call.seeds), tracker_names(call.track))


def _from_file(path: str) -> list[Experiment]:
    from duetto.tools.sweep.experiments import from_file

    return from_file(path)


def _sweep(call: Any, settings: Callable[[], list[Experiment]], name: str | None = None) -> None:
    """Train, and show the results. DuettoError, and so exit code 1, if a run failed."""
    from duetto.tools.sweep.display import SweepDisplay

    placed = cluster(call.cluster)
    if call.dry_run:
        _list(settings(), name, call, placed)
        return
    with expendable() as stream:
        console = Console(stderr=True) if call.json else Console(file=stream)
        with SweepDisplay(console, call.quiet or call.json) as display:
            display.doing("making environments")
            from duetto.tools.sweep import api  # with all that it imports, while something is shown already

            found = api.conduct(settings(), name, call.output, call.jobs, placed, display)
        display.finish(found)
    if call.json:
        print_json(found.to_dict())
    if found.failed:
        lines = "\n".join(f"  {near(run.path)}: {run.log and near(run.log)}" for run in found.failed)
        raise DuettoError(
            f"{len(found.failed)} of {len(found.runs)} runs failed; why, is in their logs. The same command tries them "
            f"again.\n{lines}"
        )


def _list(settings: list[Experiment], name: str | None, call: Any, placed: Cluster | None) -> None:
    from duetto.tools.sweep import api

    folder, planned = api.listed(settings, name, call.output)
    if call.json:
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


def _command(algorithm: type[Algorithm], hyperparameters: Algorithm, run: RunOptions) -> Any:
    """The command as a dataclass that tyro reads: its own options, the run's and the algorithm's, side by side."""
    fields: list[Any] = [
        ("environment", Annotated[Positional[str], arg(metavar="ENVIRONMENT", help="Ids.")], dataclasses.field()),
        ("seeds", Annotated[str, arg(help="How many, or which: 0-4, or 0,3,9.", metavar="SEEDS")], "3"),
        ("jobs", Jobs, None),
        ("output", Output, None),
        ("cluster", OnCluster, None),
        ("dry_run", DryRun, False),
        *learning_fields(algorithm, hyperparameters, run),
        ("preset", Annotated[str | None, arg(help="Named hyper-parameters, of each algorithm.")], None),
        ("track", Track, None),
    ]
    return dataclasses.make_dataclass("Sweep", fields)
