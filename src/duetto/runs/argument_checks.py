"""Errors for calls of `train` and its like with arguments of a wrong kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.functional.rng import as_int

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


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return the argument `name` as an int. UsageError unless it is an integer >= `least`."""
    value = as_int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it must be a whole number.")
    if value < least:
        raise UsageError(f"{name} is {value}; it must be at least {least}.")
    return value
