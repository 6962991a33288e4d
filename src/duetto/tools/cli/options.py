"""Options that several commands have, and the functions that parse their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import yaml

from duetto.cluster.config import Cluster, Mode
from duetto.errors import UsageError
from duetto.storage import safe_yaml
from duetto.tools.cli.parser import Arg, Flag, Texts

EnvironmentId = Annotated[
    str, Arg("An id, module:ID, or a class or function: FILE.py:NAME.", "ENVIRONMENT", is_positional=True)
]
EnvironmentOptions = Annotated[Texts, Arg("Options of the environment, such as sticky_actions=0.25.", "KEY=VALUE ...")]
RunFolder = Annotated[str, Arg("The run's folder.", "RUN", is_positional=True)]
Runs = Annotated[
    Texts,
    Arg("Folders of runs: runs/td3-*", "RUN ...", is_positional=True),
]
Checkpoint = Annotated[str, Arg("last, best, or a step.", "last|best|STEP")]
Metric = Annotated[str, Arg("A column of evaluations.csv or a number of metrics.jsonl.", "NAME")]
Json = Annotated[Flag, Arg("Print a JSON object on stdout instead of text.")]
Quiet = Annotated[Flag, Arg("Print only warnings and errors.")]
Trust = Annotated[Flag, Arg("Allow code that another person's run folder names.")]
Seeds = Annotated[str, Arg("Train several seeds, each as its own run: 5, 0-4 or 0,3,9.", "SEEDS")]
PresetName = Annotated[str | None, Arg("Named hyperparameters (duetto list presets), or FILE.yaml.", "PRESET")]

# ---------------------------------------------------------------------------------------------------- callbacks
StopAtReturn = Annotated[float | None, Arg("Stop when an evaluation's mean return is at least this.", "RETURN")]
TimeLimit = Annotated[float | None, Arg("Stop after this many seconds of work, summed over resumes.", "SECONDS")]
VideoEvery = Annotated[int | None, Arg("Record an episode every N steps.", "STEPS")]
Track = Annotated[Texts | None, Arg("Send metrics to wandb, mlflow or trackio.", "TRACKER ...")]

# ---------------------------------------------------------------------------------------------------- cluster
HERE = "here"
_ADDRESS = re.compile(r"auto|here|(ray://)?[\w.-]+:\d+")

Address = Annotated[
    str | None, Arg("Act on a Ray cluster, at this address or on this machine.", "[ADDRESS]", if_empty=HERE)
]
Actors = Annotated[int | None, Arg("Number of actors (2). In mode sync, results depend on it.")]
AnyMode = Annotated[
    Mode | None,
    Arg("sync (default): reproducible, with parameters one block old; async: no waiting."),
]
Blocks = Annotated[int | None, Arg("Vector steps per actor block (16; PPO: rollout_steps). Results depend on it.")]
ReplayShards = Annotated[int | None, Arg("Processes that store the replay buffer (0: the run's process).")]
CLUSTER = {  # the options of a cluster, and those that need --cluster
    "cluster": Address,
    "actors": Actors,
    "mode": AnyMode,
    "block": Blocks,
    "replay_shards": ReplayShards,
}


def parse_options(texts: Texts) -> dict[str, Any]:
    """Parse KEY=VALUE texts to a dict, with values as YAML 1.2 reads them. UsageError for anything else."""
    options: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        try:
            if not key or not separator or key in options:
                raise ValueError
            options[key] = safe_yaml.parse(value)
        except (yaml.YAMLError, ValueError) as error:
            raise UsageError(
                f"--environment-options cannot read {text!r}. Give KEY=VALUE, each key once: stack=4 sizes=[1, 2]."
            ) from error
    return options


def callbacks(given: Mapping[str, Any]) -> list[Any]:
    """Make the callbacks that options name."""
    from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit

    kinds = {"video_every": RecordVideo, "stop_at_return": StopAtReturn, "time_limit": TimeLimit}
    values = {name: given[name] for name in kinds if given.get(name) is not None}
    callbacks: list[Any] = [_callback(name, kinds[name], value) for name, value in values.items()]
    if names := given.get("track"):
        from duetto import trackers

        callbacks += trackers.callbacks(names)
    return callbacks


def _callback(option: str, kind: type[Any], value: float) -> Any:
    """Make the callback; its errors name the command's option instead of the argument."""
    try:
        return kind(value)
    except UsageError as error:
        words = str(error).partition(" ")[2]  # after the argument's name
        raise UsageError(f"--{option.replace('_', '-')} {words}") from error


def cluster(options: Mapping[str, Any]) -> Cluster | None:
    """Return the cluster that the options in CLUSTER describe; None without an address.

    Raises:
        UsageError: The address is none, or other options are given without it.
    """
    fields = {name: value for name, value in options.items() if name in CLUSTER and value is not None}
    address = fields.pop("cluster", None)
    if address is None:
        if fields:
            option = f"--{next(iter(fields)).replace('_', '-')}"
            raise UsageError(f"{option} is of a cluster. Give --cluster too, or leave it out.")
        return None
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--cluster is {address!r}; it must be HOST:PORT, ray://HOST:PORT or auto, or have no value.")
    return Cluster(None if address == HERE else address, **fields)
