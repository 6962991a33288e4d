"""A study's results: the best trial as a preset, and a table of all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError, near
from duetto.networks.specs import CustomNetwork
from duetto.storage import atomic_io
from duetto.storage.config import RunOptions
from duetto.storage.safe_yaml import to_yaml
from duetto.tools.tune.sampler import FinishedTrial, best_of
from duetto.tools.tune.space import as_text
from duetto.tools.tune.study import TRIALS, Plan, Study, counted

# Options of the machine and of logging: they do not make the best trial the best.
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
class TuneResult:
    """A study's results so far.

    Attributes:
        folder: The study's folder.
        trials: All that were started, by number.
        best: The one with the highest score; None if none is complete.
        runs: The folders of the best trial's runs, one for each seed.
        preset: The file with the best trial's options.
        stopped: Whether it ended before its last trial; the same call continues it.
        notices: Sentences for the user.
    """

    folder: Path
    trials: tuple[FinishedTrial, ...]
    best: FinishedTrial | None
    runs: tuple[Path, ...]
    preset: Path | None
    stopped: bool
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(asdict(self), default=str))

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads: the best trial and how to use it, or how to continue."""
        yield f"{counted(self.trials)}."
        if self.best is not None:
            yield f"Best: trial {self.best.number}, {self.best.value:.6g}: {self.preset and near(self.preset)}"
            yield "\n".join(f"  {name:28} {as_text(value)}" for name, value in self.best.options.items())
        if self.stopped:
            yield "Stopped. Continue with the same command."
        elif self.best is not None:
            yield "It was selected on these seeds; evaluate it on new ones with --preset."


def results_of(study: Study) -> TuneResult:
    """Write the results of a study, also of one that was stopped. DuettoError if no trial is complete."""
    plan, folder, trials = study.plan, study.folder, study.sampler.trials()
    _write_table(folder, trials)
    best, runs, preset = best_of(trials), (), None
    if best is not None:
        runs = tuple(sorted((folder / TRIALS / f"{best.number:04}").glob("*-s*")))
        preset = _write_preset(plan, folder, best, trials)
    elif not study.stopped:
        reasons = [trial.reason.partition("\n")[0] for trial in trials if trial.reason]
        hint = f"The last reason: {reasons[-1]}" if reasons else "The same call continues them."
        raise DuettoError(f"None of the {len(trials)} trials in {folder} is complete. {hint}")
    return TuneResult(folder, tuple(trials), best, runs, preset, study.stopped, tuple(study.notices))


def _write_preset(plan: Plan, folder: Path, best: FinishedTrial, trials: list[FinishedTrial]) -> Path:
    """Write `best.yaml`, in the form of Duetto's presets: `duetto train ... --preset best.yaml` reads it."""
    algorithm = plan.center.with_options(**best.options)
    defaults = type(algorithm)()
    values = {name: getattr(algorithm, name) for name in algorithm.options()}
    hyperparameters = {
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
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    about = (
        f"Trial {best.number} of {len(trials)} by duetto tune, each with {seeds} and {run.steps:,} steps on "
        f"{plan.config.environment}: {best.value:.6g}, the best score."
    )
    preset = {"about": about, "run": options, "environment": plan.config.environment_options}
    preset["algorithm"] = hyperparameters
    content = {plan.config.environment: {key: value for key, value in preset.items() if value}}
    atomic_io.publish_file(folder / "best.yaml", to_yaml(content).encode())
    return folder / "best.yaml"


def _write_table(folder: Path, trials: list[FinishedTrial]) -> None:
    """Write `trials.csv`, with a row for each trial."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.options))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "state", "score", "seeds", *names, "reason"])
    for trial in trials:
        seeds = " ".join(f"{seed:.6g}" for seed in trial.seeds)
        options = [as_text(trial.options[name]) if name in trial.options else "" for name in names]
        rows.writerow([trial.number, trial.state, trial.value, seeds, *options, trial.reason.partition("\n")[0]])
    atomic_io.publish_file(folder / "trials.csv", text.getvalue().encode())
