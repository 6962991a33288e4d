"""`duetto.tune`: start or continue a study; write the best options as a preset, and a table of all trials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms import Algorithm
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError, near
from duetto.runs.argument_checks import parse_seeds, whole
from duetto.runs.spec import RunSpec, slug
from duetto.storage import atomic_io, safe_yaml
from duetto.storage.config import Config, RunOptions
from duetto.storage.run_folder import folder_lock
from duetto.storage.safe_yaml import to_yaml
from duetto.tools.plot.table import csv_text
from duetto.tools.sweep.api import displayed
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.tune.sampler import Sampler, TrialRecord, best_of, distributions
from duetto.tools.tune.space import as_text, space
from duetto.tools.tune.study import TRIALS, Plan, Study, counted

# Options that do not affect the scores, so the preset of the best trial leaves them out.
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
        trials: All trials that were started, by number.
        best: The trial with the highest score; None if no trial is complete.
        runs: The folders of the best trial's runs, one for each seed.
        preset: The file with the best trial's options.
        stopped: Whether the study ended before its last trial; the same call continues it.
        notices: Sentences for the user.
    """

    folder: Path
    trials: tuple[TrialRecord, ...]
    best: TrialRecord | None
    runs: tuple[Path, ...]
    preset: Path | None
    stopped: bool
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(asdict(self), default=str))

    def lines(self) -> Iterator[str]:
        """Yield lines of text: the best trial and how to use it, or how to continue."""
        yield f"{counted(self.trials)}."
        if self.best is not None:
            yield f"Best: trial {self.best.number}, {self.best.value:.6g}: {self.preset and near(self.preset)}"
            yield "\n".join(f"  {name:28} {as_text(value)}" for name, value in self.best.options.items())
        if self.stopped:
            yield "Stopped. Continue with the same command."
        elif self.best is not None:
            yield "It was selected on these seeds; evaluate it on new ones with --preset."


def tune(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    trials: int = 50,
    seeds: int | str | Sequence[int] = 3,
    search: dict[str, Any] | str | Path | None = None,
    search_only: bool = False,
    jobs: int = 1,
    prune: bool = True,
    output: str | Path | None = None,
    preset: str | None = None,
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> TuneResult:
    """Search hyperparameters, and return the best.

    The same call continues an interrupted study. Ctrl-C, SIGTERM and SIGHUP stop a study as they stop `duetto.train`.

    Args:
        algorithm: As in `duetto.train`. The search is around the values of its options; the first trial uses them.
        environment: An id, or a function that makes environments and can be sent to another process.
        trials: Total number of trials, including those of earlier calls.
        seeds: Seeds of each trial's runs, as in `duetto.train`. A seed's score is the mean return of its last
            evaluations; a trial's score is the interquartile mean over its seeds.
        search: The range of each option, as a dict or a YAML file: `{"tau": {"low": 1e-3, "high": 0.05, "log": True}}`.
            Other forms are `{"factor": 4}` (around the current value), `{"choices": [...]}`, "auto" (from the option's
            type) and None (keep the current value).
        search_only: Search only the options in `search`.
        jobs: Number of processes that train at the same time. With 1, the study's seed determines its trials.
        prune: End a trial early if its best score so far is below the median of complete trials at the same step.
        output: The study's folder; by default `studies/<algorithm>-<environment>`.
        preset: As in `duetto.train`; or FILE.yaml.
        environment_options: Arguments for the environment's constructor.
        progress: Show the progress on a terminal or in a notebook, as the command line does.
        options: Fields of `RunOptions`, and hyperparameters (not with an algorithm object). Hyperparameters that are
            given here keep their values and are not searched. `seed` is the seed of the search.

    Raises:
        UsageError: A mistake in the call, before anything is written; or the folder belongs to another study.
        DuettoError: All trials ended and none is complete, or an obstacle such as a full disk stops the study.
    """
    own = [argument for argument, kind in signature(tune).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    spec = RunSpec.of(algorithm, environment, preset, environment_options, options, caller="tune", arguments=own)
    fixed = frozenset(options) & frozenset(spec.algorithm.options())
    plan = planned_study(spec, seeds, search, search_only, fixed, prune)
    return displayed(lambda display: conduct(plan, output, trials, jobs, display), progress)


def planned_study(
    spec: RunSpec,
    seeds: int | str | Sequence[int],
    search: dict[str, Any] | str | Path | None = None,
    search_only: bool = False,
    fixed: frozenset[str] = frozenset(),
    prune: bool = True,
) -> Plan:
    """Return the settings of a study for `conduct`; no folder is made. Raises UsageError as `tune` does.

    Args:
        spec: A run with the options at the center of the search. Its seed is the seed of the search.
        seeds, search, search_only, prune: As in `tune`.
        fixed: Hyperparameters that keep their values.
    """
    numbers = parse_seeds(seeds)
    search = _read_search(search) if isinstance(search, str | Path) else search
    if is_instance(spec.environment):
        raise UsageError("A study cannot share one environment object. Give an id, or a function that makes it.")
    if not spec.options.evaluate_every:
        raise UsageError("evaluate_every is 0, but a study compares evaluations. Set it to the steps between them.")
    searched = space(spec.algorithm, search, search_only, fixed)
    distributions(searched)  # raises for an invalid range
    return Plan(spec, spec.config(), searched, numbers, prune)


def conduct(
    plan: Plan, output: str | Path | None, trials: int, jobs: int, display: SweepDisplay | None = None
) -> TuneResult:
    """Run a study until it has `trials` trials in total, and return its results. Raises as `tune` does."""
    trials, jobs = whole("trials", trials), whole("jobs", jobs)
    default = Path("studies") / f"{plan.center.name()}-{slug(plan.config.environment)}"
    folder = Path(default if output is None else output).absolute()
    try:
        plan.record(folder)
        with folder_lock(folder):
            start = {name: getattr(plan.center, name) for name in plan.space}
            sampler = Sampler(folder / "journal.jsonl", plan.space, plan.config.run.seed, start)
            study = Study(plan, folder, sampler, trials, jobs)
            if display is not None:
                display.announce(study)
            study.work()
            return results_of(study)
    except OSError as error:
        path = error.filename or folder
        raise DuettoError(
            f"{path} cannot be written: {error.strerror or error}. Remove the cause; the same call continues."
        ) from error


def _read_search(path: str | Path) -> dict[str, Any]:
    try:
        return dict(safe_yaml.parse(Path(path).read_text("utf-8")) or {})
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UsageError(
            f"The search file {path} cannot be read ({error}). A line is, for example, tau: {{low: 0.001, high: 0.05}}."
        ) from error


# ---------------------------------------------------------------------------------------------------- results
def results_of(study: Study) -> TuneResult:
    """Write a study's table and preset; return its results. Raise DuettoError if it ended and no trial is complete."""
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


def _write_preset(plan: Plan, folder: Path, best: TrialRecord, trials: list[TrialRecord]) -> Path:
    """Write `best.yaml`, a preset file that `duetto train ... --preset best.yaml` reads."""
    config, run = plan.config, plan.config.run
    tried = replace(config, algorithm=plan.center.with_options(**best.options)).to_dict()
    defaults = Config(type(plan.center)(), config.environment, RunOptions()).to_dict()
    left_out = {"name", "from", *_NOT_IN_PRESETS, *plan.center.custom_networks()}
    options, hyperparameters = (
        {name: value for name, value in tried[part].items() if name not in left_out and value != defaults[part][name]}
        for part in ("run", "algorithm")
    )
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    about = (
        f"Trial {best.number} of {len(trials)} by duetto tune, each with {seeds} and {run.steps:,} steps on "
        f"{config.environment}: {best.value:.6g}, the best score."
    )
    preset = {"about": about, "run": options, "environment": config.environment_options, "algorithm": hyperparameters}
    content = {config.environment: {key: value for key, value in preset.items() if value}}
    atomic_io.publish_file(folder / "best.yaml", to_yaml(content).encode())
    return folder / "best.yaml"


def _write_table(folder: Path, trials: list[TrialRecord]) -> None:
    """Write `trials.csv`, with a row for each trial."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.options))
    rows = []
    for trial in trials:
        seeds = " ".join(f"{seed:.6g}" for seed in trial.seeds)
        options = [as_text(trial.options[name]) if name in trial.options else "" for name in names]
        rows.append([trial.number, trial.state, trial.value, seeds, *options, trial.reason.partition("\n")[0]])
    table = csv_text(["trial", "state", "score", "seeds", *names, "reason"], rows)
    atomic_io.publish_file(folder / "trials.csv", table.encode())
