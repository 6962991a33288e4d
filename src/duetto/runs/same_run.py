"""Whether the run that lies in a folder is the one that is to go on there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duetto.errors import CheckpointError, UsageError
from duetto.storage.config import Config, networks_source
from duetto.storage.dict_diff import dict_diff, flat, sentence
from duetto.storage.safe_yaml import read_yaml
from duetto.storage.user_code import algorithm_source


class HinderedError(UsageError):
    """What a run needs is not as it was: its folder has another run, or a file that it is made of was edited."""


def recorded(config: Config) -> dict[str, str]:
    """The flat record of what a run is made from, for `check_alike`."""
    return _flat(config.to_dict())


def check_alike(folder: Path, record: dict[str, str]) -> None:
    """Raise HinderedError if the run in a folder was begun with other options than those of the record.

    Raises CheckpointError if its config cannot be read.
    """
    path = folder / "config.yaml"
    try:
        before = _flat(read_yaml(path))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    if changed := dict_diff(before, record, ignore=("run.threads",)):
        raise HinderedError(
            f"{folder} was begun otherwise: {sentence(changed)}. Give the same options to go on, and put back what "
            "was edited; or choose another --output."
        )


def _flat(values: dict[str, Any]) -> dict[str, str]:
    """The record of a `config.yaml`, with the user's own files: runs to be compared need the same code."""
    algorithm = values["algorithm"] | {"from": algorithm_source(values["algorithm"])}
    environment = {key: values["environment"].get(key) for key in ("id", "options", "sha256")}
    parts = {"algorithm": algorithm, "environment": environment, "run": values["run"]}
    return flat(parts | {"from": networks_source(values)})
