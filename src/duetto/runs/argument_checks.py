"""Errors for calls of `train` and its like with arguments that do not exist or cannot be met."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import FOREIGN_NAMES, did_you_mean, nearest
from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.functional.rng import as_int

# Options of the command line, of other calls and of other libraries, and how they are written here.
WRITTEN = {
    **dict.fromkeys(("actors", "mode", "block", "replay_shards"), "cluster=duetto.Cluster({}=...)"),
    "stop_at_return": "callbacks=[duetto.callbacks.StopAtReturn(...)]",
    "time_limit": "callbacks=[duetto.callbacks.TimeLimit(...)]",
    "video_every": "callbacks=[duetto.callbacks.RecordVideo(...)]",
    **dict.fromkeys(("quiet", "verbose"), "progress=False, or True"),
    "tensorboard_log": "runs_dir=...: the folder of every run in it has a folder tensorboard",
    "env_kwargs": "environment_options={{...}}",
    "jobs": "duetto.sweep(..., jobs=...)",
    "trials": "duetto.tune(..., trials=...)",
    "resume": "duetto.Run(path).resume()",
}

_KINDS: dict[str, tuple[Any, str]] = {
    "preset": (str | None, "a preset's name"),
    "name": (str | None, "the name of a folder"),
    "runs_dir": (str | os.PathLike, "a folder"),
    "environment_options": (Mapping | None, "options by their names, such as {'max_episode_steps': 200}"),
    "cluster": (Cluster | None, "a cluster, such as duetto.Cluster(actors=4)"),
}


def check_kinds(**given: Any) -> None:
    """Raise UsageError if an argument, given by its name, is of the wrong kind."""
    for name, value in given.items():
        kind, wanted = _KINDS[name]
        of_names = not isinstance(value, Mapping) or all(isinstance(key, str) for key in value)
        if not isinstance(value, kind) or not of_names:
            raise UsageError(f"{name} is {value!r}; it must be {wanted}.")


def whole(name: str, value: Any, least: int = 1, about: str = "") -> int:
    """Return the argument `name` as an int. UsageError, which ends in `about`, unless it is an integer >= `least`."""
    value = as_int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it must be a whole number.")
    if value < least:
        raise UsageError(f"{name} is {value}; it must be at least {least}{about}.")
    return value


def hint(option: str, made: Algorithm, own: Sequence[str], run: Sequence[str], is_object: bool) -> str:
    """Return the sentence, after a blank, on the option that an unknown one may mean.

    `own` are the call's arguments, `run` the run's options. For an algorithm that is an object (`is_object`) it says
    that hyper-parameters are given to its class.
    """
    written = WRITTEN.get(option, "")
    argument = written.partition("=")[0]
    if argument in own or written.startswith("duetto."):
        return f" Write {written.format(option)}."
    having = [name for name, kind in ALGORITHMS.items() if option in kind.options()]
    if having and option not in FOREIGN_NAMES and option not in made.options():
        return f" {made.name()} has no such thing; these have: {', '.join(having)}."
    if not is_object:
        return did_you_mean(option, [*run, *own, *made.options()])
    kind = type(made).__name__
    if option in made.options():
        return f" It is a hyper-parameter: duetto.{kind}({option}=...)."
    if not nearest(option, [*run, *own]) and (near := nearest(option, made.options())):
        return f" {near[0]!r} is a hyper-parameter: duetto.{kind}({near[0]}=...)."
    return did_you_mean(option, [*run, *own])
