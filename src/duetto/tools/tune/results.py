"""A study's results: the best trial as a preset, a table, plots, and an evaluation of the best in new episodes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import run_of
from duetto.runs.spec import run_name
from duetto.storage import atomic_io
from duetto.storage.config import RunOptions
from duetto.storage.safe_yaml import to_yaml
from duetto.tools.plot.figure import new_figure, save
from duetto.tools.tune.plan import Plan
from duetto.tools.tune.sampler import FinishedTrial, best_of
from duetto.tools.tune.space import applied, as_text
from duetto.tools.tune.study import Study, interquartile_mean

FRESH = 1_000_000  # added to the seeds of evaluations that selected nothing
MAX_BARS = 15

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
        pictures: The plots.
        fresh: Interquartile mean over the best trial's seeds of the returns in episodes that selected nothing.
        importances: The share of each option in what makes trials good; {} if too few are complete.
        stopped: Whether it ended before its last trial; the same call continues it.
        notices: Sentences for the user.
    """

    folder: Path
    trials: tuple[FinishedTrial, ...]
    best: FinishedTrial | None = None
    runs: tuple[Path, ...] = ()
    preset: Path | None = None
    pictures: tuple[Path, ...] = ()
    fresh: float | None = None
    importances: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    notices: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(asdict(self), default=str))


def results_of(study: Study) -> TuneResult:
    """Write the results of a study, also of one that was stopped. DuettoError if no trial is complete."""
    plan, folder, trials = study.plan, study.folder, study.sampler.trials()
    write_table(folder, trials)
    importances = study.sampler.importances()
    pictures = draw(folder, trials, importances, f"{plan.center.name()} on {plan.config.environment}")
    best, runs, preset, fresh = best_of(trials), (), None, None
    if best is not None:
        runs = runs_of(plan, study.runs, best)
        preset = write_preset(plan, folder, best, trials)
        if not study.stopped:
            try:
                fresh = fresh_score(plan, runs)
            except DuettoError as error:  # a checkpoint may have been deleted to make room
                study.notices.append(f"The best was not evaluated in other episodes. {error}")
    elif not study.stopped:
        reasons = [trial.reason.partition("\n")[0] for trial in trials if trial.reason]
        hint = f"The last reason: {reasons[-1]}" if reasons else "The same call continues them."
        raise DuettoError(f"None of the {len(trials)} trials in {folder} is complete. {hint}")
    notices = tuple(study.notices)
    return TuneResult(folder, tuple(trials), best, runs, preset, pictures, fresh, importances, study.stopped, notices)


def runs_of(plan: Plan, runs: Path, trial: FinishedTrial) -> tuple[Path, ...]:
    """Return the existing folders of a trial's runs in `runs`, in the order of their seeds."""
    parent = runs / f"{trial.number:04}"
    names = [run_name(plan.center, plan.config.environment, seed) for seed in plan.seeds]
    return tuple(parent / name for name in names if (parent / name / "config.yaml").is_file())


def write_preset(plan: Plan, folder: Path, best: FinishedTrial, trials: list[FinishedTrial]) -> Path:
    """Write `best.yaml`, in the form of Duetto's presets: `duetto train ... --preset best.yaml` reads it."""
    algorithm = applied(plan.center, best.options)
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


def write_table(folder: Path, trials: list[FinishedTrial]) -> None:
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
    atomic_io.publish_file(folder / "trials.csv", text.getvalue().encode())


def fresh_score(plan: Plan, runs: tuple[Path, ...]) -> float | None:
    """Return the interquartile mean over a trial's seeds of their last policies' returns in new episodes.

    The evaluations that selected the trial do not bias it, but the selection of its seeds does. None if a run was
    deleted.
    """
    means: list[float] = []
    for path in runs:
        run = run_of(plan.spec, path, plan.config)
        seed = run.config.run.seed + FRESH
        means.append(run.evaluate(plan.config.run.evaluation_episodes, seed=seed).mean_return)
    return interquartile_mean(means) if len(means) == len(plan.seeds) else None


# ---------------------------------------------------------------------------------------------------- plots
def check_matplotlib() -> None:
    """Raise UsageError if Matplotlib is not installed: before a study, not after it."""
    try:
        new_figure(1.0, 1.0)
    except UsageError as error:
        raise UsageError(f"A study is drawn with Matplotlib. Install: {install('tune')}") from error


def draw(folder: Path, trials: list[FinishedTrial], importances: dict[str, float], title: str) -> tuple[Path, ...]:
    """Draw `history.png`, and `importance.png` if importances are known; return their paths."""
    pictures: list[Path] = []
    if any(trial.value is not None for trial in trials):
        figure = new_figure(width=7.0, height=4.2)
        _draw_history(figure.add_subplot(), trials, title)
        pictures.append(folder / "history.png")
        save(figure, pictures[-1])
    if importances:
        shown = list(importances.items())[:MAX_BARS]
        figure = new_figure(width=7.0, height=1.2 + 0.32 * len(shown))
        _draw_importance(figure.add_subplot(), shown, title)
        pictures.append(folder / "importance.png")
        save(figure, pictures[-1])
    return tuple(pictures)


def _draw_history(axes: Any, trials: list[FinishedTrial], title: str) -> None:
    """Plot each trial's score, and the best until then; trials without a score are marked at the lower edge."""
    complete = [trial for trial in trials if trial.value is not None]
    numbers, values = [trial.number for trial in complete], [float(trial.value or 0.0) for trial in complete]
    axes.scatter(numbers, values, s=18, color="C0", label="score of a trial", zorder=3)
    axes.step(numbers, list(accumulate(values, max)), where="post", color="C1", linewidth=2, label="best until then")
    for state, color, mark in (("pruned", "C7", "|"), ("diverged", "C3", "x"), ("failed", "C3", "1")):
        without_score = [trial.number for trial in trials if trial.state == state]
        if without_score:
            edge, heights = axes.get_xaxis_transform(), [0.02] * len(without_score)
            axes.scatter(without_score, heights, transform=edge, marker=mark, color=color, label=state, s=36)
    axes.set(title=title, xlabel="trial", ylabel="score (interquartile mean over seeds)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _draw_importance(axes: Any, shown: list[tuple[str, float]], title: str) -> None:
    names, shares = [name for name, _ in shown][::-1], [share for _, share in shown][::-1]
    bars = axes.barh(names, shares, color="C0")
    axes.bar_label(bars, labels=[f"{share:.0%}" for share in shares], padding=3, fontsize=8)
    axes.set(title=title, xlabel="share in what makes a trial good (PED-ANOVA)", xlim=(0.0, max(shares) * 1.12))
    axes.grid(alpha=0.3, axis="x")
