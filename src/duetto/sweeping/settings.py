"""Making the settings of a sweep from names and options, as Python and YAML files give them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.runs.api import made_of
from duetto.runs.asked import hint
from duetto.runs.planning import label_of, slug
from duetto.storage import yaml_files
from duetto.storage.config import RunOptions
from duetto.storage.origin import Origin, is_file, named
from duetto.sweeping.plan import Setting, parsed_seeds

_KEYS = ("algorithms", "environments", "seeds")
_OPTIONS = ("preset", "environment_options", "track")  # beside those of runs and algorithms
_EXAMPLE = "algorithms: [td3, sac]\nenvironments: [Pendulum-v1]\nseeds: 0-2\nsteps: 20000"


def settings(
    algorithms: Any, environments: Any, seeds: Any, options: Mapping[str, Any], where: str = "sweep"
) -> list[Setting]:
    """Make a setting of each algorithm in each environment.

    Args:
        algorithms: One, several, or a mapping from its runs' name to an algorithm; in the place of an algorithm, a
            mapping of `algorithm` and options of its own.
        environments: One or several, as `duetto.train` takes them.
        seeds: See `parsed_seeds`.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not of an object).
        where: The source of the settings, for errors.

    Raises:
        UsageError: Something is unknown, or missing.
    """
    found = [
        _setting(name, given, environment, parsed_seeds(seeds), options, where)
        for name, given in _by_name(algorithms)
        for environment in _several(environments)
    ]
    if not found:
        raise UsageError(f"{where} needs an algorithm and an environment at least, such as:\n{_EXAMPLE}")
    return found


def from_file(path: str | Path) -> list[Setting]:
    """Read the settings that a YAML file describes. UsageError if it describes none."""
    try:
        values = yaml_files.parse(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The sweep {path} cannot be read ({error}).") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UsageError(f"The sweep {path} names no runs. Write, for example:\n{_EXAMPLE}")
    for key in _KEYS[:2]:
        if not values.get(key):
            raise UsageError(f"The sweep {path} has no {key}. Write, for example:\n{_EXAMPLE}")
    if strange := [one for one in _several(values["environments"]) if not isinstance(one, str)]:
        raise UsageError(f"The sweep {path} has the environment {strange[0]!r}; it must be an id.")
    options = {name: yaml_files.numbers(value) for name, value in values.items() if name not in _KEYS}
    return settings(
        yaml_files.numbers(values["algorithms"]), values["environments"], values.get("seeds", 3), options, str(path)
    )


def _by_name(algorithms: Any) -> list[tuple[str | None, Any]]:
    if isinstance(algorithms, Mapping):
        if strange := [name for name in algorithms if not isinstance(name, str)]:
            raise UsageError(
                f"A setting is called {strange[0]!r}, which is no text. Put its name between quotes: YAML takes "
                "off, no and on for false and true."
            )
        return [(name, name if given is None else given) for name, given in algorithms.items()]
    return [(None, one) for one in _several(algorithms)]


def _several(given: Any) -> Sequence[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _setting(
    name: str | None, given: Any, environment: Any, seeds: tuple[int, ...], common: Mapping[str, Any], where: str
) -> Setting:
    options = dict(common)
    if isinstance(given, Mapping):
        own = dict(given)
        given = own.pop("algorithm", name)
        options |= own
    if "seed" in options:
        raise UsageError(f"{where} has seeds, and no option 'seed'. Say which: seeds 0-4, or 0,3,9.")
    track = options.pop("track", None) or ()
    preset, extra = options.pop("preset", None), options.pop("environment_options", None) or {}
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
        raise UsageError(f"{where} has the environment_options {extra!r}; they must be options by their names.")
    if not isinstance(track, str) and not (
        isinstance(track, list | tuple) and all(isinstance(one, str) for one in track)
    ):
        raise UsageError(f"{where} has track {track!r}; it must be a service, such as wandb, or a list of them.")
    kind, origin = _kind(given, where)
    made, preset_name, values, rest = made_of(kind, environment, preset, options, origin)
    known = [entry.name for entry in dataclasses.fields(RunOptions)]
    for option in rest:
        if option not in known:
            meant = hint(option, made, _OPTIONS, known, is_object=isinstance(kind, Algorithm))
            raise UsageError(f"{where}: {made.name()} has no option {option!r}.{meant}")
    label = label_of(environment)
    return Setting(
        name=f"{slug(name or made.name())}-{slug(label)}",
        algorithm=made,
        environment=label if isinstance(environment, str) else environment,
        run=RunOptions(**values.run | rest),
        seeds=seeds,
        preset=preset_name,
        environment_options=values.environment | dict(extra),
        origin=origin,
        track=(track,) if isinstance(track, str) else tuple(track),
    )


def _kind(given: Any, where: str) -> tuple[Algorithm | type[Algorithm] | str, Origin | None]:
    if isinstance(given, str) and is_file(given):
        return named(given)
    if isinstance(given, str | Algorithm) or (isinstance(given, type) and issubclass(given, Algorithm)):
        return given, None
    raise UsageError(f"{where} has the algorithm {given!r}; it must be a name, such as td3, or FILE.py:CLASS.")
