"""A study's results: the best trial as a preset, a table of all, and how the best does in other episodes."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError
from duetto.networks.specs import CustomNetwork
from duetto.runs.planning import run_name
from duetto.runs.run import Run
from duetto.storage import disk
from duetto.storage.config import RunOptions
from duetto.storage.yaml_files import to_yaml
from duetto.tuning import scores
from duetto.tuning.confirming import Confirmed
from duetto.tuning.optuna import Trial
from duetto.tuning.space import applied, as_text
from duetto.tuning.study import Plan

FRESH = 1_000_000  # added to the seeds of evaluations that nothing was chosen by

# Of the machine, or of how a run is looked at: not what makes the best trial the best.
_NOT_IN_PRESETS = (
    "seed",
    "backend",
    "device",
    "threads",
    "vectorization",
    "worker_timeout",
    "checkpoint_every",
    "keep",
)


@dataclass(frozen=True)
class Tuned:
    """A study's results, as far as it has come.

    Attributes:
        folder: The study's folder.
        trials: All that were begun, by number.
        best: The one with the highest score; None if none is complete.
        runs: The folders of the best trial's runs, one a seed.
        preset: The file that the best is written to.
        pictures: The pictures that were drawn.
        fresh: Interquartile mean over the best trial's seeds of the returns in episodes that nothing was chosen by.
        confirmed: The best trial's score with seeds that it was not chosen by; None if that was not asked for.
        importances: The share of each option in what makes trials good; {} if too few are complete.
        stopped: Whether it ended before its last trial; the same call goes on.
        notices: Sentences for the user.
    """

    folder: Path
    trials: tuple[Trial, ...]
    best: Trial | None = None
    runs: tuple[Path, ...] = ()
    preset: Path | None = None
    pictures: tuple[Path, ...] = ()
    fresh: float | None = None
    confirmed: Confirmed | None = None
    importances: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values."""
        paths = {"study": str(self.folder), "preset": self.preset and str(self.preset)}
        lists = {"runs": [str(run) for run in self.runs], "pictures": [str(path) for path in self.pictures]}
        confirmed = {"fresh": self.fresh, "confirmed": self.confirmed and self.confirmed.to_dict()}
        rest = confirmed | {"importances": self.importances, "stopped": self.stopped}
        trials = {"best": self.best and self.best.to_dict(), "trials": [trial.to_dict() for trial in self.trials]}
        return paths | trials | lists | rest | {"notices": list(self.notices)}


def runs_of(plan: Plan, runs: Path, trial: Trial) -> tuple[Path, ...]:
    """The existing folders of a trial's runs in `runs`, in the order of their seeds."""
    parent, first = runs / f"{trial.number:04}", plan.config.run.seed
    names = [run_name(plan.centre, plan.config.environment, first + number) for number in range(plan.seeds)]
    return tuple(parent / name for name in names if (parent / name / "config.yaml").is_file())


def write_preset(plan: Plan, folder: Path, best: Trial, trials: list[Trial]) -> Path:
    """Write `best.yaml`, in the form of Duetto's own presets: `duetto train ... --preset best.yaml` takes it."""
    algorithm = applied(plan.centre, best.options)
    defaults = type(algorithm)()
    values = {name: getattr(algorithm, name) for name in algorithm.options()}
    own = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value != getattr(defaults, name) and not isinstance(value, CustomNetwork)
    }
    run = plan.config.run
    options = {
        entry.name: getattr(run, entry.name)
        for entry in fields(RunOptions)
        if entry.name not in _NOT_IN_PRESETS and getattr(run, entry.name) != getattr(RunOptions(), entry.name)
    }
    seeds = f"{plan.seeds} seed{'s' * (plan.seeds > 1)}"
    about = (
        f"Trial {best.number} of {len(trials)} by duetto tune, {seeds} each of {run.steps:,} steps on "
        f"{plan.config.environment}: {best.value:.6g}, the best by that score."
    )
    preset = {"about": about, "run": options, "environment": plan.config.environment_options, "algorithm": own}
    content = {plan.config.environment: {key: value for key, value in preset.items() if value}}
    return _published(folder / "best.yaml", to_yaml(content))


def write_table(folder: Path, trials: list[Trial]) -> Path:
    """Write `trials.csv`, with a row for each trial."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.options))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "state", "score", "seeds", *names, "reason"])
    for trial in trials:
        seeds = " ".join(f"{seed:.6g}" for seed in trial.seeds)
        options = [as_text(trial.options[name]) if name in trial.options else "" for name in names]
        score = "" if trial.value is None else repr(trial.value)
        rows.writerow([trial.number, trial.state, score, seeds, *options, trial.reason.partition("\n")[0]])
    return _published(folder / "trials.csv", text.getvalue())


def _published(path: Path, text: str) -> Path:
    try:
        disk.publish_file(path, text.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Put that right and try again.") from error
    return path


def judged_afresh(plan: Plan, runs: tuple[Path, ...]) -> float | None:
    """Interquartile mean over a trial's seeds of their last policies' returns in other episodes than the study's own.

    So it is free of the luck of the evaluations that the trial was chosen by, but not of the luck of its seeds. None
    if one of its runs was deleted.
    """
    origin = plan.config.origin
    own = type(plan.centre) if origin and not origin.file else None
    given = None if isinstance(plan.environment, str) else plan.environment
    means: list[float] = []
    for path in runs:
        run = Run(path, given, plan.centre.custom_networks(), algorithm=own)
        seed = run.config.run.seed + FRESH
        means.append(run.evaluate(plan.config.run.evaluation_episodes, seed=seed).mean_return)
    return scores.interquartile_mean(means) if len(means) == plan.seeds else None
