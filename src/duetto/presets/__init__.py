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

from duetto.errors import UsageError


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
    values = yaml.safe_load(file.read_text("utf-8")) if file.is_file() else {}
    return {name: Preset(**value) for name, value in values.items()}


def beside(file: Path) -> dict[str, Preset]:
    """Those of an algorithm of the user's own, in `my_algorithm.yaml` beside `my_algorithm.py`, if that is there.

    Raises:
        UsageError: It cannot be read, or is no such file.
    """
    path = file.with_suffix(".yaml")
    if not path.is_file():
        return {}
    try:
        values = yaml.safe_load(path.read_text("utf-8")) or {}
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

    Of an algorithm that is not Duetto's own, those that are `known`.
    """
    known = presets(algorithm) if known is None else known
    if name is None:
        name = next((own for own, preset in known.items() if _is_for(environment, own, preset)), "default")
    if name == "default":
        return name, Preset()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"{algorithm} has no preset {name!r}. {hint}It has: default, {', '.join(known)}.")
    return name, known[name]


def _is_for(environment: str, name: str, preset: Preset) -> bool:
    return environment == name or any(fnmatchcase(environment, pattern) for pattern in preset.environments)
