"""Tuned hyperparameters: one YAML file for each algorithm. `td3.yaml` explains the keys.

Without `--preset`, a run uses the environment's preset, if any. Presets override the defaults in `algorithms/`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError
from duetto.storage import safe_yaml


@dataclass(frozen=True)
class Preset:
    """Options that differ from the defaults."""

    about: str = "The defaults of every field."
    algorithm: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    environments: tuple[str, ...] = ()  # ids, or patterns of ids, that use this preset by default


@cache
def presets(algorithm: str) -> dict[str, Preset]:
    """Return all presets of a built-in algorithm, by name."""
    file = files("duetto.presets") / f"{algorithm}.yaml"
    return _read(file) if file.is_file() else {}


def presets_of_file(file: Path) -> dict[str, Preset]:
    """Return the presets in `my_algorithm.yaml` next to a custom `my_algorithm.py`; {} without this file.

    Raises:
        UsageError: The file cannot be read, its content is not presets, or it sets an unknown option of runs.
    """
    path = file.with_suffix(".yaml")
    return _read(path) if path.is_file() else {}


def _read(path: Path | Traversable) -> dict[str, Preset]:
    from duetto.storage.config import RunOptions

    options = vars(RunOptions())
    try:
        values = safe_yaml.parse(path.read_text("utf-8")) or {}
        known = {
            name: Preset(**{key: x for key, x in value.items() if x is not None}) for name, value in values.items()
        }
        unknown = [option for preset in known.values() for option in preset.run if option not in options]
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        keys = ", ".join(vars(Preset()))
        raise UsageError(
            f"The presets in {path} cannot be read ({error}). Each has a name and any of {keys}."
        ) from error
    if unknown:
        raise UsageError(f"{path}: a run has no option {unknown[0]!r}.{did_you_mean(unknown[0], options)}")
    return known


def choose(
    algorithm: str, environment: str, name: str | None, known: dict[str, Preset] | None = None
) -> tuple[str, Preset]:
    """Return a preset's name and the preset: `name`, else the environment's preset, else "default".

    If `name` is a FILE.yaml, such as the one that `duetto tune` writes, return the environment's preset in the file, or
    the file's only preset. `known` are the presets of a custom algorithm.

    Raises:
        UsageError: The preset does not exist, or the file cannot be read or sets an unknown option of runs.
    """
    if name and name.endswith((".yaml", ".yml")):
        return name, _of_file(Path(name), environment)
    known = presets(algorithm) if known is None else known
    name = name or _of_environment(environment, known) or "default"
    if name == "default":
        return name, Preset()
    if name not in known:
        raise UsageError(f"{algorithm} has no preset {name!r}.{did_you_mean(name, ['default', *known])}")
    return name, known[name]


def _of_file(path: Path, environment: str) -> Preset:
    known = _read(path)
    name = _of_environment(environment, known) or (next(iter(known)) if len(known) == 1 else "")
    if name not in known:
        raise UsageError(
            f"{path} has no preset for {environment}. It has: {', '.join(known) or 'none'}. Rename one to "
            f"{environment}, or put it alone in a file."
        )
    return known[name]


def _of_environment(environment: str, known: dict[str, Preset]) -> str:
    """Return the name of the environment's default preset; "" if it has none."""
    patterns = {name: (name, *preset.environments) for name, preset in known.items()}
    return next((name for name, some in patterns.items() if any(fnmatchcase(environment, one) for one in some)), "")
