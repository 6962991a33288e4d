"""Options of several commands, and the functions that parse their values."""

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
    str, Arg("ID, MODULE:ID, or FILE.py:NAME of a class or function.", "ENVIRONMENT", is_positional=True)
]
EnvironmentOptions = Annotated[Texts, Arg("Options of the environment, such as sticky_actions=0.25.", "KEY=VALUE ...")]
RunFolder = Annotated[str, Arg("The run's folder.", "RUN", is_positional=True)]
Runs = Annotated[
    Texts,
    Arg("Folders of runs: runs/td3-*", "RUN ...", is_positional=True),
]
Checkpoint = Annotated[str, Arg("The checkpoint: last, best, or a step.", "last|best|STEP")]
Metric = Annotated[str, Arg("A column of evaluations.csv or a key of metrics.jsonl.", "NAME")]
Json = Annotated[Flag, Arg("Print a JSON object on stdout instead of text.")]
Quiet = Annotated[Flag, Arg("Print only warnings and errors.")]
Trust = Annotated[Flag, Arg("Run Python code that another user's folder refers to.")]
Seeds = Annotated[str, Arg("Train several seeds, each as its own run: 0-4 or 0,3,9; 5 means 0-4.", "SEEDS")]
PresetName = Annotated[str | None, Arg("Named hyperparameters (duetto list presets), or FILE.yaml.", "PRESET")]

# ---------------------------------------------------------------------------------------------------- callbacks
StopAtReturn = Annotated[float | None, Arg("Stop when an evaluation's mean return is at least this.", "RETURN")]
TimeLimit = Annotated[float | None, Arg("Stop after this many seconds of work, summed over resumes.", "SECONDS")]
VideoEvery = Annotated[int | None, Arg("Record an episode every STEPS steps.", "STEPS")]
Track = Annotated[Texts | None, Arg("Send metrics to wandb, mlflow or trackio.", "TRACKER ...")]

# ---------------------------------------------------------------------------------------------------- cluster
HERE = "here"
_ADDRESS = re.compile(r"auto|here|(ray://)?[\w.-]+:\d+")

Address = Annotated[
    str | None,
    Arg("Run the environments on a Ray cluster; without ADDRESS, on this machine.", "[ADDRESS]", if_empty=HERE),
]
Actors = Annotated[
    int | None, Arg("Number of processes that step environments; affects results in mode sync. (default: 2)")
]
AnyMode = Annotated[
    Mode | None,
    Arg(
        "sync: reproducible; actors' parameters are one block (--block) old. "
        "async: actors run up to a few blocks ahead of updates. (default: sync)"
    ),
]
Blocks = Annotated[
    int | None,
    Arg("Vector steps per message of an actor; affects results. (default: 16; PPO: rollout_steps)"),
]
ReplayShards = Annotated[
    int | None, Arg("Number of processes that store the replay buffer; 0: the run's own process. (default: 0)")
]
CLUSTER = {  # --cluster, and the options that need it
    "cluster": Address,
    "actors": Actors,
    "mode": AnyMode,
    "block": Blocks,
    "replay_shards": ReplayShards,
}


def parse_options(texts: Texts) -> dict[str, Any]:
    """Parse KEY=VALUE texts, with values in YAML 1.2, to a dict. Raise UsageError for other texts."""
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
    """Make the callbacks for the given options."""
    from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit

    kinds = {"video_every": RecordVideo, "stop_at_return": StopAtReturn, "time_limit": TimeLimit}
    values = {name: given[name] for name in kinds if given.get(name) is not None}
    callbacks: list[Any] = [_callback(name, kinds[name], value) for name, value in values.items()]
    if names := given.get("track"):
        from duetto import trackers

        callbacks += trackers.callbacks(names)
    return callbacks


def _callback(option: str, kind: type[Any], value: float) -> Any:
    """Make a callback. Its errors name the command's option instead of the Python argument."""
    try:
        return kind(value)
    except UsageError as error:
        name, _, words = str(error).partition(" ")
        if name not in kind.__dataclass_fields__:
            raise
        raise UsageError(f"--{option.replace('_', '-')} {words}") from error


def cluster(options: Mapping[str, Any]) -> Cluster | None:
    """Return the cluster that the options in CLUSTER describe; None without an address.

    Raises:
        UsageError: The address is invalid, or other options are given without an address.
    """
    fields = {name: value for name, value in options.items() if name in CLUSTER and value is not None}
    address = fields.pop("cluster", None)
    if address is None:
        if fields:
            option = f"--{next(iter(fields)).replace('_', '-')}"
            raise UsageError(f"{option} needs --cluster. Give both, or leave {option} out.")
        return None
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--cluster is {address!r}; it must be HOST:PORT, ray://HOST:PORT or auto, or have no value.")
    return Cluster(None if address == HERE else address, **fields)
