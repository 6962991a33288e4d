"""The experiments of a sweep, from the arguments of a call or from a YAML file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.functional.rng import as_int
from duetto.runs.api import made_of
from duetto.runs.argument_checks import check_kinds, hint
from duetto.runs.run_config import label_of, slug
from duetto.storage import safe_yaml
from duetto.storage.config import RunOptions
from duetto.storage.user_code import Origin, named, names_file

MAX_NAME = 100  # characters of a sweep's default folder
MAX_SEEDS = 100_000  # of one range: more is a typing error
_RANGE = re.compile(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", re.ASCII)
_KEYS = ("algorithms", "environments", "seeds")
_OPTIONS = ("preset", "environment_options", "track")  # in addition to those of runs and algorithms
_EXAMPLE = "algorithms: [td3, sac]\nenvironments: [Pendulum-v1]\nseeds: 0-2\nsteps: 20000"


@dataclass(frozen=True)
class Experiment:
    """An algorithm and an environment with their options, and the seeds to train them with."""

    name: str  # of its runs' folders, without the seed
    algorithm: Algorithm
    environment: Any
    run: RunOptions
    seeds: tuple[int, ...]
    preset: str = "default"
    environment_options: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    track: tuple[str, ...] = ()


def experiments(
    algorithms: Any, environments: Any, seeds: Any, options: Mapping[str, Any], where: str = "sweep"
) -> list[Experiment]:
    """Return an experiment for each algorithm in each environment.

    Args:
        algorithms: One, several, or a mapping from names to algorithms. An algorithm may also be a mapping with the
            keys `algorithm` and option names.
        environments: One or several, as `duetto.train` takes them.
        seeds: See `parsed_seeds`.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not of an object).
        where: The source of the arguments, for errors.

    Raises:
        UsageError: An argument is unknown or missing.
    """
    made = [
        _experiment(name, algorithm, environment, parsed_seeds(seeds), options, where)
        for name, algorithm in _by_name(algorithms)
        for environment in _as_list(environments)
    ]
    if not made:
        raise UsageError(f"{where} needs at least one algorithm and one environment, such as:\n{_EXAMPLE}")
    return made


def from_file(path: str | Path) -> list[Experiment]:
    """Read the experiments of a YAML file. UsageError if it has none."""
    try:
        values = safe_yaml.parse(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The sweep {path} cannot be read ({error}).") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UsageError(f"The sweep {path} names no runs. Write, for example:\n{_EXAMPLE}")
    for key in _KEYS[:2]:
        if not values.get(key):
            raise UsageError(f"The sweep {path} has no {key}. Write, for example:\n{_EXAMPLE}")
    for environment in _as_list(values["environments"]):
        if not isinstance(environment, str):
            raise UsageError(f"The sweep {path} has the environment {environment!r}; it must be an id.")
    options = {name: value for name, value in values.items() if name not in _KEYS}
    return experiments(values["algorithms"], values["environments"], values.get("seeds", 3), options, str(path))


def _by_name(algorithms: Any) -> list[tuple[str | None, Any]]:
    if not isinstance(algorithms, Mapping):
        return [(None, algorithm) for algorithm in _as_list(algorithms)]
    for name in algorithms:
        if not isinstance(name, str):
            raise UsageError(f"An experiment is called {name!r}, which is not text. Put its name in quotes.")
    return [(name, name if algorithm is None else algorithm) for name, algorithm in algorithms.items()]


def _as_list(values: Any) -> Sequence[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def _experiment(
    name: str | None, algorithm: Any, environment: Any, seeds: tuple[int, ...], common: Mapping[str, Any], where: str
) -> Experiment:
    options = dict(common)
    if isinstance(algorithm, Mapping):
        options |= algorithm
        algorithm = options.pop("algorithm", name)
    if "seed" in options:
        raise UsageError(f"{where} has seeds, and no option 'seed'. Give seeds: 0-4, or seeds: 0,3,9.")
    track = options.pop("track", None) or ()
    track = (track,) if isinstance(track, str) else tuple(track) if isinstance(track, list) else track
    preset, environment_options = options.pop("preset", None), options.pop("environment_options", None) or {}
    check_kinds(environment_options=environment_options)
    in_file = isinstance(algorithm, str) and names_file(algorithm)
    kind, origin = named(algorithm) if in_file else (algorithm, None)
    made, preset_name, preset_values, run_options = made_of(kind, environment, preset, options, origin)
    known = [option.name for option in dataclasses.fields(RunOptions)]
    for option in run_options:
        if option not in known:
            meant = hint(option, made, _OPTIONS, known, is_object=isinstance(kind, Algorithm))
            raise UsageError(f"{where}: {made.name()} has no option {option!r}.{meant}")
    label = label_of(environment)
    return Experiment(
        name=f"{slug(name or made.name())}-{slug(label)}",
        algorithm=made,
        environment=label if isinstance(environment, str) else environment,
        run=RunOptions(**preset_values.run | run_options),
        seeds=seeds,
        preset=preset_name,
        environment_options=preset_values.environment | dict(environment_options),
        origin=origin,
        track=track,
    )


def parsed_seeds(seeds: Any) -> tuple[int, ...]:
    """Parse seeds: `5` is five seeds, from 0 on; `3-7`, `0,3,9`, `0-2,10-12` and lists of numbers name them.

    Raises:
        UsageError: It is none of these, or names a seed twice.
    """
    wrong = UsageError(f"seeds is {seeds!r}; it must be how many, 5, or which: 0-4, or 0,3,9, each once.")
    text = str(as_int(seeds)).strip()
    if text.isdecimal() and text.isascii():
        text = f"0-{int(text[:9]) - 1}"
    elif not isinstance(seeds, str):
        if not isinstance(seeds, Iterable):
            raise wrong
        text = ",".join(str(as_int(part)) for part in seeds)
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= last - first < MAX_SEEDS:
            raise wrong
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise wrong
    return tuple(numbers)


def default_name(chosen: Sequence[Experiment]) -> str:
    """Return the default name of a sweep's folder: algorithms and environments, at most 100 characters."""
    algorithms = "+".join(dict.fromkeys(slug(experiment.algorithm.name()) for experiment in chosen))
    environments = "+".join(dict.fromkeys(slug(label_of(experiment.environment)) for experiment in chosen))
    return f"{algorithms}-{environments}"[:MAX_NAME].rstrip("-+.")
