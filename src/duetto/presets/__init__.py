"""Tuned hyper-parameters: one YAML file for each algorithm. `td3.yaml` explains the keys."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
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
    environments: tuple[str, ...] = ()  # ids, or patterns of ids, whose default it is


@cache
def presets(algorithm: str) -> dict[str, Preset]:
    """Return all presets of an algorithm, by name."""
    file = files("duetto.presets") / f"{algorithm}.yaml"
    values = safe_yaml.parse(file.read_text("utf-8")) if file.is_file() else {}
    return {name: Preset(**value) for name, value in values.items()}


def presets_of_file(file: Path) -> dict[str, Preset]:
    """Return the presets of a custom algorithm, from `my_algorithm.yaml` next to `my_algorithm.py`, if that exists.

    Raises:
        UsageError: The file cannot be read, or has no presets.
    """
    path = file.with_suffix(".yaml")
    return _read(path) if path.is_file() else {}


def is_file(name: str) -> bool:
    """Return whether a preset's name is FILE.yaml or FILE.yaml:NAME."""
    return any(Path(path).suffix in (".yaml", ".yml") for path in (name, name.rpartition(":")[0]))


def from_file(name: str, environment: str = "") -> Preset:
    """Return the preset of FILE.yaml:NAME; of FILE.yaml the environment's, or the only one. `duetto tune` writes them.

    Raises:
        UsageError: The file cannot be read, has no such preset or several, or sets an option that no run has.
    """
    path, wanted = Path(name), ""
    if path.suffix not in (".yaml", ".yml"):
        file, _, wanted = name.rpartition(":")
        path = Path(file)
    known = _read(path)
    wanted = wanted or next((key for key, preset in known.items() if _is_for(environment, key, preset)), "")
    if not wanted and len(known) == 1:
        (wanted,) = known
    if wanted not in known:
        raise UsageError(f"{path} has the presets {', '.join(known) or '(none)'}. Name one of them: {path}:NAME.")
    check_run(known[wanted], path)
    return known[wanted]


def check_run(preset: Preset, where: object) -> None:
    """Raise UsageError if a preset sets an option that no run has."""
    from duetto.storage.config import RunOptions

    known = [entry.name for entry in fields(RunOptions)]
    for option in preset.run:
        if option not in known:
            raise UsageError(f"{where}: a run has no option {option!r}.{did_you_mean(option, known)}")


def _read(path: Path) -> dict[str, Preset]:
    try:
        values = safe_yaml.parse(path.read_text("utf-8")) or {}
        return {name: Preset(**value) for name, value in values.items()}
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        keys = ", ".join(entry.name for entry in fields(Preset))
        raise UsageError(
            f"The presets in {path} cannot be read ({error}). Each has a name and any of {keys}."
        ) from error


def choose(
    algorithm: str, environment: str, name: str | None, known: dict[str, Preset] | None = None
) -> tuple[str, Preset]:
    """Return the preset of that name; without a name, the environment's or its family's, or else "default".

    `known` are the presets of a custom algorithm. A name may be FILE.yaml or FILE.yaml:NAME; see `from_file`.
    """
    known = presets(algorithm) if known is None else known
    if name is None:
        name = next((key for key, preset in known.items() if _is_for(environment, key, preset)), "default")
    if name == "default":
        return name, Preset()
    if is_file(name):
        return name, from_file(name, environment)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"{algorithm} has no preset {name!r}. {hint}It has: default, {', '.join(known)}.")
    return name, known[name]


def _is_for(environment: str, name: str, preset: Preset) -> bool:
    return environment == name or any(fnmatchcase(environment, pattern) for pattern in preset.environments)
