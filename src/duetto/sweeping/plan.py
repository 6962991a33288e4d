"""The runs of a sweep, and how much of them is done already."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duetto import trackers
from duetto.algorithms import Algorithm
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError
from duetto.functional.randomness import plain
from duetto.runs.comparing import check_alike
from duetto.runs.job import Job
from duetto.runs.planning import check_name, planned, slug
from duetto.runs.workers import packed
from duetto.storage import snapshot
from duetto.storage.config import Config, RunOptions
from duetto.storage.origin import Origin
from duetto.sweeping import progress

LONGEST = 100  # characters of a sweep's name
_DIGITS, _MOST = 9, 100_000  # of a seed's, and seeds: more is a slip of the keyboard


@dataclass(frozen=True)
class Setting:
    """An algorithm and an environment with their options, and the seeds to train them with."""

    name: str  # of its runs' folders, but for the seed
    algorithm: Algorithm
    environment: Any
    run: RunOptions
    seeds: tuple[int, ...]
    preset: str = "default"
    environment_options: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    track: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    job: Job
    config: Config

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.job.folder

    @property
    def begun(self) -> bool:
        """Whether the run was begun: its config is there."""
        return (self.folder / "config.yaml").is_file()

    def made(self) -> int:
        """The step of its newest checkpoint; 0 if there is none."""
        return max((step for step, _ in snapshot.listing(self.folder / "checkpoints")), default=0)

    @property
    def complete(self) -> bool:
        """Whether the run made all its steps, and the evaluation after them, which a signal may have broken off.

        One that another process began there with other options is not this run.
        """
        run = self.config.run
        if self.made() < run.steps or (run.evaluate_every and progress.evaluated(self.folder) < run.steps):
            return False
        try:
            check_alike(self.folder, self.job.record)
        except DuettoError:  # which the job says, too
            return False
        return True


def runs(settings: Sequence[Setting], folder: Path) -> list[Planned]:
    """List all runs, the first seeds first, so that all settings have a curve early. Nothing is written.

    Raises:
        UsageError: An algorithm does not fit an environment, a name can be no folder's or is that of two runs, or a run
            of that name is there and was begun with other options.
    """
    found: list[tuple[int, Planned]] = []
    for setting in settings:
        if is_instance(setting.environment):
            raise UsageError(
                "Every run of a sweep needs an environment of its own: hand over an id, or a function that makes them."
            )
        trackers.callbacks(setting.track)  # one that is unknown or not installed shows now
        config = planned(
            setting.algorithm,
            setting.environment,
            setting.run,
            setting.preset,
            setting.environment_options,
            setting.origin,
        )
        for place, seed in enumerate(setting.seeds):
            own = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
            name = f"{setting.name}-s{seed}"
            check_name(name)
            job = Job.of(own, setting.environment, folder, name, contested=True, track=setting.track)
            if not place:
                packed(job)  # what cannot be sent shows now
            found.append((place, Planned(job, own)))
    ordered = [run for _, run in sorted(found, key=lambda pair: pair[0])]
    names = [run.job.name for run in ordered]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two runs would be called {twice}. In a file, give settings that differ names that do.")
    for run in ordered:
        _check(run)
    return ordered


def _check(run: Planned) -> None:
    """Raise UsageError if the run's folder exists and holds something else, or a run with other options."""
    path = run.folder / "config.yaml"
    if not path.exists():
        strange = [child.name for child in run.folder.glob("*") if not child.name.startswith(".")]
        if strange:
            raise UsageError(f"{run.folder} is there and no run: it has no config.yaml. Choose another --output.")
        return
    check_alike(run.folder, run.job.record)


def parsed_seeds(given: Any) -> tuple[int, ...]:
    """Parse seeds: `5` is five seeds, from 0 on; `3-7`, `0,3,9`, `0-2,10-12` and lists of numbers name them.

    Raises:
        UsageError: It is none of these.
    """
    given = plain(given)
    text = given if isinstance(given, str) else ""
    if isinstance(given, int) and not isinstance(given, bool):
        found = list(range(given))
    elif text.strip().isdecimal() and len(text.strip()) <= _DIGITS and int(text) <= _MOST:
        found = list(range(int(text)))
    else:
        found = [seed for part in (text.split(",") if text else _listed(given)) for seed in _part(part, given)]
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise _not_seeds(given)
    return tuple(found)


def _listed(given: Any) -> Iterable[Any]:
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise _not_seeds(given)
    return given


def _part(part: Any, given: Any) -> Iterable[int]:
    part = plain(part)
    if isinstance(part, int) and not isinstance(part, bool):
        return [part]
    first, dash, last = str(part).strip().partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal() and max(len(first), len(last)) <= _DIGITS):
        raise _not_seeds(given)
    found = range(int(first), int(last) + 1)
    if not 0 < len(found) <= _MOST:
        raise _not_seeds(given)
    return found


def _not_seeds(given: Any) -> UsageError:
    return UsageError(f"seeds is {given!r}; it must be how many, 5, or which: 0-4, or 0,3,9, each once.")


def named(algorithms: Iterable[str], environments: Iterable[str]) -> str:
    """The default name of a sweep's folder, of at most 100 characters."""
    parts = ("+".join(dict.fromkeys(slug(name) for name in names)) for names in (algorithms, environments))
    name = "-".join(parts)
    if len(name) <= LONGEST:
        return name.rstrip("-+.")
    whole = f"-{zlib.crc32(name.encode()):08x}"  # so that another one that begins alike has another folder
    return name[: LONGEST - len(whole)].rstrip("-+.") + whole
