"""The experiments of a sweep, from the arguments of a call; their runs, and how far each is, from its folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from duetto import trackers
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError
from duetto.runs.argument_checks import parse_seeds
from duetto.runs.pool import Job, pack
from duetto.runs.spec import RunSpec, check_name, label_of, slug
from duetto.storage.checkpoint import folders
from duetto.storage.config import Config
from duetto.storage.logs import Csv, JsonLines
from duetto.storage.reproducibility import check_same_run
from duetto.storage.run_folder import foreign
from duetto.storage.user_code import is_file, named
from duetto.tools.plot.curves import number

MAX_NAME = 100  # characters of a sweep's default folder
_OPTIONS = ("preset", "environment_options", "track")  # in addition to those of runs and algorithms
State = Literal["waiting", "working", "stopping", "stopped", "complete", "failed"]
_DAMAGED = (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, DuettoError)


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
    return [(str(name), name if algorithm is None else algorithm) for name, algorithm in algorithms.items()]


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
    in_file = isinstance(algorithm, str) and is_file(algorithm)
    kind, origin = named(algorithm) if in_file else (algorithm, None)
    place = label_of(environment) if isinstance(environment, str) else environment
    spec = RunSpec.of(
        kind, place, preset, environment_options, options, caller="sweep", arguments=_OPTIONS, origin=origin
    )
    name = f"{slug(name or spec.algorithm.name())}-{slug(spec.label)}"
    return Experiment(replace(spec, name=name), seeds, track)


def default_name(chosen: Sequence[Experiment]) -> str:
    """Return the default name of a sweep's folder: algorithms and environments, at most 100 characters."""
    algorithms = "+".join(dict.fromkeys(slug(experiment.spec.algorithm.name()) for experiment in chosen))
    environments = "+".join(dict.fromkeys(slug(experiment.spec.label) for experiment in chosen))
    return f"{algorithms}-{environments}"[:MAX_NAME].rstrip("-+.")


@dataclass(eq=False)
class PlannedRun:
    """One run of a sweep, and its progress.

    Attributes:
        job: The run, for the process that trains it.
        state: How far it is.
        step: The last step known.
        mean_return: Of the last evaluation.
        reason, log: Why it failed, and the file with its traceback.
        started: When a process got it.
        first_step: The step at that time.
        retry_at: When to retry a run that another process holds.
    """

    job: Job
    state: State = "waiting"
    step: int = 0
    mean_return: float | None = None
    reason: str = ""
    started: float = 0.0
    first_step: int = 0
    retry_at: float = 0.0
    log: Path | None = None

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.job.name

    def label(self, folder: Path) -> str:
        """Return the run's name among all that are in a folder."""
        return str(self.folder.relative_to(folder))

    @property
    def config(self) -> Config:
        """The config of the run."""
        return self.job.config

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.job.folder

    @property
    def steps(self) -> int:
        """The steps to train in all."""
        return self.config.run.steps

    @property
    def has_config(self) -> bool:
        """Whether the run's config exists."""
        return (self.folder / "config.yaml").is_file()

    @property
    def is_at_work(self) -> bool:
        """Whether a process has it."""
        return self.state in ("working", "stopping")

    @property
    def score(self) -> str:
        """The last evaluation's mean return as text."""
        return "" if self.mean_return is None else number(self.mean_return)

    @property
    def complete(self) -> bool:
        """Whether all steps and the final evaluation are done with this run's config.

        A signal may end a run between its last step and its last evaluation.
        """
        evaluated = not self.config.run.evaluate_every or (last_evaluation(self.folder) or (-1,))[0] >= self.steps
        if not evaluated or self.checkpoint_step() < self.steps:
            return False
        try:
            check_same_run(self.folder, self.config)
        except DuettoError:  # the job reports the same error
            return False
        return True

    def checkpoint_step(self) -> int:
        """Return the step of the newest checkpoint; 0 if there is none."""
        return max(folders(self.folder / "checkpoints"), default=0)

    def update(self) -> None:
        """Read `step` and `mean_return` from the run's logs and checkpoints."""
        evaluation_step, self.mean_return = last_evaluation(self.folder) or (0, None)
        logged_step = 0
        with suppress(*_DAMAGED):
            logged_step = int(JsonLines.scan(self.folder / "metrics.jsonl").rows[-1]["step"])
        self.step = max(logged_step, evaluation_step, self.checkpoint_step())

    def seconds_left(self) -> float | None:
        """Return the seconds that the run still needs at its speed so far; None before its first step."""
        trained, spent = self.step - self.first_step, time.monotonic() - self.started
        return max(0, self.steps - self.step) / trained * spent if trained > 0 else None


def runs(experiments: Sequence[Experiment], folder: Path) -> list[PlannedRun]:
    """List all runs, the first seeds first, so that all experiments have a curve early. Nothing is written.

    Raises:
        UsageError: An algorithm does not fit an environment; a name is invalid or that of two runs; or a run of that
            name exists and was started with other options.
    """
    by_place: list[tuple[int, PlannedRun]] = []
    for experiment in experiments:
        if is_instance(experiment.spec.environment):
            raise UsageError("A sweep cannot share one environment object. Give an id, or a function that makes it.")
        trackers.callbacks(experiment.track)  # raises for a tracker that is unknown or not installed
        config = experiment.spec.config()
        for place, seed in enumerate(experiment.seeds):
            seeded = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
            name = f"{experiment.spec.name}-s{seed}"
            check_name(name)
            spec = dataclasses.replace(experiment.spec, options=seeded.run, runs_dir=folder, name=name)
            job = Job(spec, seeded, experiment.track, is_contested=True)
            if not place:
                pack(job)  # raises if it cannot be sent to a process
            by_place.append((place, PlannedRun(job)))
    ordered = [run for _, run in sorted(by_place, key=lambda pair: pair[0])]
    names = [run.name for run in ordered]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two runs would be called {twice}. Give the experiments names, as keys of a mapping.")
    for run in ordered:
        if run.has_config:
            check_same_run(run.folder, run.config)
        elif foreign(run.folder):
            raise UsageError(f"{run.folder} exists and is no run: it has no config.yaml. Choose another --output.")
    return ordered


def last_evaluation(folder: Path) -> tuple[int, float] | None:
    """Return step and mean return of the last row of `evaluations.csv`; None if there is none that can be read."""
    with suppress(*_DAMAGED):
        row = Csv.scan(folder / "evaluations.csv").rows[-1]
        return int(float(row["step"])), float(row["mean_return"])
    return None
