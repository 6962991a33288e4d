"""Tuned hyper-parameters as data: one YAML file per algorithm. `td3.yaml` says what the keys mean."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms.nearest import did_you_mean
from duetto.errors import UsageError
from duetto.storage import yaml_files


@dataclass(frozen=True)
class Preset:
    """Options that differ from the defaults."""

    about: str = "The defaults of every field."
    algorithm: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    environments: tuple[str, ...] = ()  # ids, or patterns of ids, that it is taken for without being asked for


@cache
def presets(algorithm: str) -> dict[str, Preset]:
    """All presets of an algorithm, by name."""
    file = files("duetto.presets") / f"{algorithm}.yaml"
    values = yaml_files.parse(file.read_text("utf-8")) if file.is_file() else {}
    return {name: Preset(**value) for name, value in values.items()}


def beside(file: Path) -> dict[str, Preset]:
    """Those of an algorithm of the user's own, in `my_algorithm.yaml` beside `my_algorithm.py`, if that is there.

    Raises:
        UsageError: It cannot be read, or is no such file.
    """
    path = file.with_suffix(".yaml")
    return _read(path) if path.is_file() else {}


def is_file(name: str) -> bool:
    """Whether a preset's name is that of a file of the user's own."""
    return Path(name.rpartition(":")[0] or name).suffix in (".yaml", ".yml") or Path(name).suffix in (".yaml", ".yml")


def from_file(name: str, environment: str = "") -> Preset:
    """That of FILE.yaml, as `duetto tune` writes one: the only one in it, or the environment's; or FILE.yaml:NAME.

    Raises:
        UsageError: The file cannot be read, has no such preset or several, or sets what is no option of a run.
    """
    path, wanted = Path(name), ""
    if path.suffix not in (".yaml", ".yml"):
        file, _, wanted = name.rpartition(":")
        path = Path(file)
    found = _read(path)
    wanted = wanted or next((own for own, preset in found.items() if _is_for(environment, own, preset)), "")
    if not wanted and len(found) == 1:
        (wanted,) = found
    if wanted not in found:
        raise UsageError(f"{path} has the presets {', '.join(found) or '(none)'}. Name one of them: {path}:NAME.")
    check_run(found[wanted], path)
    return found[wanted]


def check_run(preset: Preset, where: object) -> None:
    """Raise UsageError where a preset sets what is no option of a run."""
    from duetto.storage.config import RunOptions

    known = [entry.name for entry in fields(RunOptions)]
    for option in preset.run:
        if option not in known:
            raise UsageError(f"{where}: a run has no option {option!r}.{did_you_mean(option, known)}")


def _read(path: Path) -> dict[str, Preset]:
    try:
        values = yaml_files.parse(path.read_text("utf-8")) or {}
        return {name: Preset(**value) for name, value in values.items()}
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        keys = ", ".join(entry.name for entry in fields(Preset))
        raise UsageError(
            f"The presets in {path} cannot be read ({error}). Each has a name and any of {keys}."
        ) from error


def choose(
    algorithm: str, environment: str, name: str | None, known: dict[str, Preset] | None = None
) -> tuple[str, Preset]:
    """The preset of that name; without a name, the environment's own or its family's, or else "default".

    Of an algorithm that is not Duetto's own, those that are `known`. A name that ends in .yaml is a file's, or
    FILE.yaml:NAME where it has several; see `from_file`.
    """
    known = presets(algorithm) if known is None else known
    if name is None:
        name = next((own for own, preset in known.items() if _is_for(environment, own, preset)), "default")
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
