"""The experiments of a sweep, from the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duetto.errors import UsageError
from duetto.runs.seeds import parse_seeds
from duetto.runs.spec import RunSpec, label_of, slug
from duetto.storage.user_code import named, names_file

MAX_NAME = 100  # characters of a sweep's default folder
_OPTIONS = ("preset", "environment_options", "track")  # in addition to those of runs and algorithms


@dataclass(frozen=True)
class Experiment:
    """Runs that differ in their seeds only. The spec's name is that of their folders, without the seed."""

    spec: RunSpec
    seeds: tuple[int, ...]
    track: tuple[str, ...] = ()


def experiments(algorithms: Any, environments: Any, seeds: Any, options: Mapping[str, Any]) -> list[Experiment]:
    """Return an experiment for each algorithm in each environment.

    Args:
        algorithms: One, several, or a mapping from names to algorithms. An algorithm may also be a mapping with the
            keys `algorithm` and option names.
        environments: One or several, as `duetto.train` takes them.
        seeds: As `parse_seeds` takes them.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not of an object).

    Raises:
        UsageError: An argument is unknown or missing.
    """
    made = [
        _experiment(name, algorithm, environment, parse_seeds(seeds), options)
        for name, algorithm in _by_name(algorithms)
        for environment in _as_list(environments)
    ]
    if not made:
        raise UsageError("sweep needs at least one algorithm and one environment, such as td3 and Pendulum-v1.")
    return made


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
    name: str | None, algorithm: Any, environment: Any, seeds: tuple[int, ...], common: Mapping[str, Any]
) -> Experiment:
    options = dict(common)
    if isinstance(algorithm, Mapping):
        options |= algorithm
        algorithm = options.pop("algorithm", name)
    if "seed" in options:
        raise UsageError("sweep has seeds, and no option 'seed'. Give seeds: 0-4, or seeds: 0,3,9.")
    track = options.pop("track", None) or ()
    track = (track,) if isinstance(track, str) else tuple(track) if isinstance(track, list) else track
    preset, environment_options = options.pop("preset", None), options.pop("environment_options", None)
    in_file = isinstance(algorithm, str) and names_file(algorithm)
    kind, origin = named(algorithm) if in_file else (algorithm, None)
    place = label_of(environment) if isinstance(environment, str) else environment
    spec = RunSpec.of(
        kind, place, preset, environment_options, options, caller="sweep", arguments=_OPTIONS, origin=origin
    )
    return Experiment(replace(spec, name=experiment_name(name or spec.algorithm.name(), spec.label)), seeds, track)


def experiment_name(name: str, environment: str) -> str:
    """Return the name of an experiment's runs, without the seed."""
    return f"{slug(name)}-{slug(environment)}"


def default_name(chosen: Sequence[Experiment]) -> str:
    """Return the default name of a sweep's folder: algorithms and environments, at most 100 characters."""
    algorithms = "+".join(dict.fromkeys(slug(experiment.spec.algorithm.name()) for experiment in chosen))
    environments = "+".join(dict.fromkeys(slug(experiment.spec.label) for experiment in chosen))
    return f"{algorithms}-{environments}"[:MAX_NAME].rstrip("-+.")
