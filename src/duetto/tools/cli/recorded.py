"""`duetto train --config`: a new run with the options of another run's `config.yaml`, which may be a stranger's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console

from duetto.errors import CheckpointError, UsageError
from duetto.runs.finetune import WarmStart
from duetto.runs.spec import RunSpec
from duetto.storage import repeat_command, signing, user_code
from duetto.storage.config import Config
from duetto.tools.cli.learning import LearningCommand
from duetto.tools.cli.options import CLUSTER, cluster, parse_options
from duetto.training.progress_lines import say


def recorded_spec(command: LearningCommand, given: dict[str, Any]) -> RunSpec:
    """Return the recorded run, with the options on the command line on top.

    Raises:
        UsageError: The file is no run's, or names what a stranger chose.
    """
    file = given["config"]
    if "preset" in given:
        raise UsageError("--config says every option already: leave --preset out.")
    config = _read(file, command)
    for sentence in repeat_command.of_its_history(config.to_dict()):
        say(Console(stderr=True), f"--config {file}: {sentence}", "yellow")
    options = command.learning_options(given)
    mine = {name: value for name, value in options.items() if name in command.algorithm.options()}
    run = {name: value for name, value in options.items() if name not in mine}
    if run.get("backend", config.run.backend) != config.run.backend:
        run = {"threads": 0} | run  # they were chosen for the other framework
    environment = user_code.absolute(given.get("environment", ""))
    _check_environment(config, environment, file)
    return RunSpec(
        algorithm=config.algorithm.with_options(**mine),
        environment=environment or config.environment,
        options=dataclasses.replace(config.run, **run),
        preset=config.preset,
        environment_options=config.environment_options | parse_options(given.get("environment_options", ())),
        origin=command.origin,
        warm_start=_warm_start(config, given, file),
        cluster=cluster(_with_cluster_of(config.cluster, given, file)),
        **{name: given[name] for name in ("runs_dir", "name") if name in given},
    )


def _read(file: str, command: LearningCommand) -> Config:
    path = Path(file) / "config.yaml" if Path(file).is_dir() else Path(file)
    if not path.is_file():
        raise UsageError(f"--config is {file!r}; it must be the config.yaml of a run.")
    try:
        return Config.load(path, algorithm=command.algorithm)
    except CheckpointError as error:
        raise UsageError(f"--config {file} is no config.yaml of a run: {error}") from error


def _with_cluster_of(recorded: dict[str, Any], given: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the options with those of the recorded run's cluster. UsageError if --cluster is not given."""
    if not recorded:
        return given
    if "cluster" not in given:
        raise UsageError(f"{file} is of a run on a cluster, which decides its numbers. Give --cluster to repeat it.")
    if given.get("mode", recorded.get("mode")) != recorded.get("mode"):
        return given
    return {name: value for name, value in recorded.items() if name in CLUSTER} | given


def _check_environment(config: Config, environment: str, file: str) -> None:
    """Raise UsageError if the file alone names an environment that a stranger chose, or that cannot be made again."""
    recorded = "" if environment or not config.remakeable else config.environment
    named = signing.needs_trust(recorded, config.environment_options)
    if named and not signing.is_ours(config.references, config.signature):
        is_file, options = user_code.is_file(config.environment), config.environment_options
        kind, act = ("file", "runs it") if is_file else ("package", "imports what it names")
        raise UsageError(
            f"{file} is of {config.environment!r} with {options!r}, and to make that Python {act}. "
            f"It is of no run that you started on this machine. If you know the {kind}, name it yourself: duetto train "
            "ALGORITHM ENVIRONMENT [--environment-options KEY=VALUE]."
        )
    if not environment and not config.remakeable:
        raise UsageError(f"{file} is of {config.environment}, which is no id. Name an environment after the algorithm.")


def _warm_start(config: Config, given: dict[str, Any], file: str) -> WarmStart | None:
    """Return the run to start from: the call's, or else the recorded one at its step or at the call's checkpoint.

    Raises:
        UsageError: Only the file names that run, and the file is a stranger's.
    """
    recorded = None if config.began_from is None else WarmStart.from_dict(config.began_from)
    if recorded and "from_run" not in given and not signing.is_ours(config.references, config.signature):
        raise UsageError(
            f"{file} is of a run that started with the networks of {recorded.run}, and it is of no run that you "
            f"started on this machine. Name that other run yourself: --from RUN --from-checkpoint {recorded.step}."
        )
    start = WarmStart.asked_for(
        given.get("from_run", recorded and recorded.run),
        given.get("from_checkpoint", recorded.checkpoint if recorded else "last"),
    )
    if recorded is None or start is None or "from_run" in given or start.checkpoint != recorded.checkpoint:
        return start
    return dataclasses.replace(start, step=recorded.step)
