"""`duetto train ALGORITHM ENVIRONMENT [options]`; ALGORITHM is a name, or `FILE.py:CLASS`.

With --config, a new run has the options of another run's `config.yaml`, which may be a stranger's.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from duetto.errors import CheckpointError, UsageError
from duetto.storage import user_code
from duetto.tools.cli import options as shared
from duetto.tools.cli.learning import LearningCommand, is_overview
from duetto.tools.cli.output import print_json
from duetto.tools.cli.parser import Arg, Flag
from duetto.training.progress_lines import say

if TYPE_CHECKING:
    from duetto.runs.spec import RunSpec  # slow to import

USAGE = "duetto train ALGORITHM ENVIRONMENT [options]"
ABOUT = """duetto train td3 --help lists td3's options.
With another run's options: duetto train ALGORITHM --config RUN/config.yaml."""
OPTIONS: dict[str, dict[str, Any]] = {
    "": {"environment": shared.EnvironmentId},
    "run": {
        "seeds": shared.Seeds,
        "config": Annotated[str, Arg("Use all options of this run's config.yaml.", metavar="FILE")],
        "from_": Annotated[str, Arg("Start with this run's networks.", metavar="RUN")],
        "from_checkpoint": Annotated[
            str, Arg("With --from: the checkpoint of that run (last).", metavar="last|best|STEP")
        ],
        "runs_dir": Annotated[str, Arg("The parent of the run's folder.", metavar="FOLDER")],
        "name": Annotated[str, Arg("The folder's name.", metavar="NAME")],
        "stop_at_return": shared.StopAtReturn,
        "time_limit": shared.TimeLimit,
        "dry_run": Annotated[Flag, Arg("Print the configuration and stop.")],
        "trust": Annotated[Flag, Arg("Allow code that another person's config.yaml names.")],
    },
    "evaluation and logging": {"video_every": shared.VideoEvery, "track": shared.Track},
    "cluster": shared.CLUSTER,
}


def main(arguments: list[str]) -> None:
    """Parse the options, and train."""
    if is_overview(arguments, USAGE, ABOUT):
        return
    command = _command(arguments[0])
    if (given := command.parse(arguments[1:])) is not None:
        train(command, given)


def _command(word: str) -> LearningCommand:
    return LearningCommand("train", word, OPTIONS, defaults={"runs_dir": "runs"})


def train(command: LearningCommand, given: dict[str, Any]) -> None:
    """Start the run or, with --seeds, the runs that the command line describes, and print where they are."""
    from duetto.training.progress import shown

    seeds = _seeds(given) if "seeds" in given else None
    as_json = "json" in given
    if "dry_run" in given:
        _print_configs(_spec(command, given), seeds, as_json)
        return
    doing = f"{command.algorithm.name()} on {given.get('environment', given.get('config'))}: making environments"
    with shown(Console(stderr=as_json), f"{doing} and networks", as_json or "quiet" in given) as display:
        from duetto.runs.parallel_seeds import start_many  # slow to import: the display shows something already
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
    """Return the run that the options describe, or with --config the recorded one with the options on top."""
    from duetto.runs.finetune import WarmStart

    start = WarmStart.asked_for(given.get("from_"), given.get("from_checkpoint", "last"))
    if "config" in given:
        spec = _recorded(command, given, start)
    else:
        spec = command.spec(given, given["environment"])
        spec = dataclasses.replace(spec, cluster=shared.cluster(given), warm_start=start)
    return dataclasses.replace(spec, **{name: given[name] for name in ("runs_dir", "name") if name in given})


def _recorded(command: LearningCommand, given: dict[str, Any], start: Any) -> RunSpec:
    """Return the recorded run, with the options on the command line on top.

    Raises:
        UsageError: The file is no run's, or names a stranger's code or run, and --trust is not given.
    """
    from duetto.runs.finetune import WarmStart
    from duetto.runs.spec import RunSpec
    from duetto.storage import reproducibility, signing
    from duetto.storage.config import Config

    file, environment = given["config"], user_code.absolute(given.get("environment", ""))
    path = Path(file) / "config.yaml" if Path(file).is_dir() else Path(file)
    if "preset" in given:
        raise UsageError("--config says every option already: leave --preset out.")
    if not path.is_file():
        raise UsageError(f"--config is {file!r}; it must be the config.yaml of a run.")
    try:
        config = Config.load(path, algorithm=command.algorithm)
    except CheckpointError as error:
        raise UsageError(f"--config {file} is no config.yaml of a run: {error}") from error
    for sentence in reproducibility.of_its_history(config.to_dict()):
        say(Console(stderr=True), f"--config {file}: {sentence}", "yellow")
    options = command.learning_options(given)
    mine = {name: value for name, value in options.items() if name in command.algorithm.options()}
    run = {name: value for name, value in options.items() if name not in mine}
    if run.get("backend", config.run.backend) != config.run.backend:
        run = {"threads": 0} | run  # they were chosen for the other framework
    if not environment and not config.remakeable:
        raise UsageError(f"{file} is of {config.environment}, which is no id. Name an environment after the algorithm.")
    if signing.needs_trust("" if environment else config.environment, config.environment_options):
        config.check_trust("environment", file, "trust" in given)
    if config.cluster and "cluster" not in given:
        raise UsageError(f"{file} is of a run on a cluster, which decides its numbers. Give --cluster to repeat it.")
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
    """Return the seeds of --seeds. UsageError for options that a single run has."""
    from duetto.runs.argument_checks import parse_seeds

    if "seed" in given:
        raise UsageError("--seed is one seed, --seeds are several. Give one of the two.")
    if "track" in given:
        raise UsageError("--track follows one run in a process. Leave it out, or train the seeds one by one.")
    for name in (name for name in shared.CLUSTER if name in given):
        option = name.replace("_", "-")
        raise UsageError(f"--{option} is of a cluster; --seeds trains in this process. Give one of the two.")
    return parse_seeds(given["seeds"])


def _print_configs(spec: RunSpec, seeds: tuple[int, ...] | None, as_json: bool) -> None:
    """Print the configuration of each run that the call would start."""
    from duetto.runs.parallel_seeds import planned_together

    configs = [spec.config()] if seeds is None else planned_together(spec, seeds)
    if as_json:
        dicts = [config.to_dict() for config in configs]
        print_json(dicts[0] if seeds is None else {"runs": dicts})
    else:
        separator = "" if seeds is None else "---\n"
        print("".join(f"{separator}{config.to_yaml()}" for config in configs), end="")
