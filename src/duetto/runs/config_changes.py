"""Changes of a run's config: options that a resume changes, and whether a folder has the run of a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import CheckpointError, UsageError
from duetto.learners.runtime import jax_threads
from duetto.storage.config import Config, RunOptions, networks_source
from duetto.storage.dict_diff import dict_diff, flat, sentence
from duetto.storage.safe_yaml import read_yaml
from duetto.storage.user_code import algorithm_source


def changed(config: Config, options: Mapping[str, Any]) -> Config:
    """A copy with other values of hyper-parameters and of the run's options. UsageError if one is neither."""
    own, run = config.algorithm.options(), [field.name for field in dataclasses.fields(RunOptions)]
    known = [*own, *run]
    if unknown := next((name for name in options if name not in known), None):
        raise UsageError(f"resume has no option {unknown!r}.{did_you_mean(unknown, known)}")
    algorithm = config.algorithm.with_options(**{name: options[name] for name in options if name in own})
    ours = dataclasses.replace(config.run, **{name: options[name] for name in options if name in run})
    elsewhere = (ours.backend, ours.device) != (config.run.backend, config.run.device)
    if elsewhere and "threads" not in options:  # those of the other framework, or of none
        ours = dataclasses.replace(ours, threads=jax_threads() if (ours.backend, ours.device) == ("jax", "cpu") else 0)
    if "auto" in (ours.backend, ours.device):
        raise UsageError("A run continues with the backend and the device that it has: give torch or jax, cpu or cuda.")
    return dataclasses.replace(config, algorithm=algorithm, run=ours)


class HinderedError(UsageError):
    """What a run needs is not as it was: its folder has another run, or a file that it is made of was edited."""


def check_same_run(folder: Path, config: Config) -> None:
    """Raise HinderedError if the run in a folder was started with other options than `config` has.

    Raises CheckpointError if its config cannot be read.
    """
    if changed := changed_since(folder / "config.yaml", config.to_dict(), _flat):
        raise HinderedError(
            f"{folder} was started otherwise: {changed}. Give the same options to continue, and put back what was "
            "edited; or choose another --output."
        )


def changed_since(path: Path, now: dict[str, Any], flat: Callable[[dict[str, Any]], dict[str, str]]) -> str:
    """Return a sentence on what differs between a YAML file and `now`, made `flat`, except in threads; or "".

    Raises CheckpointError if the file cannot be read.
    """
    try:
        before = flat(read_yaml(path))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    return sentence(dict_diff(before, flat(now), ignore=("run.threads",)))


def _flat(values: dict[str, Any]) -> dict[str, str]:
    """Return what a `config.yaml` says of the run and its code, as a flat dict of texts."""
    algorithm = values["algorithm"] | {"from": algorithm_source(values["algorithm"])}
    environment = {key: values["environment"].get(key) for key in ("id", "options", "sha256")}
    parts = {"algorithm": algorithm, "environment": environment, "run": values["run"]}
    return flat(parts | {"from": networks_source(values)})
