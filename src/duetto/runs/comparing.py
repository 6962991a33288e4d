"""Whether the run that lies in a folder is the one that is to go on there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duetto.display import sources
from duetto.errors import CheckpointError, UsageError
from duetto.storage.config import Config
from duetto.storage.differences import differences, flat
from duetto.storage.migration import migrated
from duetto.storage.yaml_files import read_yaml


class HinderedError(UsageError):
    """What a run needs is not as it was: its folder has another run, or a file that it is made of was edited."""


def recorded(config: Config) -> dict[str, Any]:
    """The flat record of what a run is made from, for `check_alike`."""
    return _flat(config.to_dict())


def check_alike(folder: Path, record: dict[str, Any]) -> None:
    """Raise HinderedError if the run in a folder was begun with other options than those of the record.

    Raises CheckpointError if its config cannot be read.
    """
    path = folder / "config.yaml"
    try:
        before = _flat(migrated(read_yaml(path)))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    if sources.is_older(before["algorithm.from"], record["algorithm.from"]):
        before["algorithm.from"] = record["algorithm.from"]
    # An option that one version has, and the other not, is no change; nor is how many threads there are here.
    both = (before.keys() & record.keys()) - {"run.threads"}
    if changed := differences(*({key: values[key] for key in values if key in both} for values in (before, record))):
        raise HinderedError(
            f"{folder} was begun otherwise: {changed}. Give the same options to go on, and put back what "
            "was edited; or choose another --output."
        )


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """The record of a `config.yaml`, with the user's own files: runs to be compared need the same code."""
    algorithm, environment = values["algorithm"], values["environment"]
    algorithm = algorithm | {"from": str(sources.of_algorithm(algorithm))}
    return (
        flat({"algorithm": algorithm, "environment": environment["id"], "run": values["run"]})
        | {"environment_options": environment["options"], "from": str(sources.of_networks(values))}
        | ({"environment.sha256": environment["sha256"]} if environment.get("sha256") else {})
        | flat({"networks": values.get("networks") or {}})
    )
