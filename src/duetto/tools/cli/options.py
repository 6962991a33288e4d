"""Options that several commands have, and the functions that parse their values."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

import yaml
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from duetto.algorithms import Algorithm
from duetto.cluster.config import Cluster, Mode
from duetto.errors import UsageError
from duetto.storage import safe_yaml
from duetto.storage.config import RunOptions

_EXAMPLE = "--environment-options sticky_actions=0."
Flag = FlagCreatePairsOff[bool]  # --name, without --no-name

EnvironmentId = Annotated[
    Positional[str], arg(metavar="ENVIRONMENT", help="An id, module:ID, or FILE.py:CLASS for your own.")
]
EnvironmentOptions = Annotated[
    tuple[str, ...],
    arg(help=f"Options of the environment itself, on top of the preset's; {_EXAMPLE}", metavar="KEY=VALUE ..."),
]
PlainEnvironmentOptions = Annotated[
    tuple[str, ...], arg(help=f"Options of the environment itself; {_EXAMPLE}", metavar="KEY=VALUE ...")
]
RunFolder = Annotated[Positional[str], arg(help="The run's folder.")]
Runs = Annotated[
    tuple[str, ...],
    arg(
        help="Folders of runs: runs/td3-*; and tables of results, ours or others': theirs.csv",
        metavar="RUN ...",
        help_behavior_hint="(required)",
    ),
]
Checkpoint = Annotated[str, arg(help="last, best, or a step.", metavar="last|best|STEP")]
Metric = Annotated[str, arg(help="A column of evaluations.csv or a number of metrics.jsonl.", metavar="NAME")]
Json = Annotated[Flag, arg(help="Print one JSON object, and nothing else on stdout.")]
Quiet = Annotated[Flag, arg(help="Print only warnings and errors.")]
Trust = Annotated[
    bool, arg(help="Run code that the run's folder names (packages, files), though you did not start the run here.")
]
Seeds = Annotated[
    str | None,
    arg(
        help="Train several seeds side by side, a run each: how many, or which: 0-4, or 0,3,9.",
        metavar="SEEDS",
    ),
]

# ---------------------------------------------------------------------------------------------------- callbacks
StopAtReturn = Annotated[float | None, arg(help="Stop when an evaluation's mean return is at least this.")]
TimeLimit = Annotated[
    float | None,
    arg(
        help="Stop after so many seconds of work, earlier processes included; the checkpoint, and after it an "
        "evaluation of the last policy, come on top.",
        metavar="SECONDS",
    ),
]
VideoEvery = Annotated[int | None, arg(help="Record an episode every so many steps.", metavar="STEPS")]
Track = Annotated[  # None: the option is not on the command line
    tuple[str, ...] | None, arg(help="Send what is logged to wandb, mlflow or trackio.", metavar="TRACKER ...")
]

# ---------------------------------------------------------------------------------------------------- cluster
HERE = "here"
_ADDRESS = re.compile(r"auto|here|(ray://)?[\w.-]+:\d+")

Address = Annotated[
    str | None,
    arg(metavar="[ADDRESS]", help="Act on a Ray cluster: at this address, or one on this machine."),
]
Actors = Annotated[
    int | None, arg(help="Processes of the cluster that act, by default 2. In the mode sync the numbers depend on it.")
]
AnyMode = Annotated[
    Mode | None,
    arg(help="sync: repeatable, the default; async: nobody waits. Actors act with parameters that are a block old."),
]
Blocks = Annotated[
    int | None,
    arg(help="Vector steps an actor makes at a time; by default a rollout's, or 16. The numbers depend on it."),
]
Ahead = Annotated[
    int | None,
    arg(help="In the mode async: steps made before they are learned from; by default 2 blocks an actor."),
]
ReplayShards = Annotated[
    int | None, arg(help="Processes that the replay memory is spread over; by default 0: it is in the run's own.")
]
CLUSTER = ("actors", "mode", "block", "ahead", "replay_shards")  # the fields that need --cluster


def learning_fields(algorithm: type[Algorithm], hyperparameters: Algorithm, run: RunOptions) -> list[Any]:
    """Return the fields for `dataclasses.make_dataclass` that train, sweep and tune share, with their defaults."""
    return [
        ("run", OmitArgPrefixes[RunOptions], dataclasses.field(default=run)),
        (
            "hyperparameters",
            OmitArgPrefixes[Annotated[algorithm, arg(name="")]],
            dataclasses.field(default=hyperparameters),
        ),
        ("environment_options", EnvironmentOptions, ()),
        ("quiet", Quiet, False),
        ("json", Json, False),
    ]


def parse_options(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse KEY=VALUE texts to a dict, with values as YAML 1.2 reads them. UsageError for anything else."""
    options: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--environment-options takes KEY=VALUE, not {text!r}: --environment-options stack=4.")
        if not key or key in options:
            raise UsageError(
                f"--environment-options has {f'two values for {key}' if key else repr(text)}. Give one each."
            )
        try:
            options[key] = safe_yaml.parse(value)
        except (yaml.YAMLError, ValueError) as error:
            raise UsageError(
                f"--environment-options cannot read the value of {text!r}: write lists as [1, 2]."
            ) from error
    return options


def callbacks(
    stop_at_return: float | None, time_limit: float | None, video_every: int | None, track: Track
) -> list[Any]:
    """Make the callbacks that the options name; import only what they need."""
    callbacks: list[Any] = []
    if (stop_at_return, time_limit, video_every) != (None, None, None):
        from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit

        for option, kind, value in (
            ("video-every", RecordVideo, video_every),
            ("stop-at-return", StopAtReturn, stop_at_return),
            ("time-limit", TimeLimit, time_limit),
        ):
            callbacks += [] if value is None else [_callback(option, kind, value)]
    if names := tracker_names(track):
        from duetto import trackers

        callbacks += trackers.callbacks(names)
    return callbacks


def tracker_names(track: Track) -> tuple[str, ...]:
    """Return the names of the trackers in --track. Raises UsageError if it names none."""
    if track == ():
        from duetto.trackers import TRACKERS

        raise UsageError(f"--track names no tracker. There are: {', '.join(TRACKERS)}.")
    return track or ()


def _callback(option: str, kind: type[Any], value: float) -> Any:
    """Make the callback; its errors name the command's option instead of the argument."""
    try:
        return kind(value)
    except UsageError as error:
        (field, *_) = dataclasses.fields(kind)
        raise UsageError(re.sub(rf"^{field.name} is ", f"--{option} is ", str(error))) from error


def with_address(arguments: list[str]) -> list[str]:
    """Add the address after a `--cluster` without one: tyro has no options with optional values."""
    completed = []
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        completed.append(argument)
        if argument == "--cluster" and not _ADDRESS.fullmatch(following):
            completed.append(HERE)
    return completed


def cluster(address: str | None, **options: Any) -> Cluster | None:
    """Return the cluster at an address; None if `address` is None.

    `options` are its other fields, None if they are not on the command line. UsageError if they are, without a cluster.
    """
    fields = {name: value for name, value in options.items() if value is not None}
    if address is None:
        if fields:
            raise UsageError(
                f"--{next(iter(fields)).replace('_', '-')} is of a cluster. Give --cluster too, or leave it out."
            )
        return None
    return Cluster(None if address == HERE else address, **fields)
