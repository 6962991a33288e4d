"""The commands `duetto train`, `duetto sweep` and `duetto tune`.

ALGORITHM is a name, or `FILE.py:CLASS`. With --config, a new run has the options of another run's `config.yaml`. That
file may come from a stranger: the code that it names needs --trust.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from duetto.errors import CheckpointError, DuettoError, UsageError, near
from duetto.storage import user_code
from duetto.tools.cli import options as shared
from duetto.tools.cli.learning import Call, CommandOptions, LearningCommand, Options, calls_of
from duetto.tools.cli.output import print_json
from duetto.tools.cli.parser import Arg, Flag
from duetto.training.progress_lines import say

if TYPE_CHECKING:  # slow to import, so a display starts first
    from duetto.runs.spec import RunSpec
    from duetto.tools.sweep.sweep import Experiment, PlannedRun

TRAIN: Options = {
    "": {"environment": shared.EnvironmentId},
    "run": {
        "seeds": shared.Seeds,
        "config": Annotated[
            str,
            Arg(
                "Use the ENVIRONMENT and options of a run's config.yaml, except for options given here.", metavar="FILE"
            ),
        ],
        "from_": Annotated[str, Arg("Start with the networks of a run.", metavar="RUN")],
        "from_checkpoint": Annotated[
            str, Arg("With --from: which checkpoint of that run. (default: last)", metavar="last|best|STEP")
        ],
        "runs_dir": Annotated[str, Arg("The folder in which to make the run's folder.", metavar="FOLDER")],
        "name": Annotated[str, Arg("The name of the run's folder.", metavar="NAME")],
        "stop_at_return": shared.StopAtReturn,
        "time_limit": shared.TimeLimit,
        "dry_run": Annotated[Flag, Arg("Print the configuration and stop.")],
        "trust": Annotated[Flag, Arg("With --config or --from: run Python code that another user's folder refers to.")],
    },
    "evaluation and logging": {"video_every": shared.VideoEvery, "track": shared.Track},
    "cluster": shared.CLUSTER,
}
SWEEP: Options = {
    "": {
        "environment": Annotated[
            str, Arg("Ids, module:ID, or FILE.py:NAME.", "ENVIRONMENT[,ENVIRONMENT ...]", is_positional=True)
        ]
    },
    "run": {
        "seeds": shared.Seeds,
        "jobs": Annotated[int, Arg("Number of runs at the same time.")],
        "output": Annotated[str, Arg("The folder of the runs.", "FOLDER")],
        "dry_run": Annotated[Flag, Arg("List the runs and their progress, and stop.")],
    },
    "evaluation and logging": {"track": shared.Track},
}
TUNE: Options = {
    "": {"environment": shared.EnvironmentId},
    "run": {
        "trials": Annotated[int, Arg("Total number of trials, including those of earlier calls.")],
        "seeds": Annotated[shared.Seeds, Arg("Seeds of each trial's runs: 0-4 or 0,3,9; 5 means 0-4.")],
        "search": Annotated[
            str, Arg("Ranges of options, such as tau: {low: 0.001, high: 0.05, log: true}", metavar="FILE.yaml")
        ],
        "search_only": Annotated[Flag, Arg("Search only the options in --search.")],
        "jobs": Annotated[int, Arg("Number of processes at the same time.")],
        "no_prune": Annotated[Flag, Arg("Let every trial run to its end.")],
        "output": Annotated[str, Arg("The study's folder.", metavar="FOLDER")],
    },
}
COMMANDS = {
    "train": CommandOptions(
        "duetto train ALGORITHM ENVIRONMENT [options]",
        """duetto train td3 --help lists td3's options.
To use another run's options: duetto train ALGORITHM --config RUN/config.yaml""",
        TRAIN,
        {"runs_dir": "runs"},
    ),
    "sweep": CommandOptions(
        "duetto sweep ALGORITHM[,ALGORITHM ...] ENVIRONMENT[,ENVIRONMENT ...] [options]",
        """Trains every algorithm in every environment with every seed. Each run has its
own process; if it fails, the others continue. The same command continues a sweep.

duetto sweep td3 --help lists all options, including td3's.""",
        SWEEP,
        {"seeds": "3", "jobs": 1},
        without=("seed",),
    ),
    "tune": CommandOptions(
        "duetto tune ALGORITHM ENVIRONMENT [options]",
        """Hyperparameters on the command line keep their values; the others are searched
around the preset's values. The same command continues a study.

duetto tune td3 --help lists all options, including td3's.""",
        TUNE,
        {"trials": 50, "seeds": "3", "jobs": 1},
    ),
}


def main(name: str, arguments: list[str]) -> None:
    """Parse the options of `train`, `sweep` or `tune`, and run the command."""
    if calls := calls_of(name, COMMANDS[name], arguments):
        {"train": train, "sweep": sweep, "tune": tune}[name](calls)


# ---------------------------------------------------------------------------------------------------- train
def train(calls: Sequence[Call]) -> None:
    """Train the run that the options describe, or with --seeds one run per seed, and print the folders."""
    from duetto.training.progress import shown

    [(command, given)] = calls
    seeds = _seeds(given) if "seeds" in given else None
    as_json = "json" in given
    if "dry_run" in given:
        _print_configs(_spec(command, given), seeds, as_json)
        return
    doing = f"{command.algorithm.name()} on {given.get('environment', given.get('config'))}: making environments"
    with shown(Console(stderr=as_json), f"{doing} and networks", as_json or "quiet" in given) as display:
        from duetto.runs.parallel_seeds import start_many  # slow to import, so the display starts first
        from duetto.runs.run import start

        spec = _spec(command, given)

        def callbacks() -> list[Any]:
            return [display, *shared.callbacks(given)]

        runs = [start(spec, callbacks())] if seeds is None else start_many(spec, seeds, callbacks, display.announce)
    paths = [run.path for run in runs]
    display.finish(*paths)
    if as_json:
        summaries = display.summaries(paths)
        print_json(summaries[0] if seeds is None else {"runs": summaries})


def _spec(command: LearningCommand, given: dict[str, Any]) -> RunSpec:
    """Return the run that the options describe. With --config, they override the options of a recorded run."""
    from duetto.runs.finetune import WarmStart

    start = WarmStart.asked_for(given.get("from_"), given.get("from_checkpoint", "last"))
    if "config" in given:
        spec = _recorded(command, given, start)
    else:
        spec = command.spec(given, given["environment"])
        spec = dataclasses.replace(spec, cluster=shared.cluster(given), warm_start=start)
    return dataclasses.replace(spec, **{name: given[name] for name in ("runs_dir", "name") if name in given})


def _recorded(command: LearningCommand, given: dict[str, Any], start: Any) -> RunSpec:
    """Return a run with the options recorded in --config. Options on the command line override them.

    Raises:
        UsageError: The file is not a run's config.yaml; or it names a stranger's code or run, without --trust.
    """
    from duetto.runs.finetune import WarmStart
    from duetto.runs.spec import RunSpec
    from duetto.storage import reproducibility, signing
    from duetto.storage.config import Config

    file, environment = given["config"], user_code.absolute(given.get("environment", ""))
    path = Path(file) / "config.yaml" if Path(file).is_dir() else Path(file)
    if "preset" in given:
        raise UsageError("--config sets every option already. Leave --preset out.")
    if not path.is_file():
        raise UsageError(f"--config is {file!r}; it must be the config.yaml of a run.")
    try:
        config = Config.load(path, algorithm=command.algorithm)
    except CheckpointError as error:
        raise UsageError(f"--config {file} is not the config.yaml of a run: {error}") from error
    for sentence in reproducibility.of_its_history(config.to_dict()):
        say(Console(stderr=True), f"--config {file}: {sentence}", "yellow")
    options = command.learning_options(given)
    mine = {name: value for name, value in options.items() if name in command.algorithm.options()}
    run = {name: value for name, value in options.items() if name not in mine}
    if run.get("backend", config.run.backend) != config.run.backend:
        run = {"threads": 0} | run  # the recorded number was chosen for the other framework
    if not environment and not config.remakeable:
        raise UsageError(
            f"The environment in {file} is {config.environment}, not an id. Name an environment after the algorithm."
        )
    if signing.needs_trust("" if environment else config.environment, config.environment_options):
        config.check_trust("environment", file, "trust" in given)
    if config.cluster and "cluster" not in given:
        raise UsageError(f"The run of {file} was on a cluster, which affects its results. Give --cluster to repeat it.")
    if config.began_from is not None and start is None:
        config.check_trust("from", file, "trust" in given)
        start = WarmStart.from_dict(config.began_from)
    recorded_cluster = {name: value for name, value in config.cluster.items() if name in shared.CLUSTER}
    return RunSpec(
        algorithm=config.algorithm.with_options(**mine),
        environment=environment or config.environment,
        options=dataclasses.replace(config.run, **run),
        preset=config.preset,
        environment_options=config.environment_options | shared.parse_options(given.get("environment_options", ())),
        origin=command.origin,
        warm_start=start,
        cluster=shared.cluster(recorded_cluster | given),
    )


def _seeds(given: dict[str, Any]) -> tuple[int, ...]:
    """Return the seeds of --seeds. Raise UsageError for options that only a single run can have."""
    from duetto.runs.argument_checks import parse_seeds

    if refused := next((name for name in ("seed", "track", *shared.CLUSTER) if name in given), None):
        raise UsageError(f"--{refused.replace('_', '-')} cannot be combined with --seeds. Leave out one of the two.")
    return parse_seeds(given["seeds"])


def _print_configs(spec: RunSpec, seeds: tuple[int, ...] | None, as_json: bool) -> None:
    """Print the configuration of each run that the command would start."""
    from duetto.runs.parallel_seeds import planned_together

    configs = [spec.config()] if seeds is None else planned_together(spec, seeds)
    if as_json:
        dicts = [config.to_dict() for config in configs]
        print_json(dicts[0] if seeds is None else {"runs": dicts})
    else:
        separator = "" if seeds is None else "---\n"
        print("".join(f"{separator}{config.to_yaml()}" for config in configs), end="")


# ---------------------------------------------------------------------------------------------------- sweep
def experiment(name: str, arguments: Sequence[str], seeds: Sequence[int]) -> Experiment:
    """Return the experiment `name`, which runs `duetto train ARGUMENTS` with each of the seeds."""
    command = LearningCommand("sweep", arguments[0], COMMANDS["sweep"])
    (found,) = _experiments(command, command.parser().parse(arguments[1:]))
    return dataclasses.replace(found, spec=dataclasses.replace(found.spec, name=name), seeds=tuple(seeds))


def _experiments(command: LearningCommand, given: dict[str, Any]) -> list[Experiment]:
    """Return an experiment for each environment, all with the command's algorithm."""
    from duetto.tools.sweep.api import experiments

    options = command.learning_options(given) | {"track": given.get("track", ())}
    options["environment_options"] = shared.parse_options(given.get("environment_options", ()))
    if "preset" in given:
        options["preset"] = given["preset"]
    return experiments(command.word, given["environment"].split(","), given.get("seeds", 3), options)


def sweep(calls: Sequence[Call]) -> None:
    """Train all runs, and print the results. Raise DuettoError (exit code 1) if a run failed."""
    from duetto.tools.sweep.display import SweepDisplay

    given = COMMANDS["sweep"].defaults | calls[0][1]

    def experiments() -> list[Experiment]:
        return [experiment for call in calls for experiment in _experiments(*call)]

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


# ---------------------------------------------------------------------------------------------------- tune
def tune(calls: Sequence[Call]) -> None:
    """Run the study that the options describe, and print the best trial or how to continue."""
    from duetto.tools.sweep.display import SweepDisplay

    [(command, given)] = calls
    values, as_json = COMMANDS["tune"].defaults | given, "json" in given
    with SweepDisplay(Console(stderr=as_json), as_json or "quiet" in given) as display:
        display.doing(f"{command.algorithm.name()} on {given['environment']}: making environments")
        from duetto.tools.tune import api  # slow to import, so the display starts first

        fixed = frozenset(given) & frozenset(command.algorithm.options())
        spec, prune = command.spec(given, given["environment"]), "no_prune" not in given
        plan = api.planned_study(spec, values["seeds"], given.get("search"), "search_only" in given, fixed, prune)
        found = api.conduct(plan, given.get("output"), values["trials"], values["jobs"], display)
    display.finish(found)
    if as_json:
        print_json(found.to_dict())
