"""`duetto.sweep`: start or continue many runs, and write learning curves and interquartile means."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from duetto.errors import DuettoError, UsageError, near
from duetto.runs.argument_checks import parse_seeds, whole
from duetto.runs.pool import CLAIMS, ProcessPool
from duetto.runs.spec import RunSpec, label_of, slug
from duetto.storage import atomic_io, safe_open
from duetto.storage.user_code import is_file, named
from duetto.tools.plot.curves import curve, number, picture
from duetto.tools.plot.grouping import groups
from duetto.tools.plot.table import csv_text
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.sweep.sweep import LOGS, Experiment, PlannedRun, Sweep, runs
from duetto.training.notices import shown_elsewhere
from duetto.training.progress_lines import is_watched
from duetto.training.signals import passed_on, say_how

METRIC = "mean_return"
MAX_NAME = 100  # characters of a sweep's default folder
_OPTIONS = ("preset", "environment_options", "track")  # in addition to those of runs and algorithms
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExperimentResult:
    """The result of an algorithm in an environment, at the last evaluation that all of its complete runs have."""

    name: str  # the name of the runs' folders without the seed
    label: str  # the label of the curve
    environment: str
    seeds: int
    step: int
    interquartile_mean: float  # of the seeds' mean returns; with fewer than four seeds, their plain mean
    low: float | None  # and `high`: the 95 % stratified bootstrap interval; None for fewer than three seeds
    high: float | None


@dataclass(frozen=True)
class RunResult:
    """One run of a sweep, and how it ended."""

    path: Path
    state: str  # "complete", "failed", or "waiting" if the sweep was stopped
    step: int
    mean_return: float | None  # the result of the last evaluation
    reason: str  # why it failed
    log: Path | None  # the file with the reason and its traceback


@dataclass(frozen=True)
class SweepResult:
    """The results of `duetto.sweep`."""

    folder: Path
    runs: tuple[RunResult, ...]
    results: tuple[ExperimentResult, ...]
    picture: Path | None
    stopped: bool
    notices: tuple[str, ...]

    @property
    def failed(self) -> tuple[RunResult, ...]:
        """The failed runs. The same call retries them."""
        return tuple(run for run in self.runs if run.state == "failed")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

    def lines(self) -> Iterator[str]:
        """Yield the results as lines of text."""
        for each in self.results:  # the interquartile mean over the seeds
            low, high = each.low, each.high
            interval = "" if low is None or high is None else f" (95 %: {number(low)} to {number(high)})"
            yield (
                f"{each.environment}, {each.label}: mean return {number(each.interquartile_mean)}{interval}, "
                f"{each.seeds} seed{'s' * (each.seeds > 1)}, {each.step:,} steps"
            )
        counts = Counter(run.state for run in self.runs)
        yield ", ".join(f"{count} {state}" for state, count in counts.items()) + "."
        if self.picture is not None:
            yield str(near(self.picture))
        if self.stopped:
            yield "Stopped. Continue with the same command."


def sweep(
    algorithms: Any,
    environments: Any,
    *,
    seeds: int | str | Sequence[int] = 3,
    jobs: int = 1,
    output: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> SweepResult:
    """Train every algorithm in every environment with every seed, `jobs` runs at a time.

    The same call continues an interrupted sweep. If a run fails, the others continue; the result's `failed` has the
    failed run, and the folder's `logs/` has its traceback. Ctrl-C, SIGTERM and SIGHUP stop a sweep as they stop
    `duetto.train`.

    Args:
        algorithms: One algorithm, a list, or a mapping from names to algorithms. An algorithm is a name, a class or an
            object as in `duetto.train`; in a list or mapping, it may have options: `{"algorithm": "td3", "tau": 0.01}`.
        environments: An id, a picklable function that makes environments, or a list of these.
        seeds: A number of seeds, such as 3 for 0, 1 and 2; or the seeds: "3-7", [0, 3, 9].
        jobs: Number of runs that train at the same time.
        output: The folder of the runs; by default `sweeps/<algorithms>-<environments>`.
        progress: Show the progress on a terminal or in a notebook, as the command line does.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, and hyperparameters (not with an
            algorithm object). An algorithm's own options take precedence.

    Raises:
        UsageError: A mistake in the call, before anything starts; or a run exists that was started with other options.
    """
    chosen = experiments(algorithms, environments, seeds, options)
    return displayed(lambda display: conduct(chosen, output, jobs, display), progress)


def displayed(work: Callable[[SweepDisplay | None], Result], progress: bool) -> Result:
    """Return `work(display)`. The display is None if `progress` is False or no terminal or notebook can show it."""
    console = Console()
    with passed_on() as came:
        if not (progress and is_watched(console)):
            result = work(None)
            say_how(came, "The same call continues.")
            return result
        with shown_elsewhere(), SweepDisplay(console) as display:
            result = work(display)
        display.finish(result)
    return result


def listed(chosen: Sequence[Experiment], output: str | Path | None) -> tuple[Path, list[PlannedRun]]:
    """Return the sweep's folder and its runs; nothing is written. Raises UsageError as `sweep` does."""
    folder = Path("sweeps") / default_name(chosen) if output is None else Path(output)
    return folder.absolute(), runs(chosen, folder.absolute())


def conduct(
    chosen: Sequence[Experiment], output: str | Path | None, jobs: int, display: SweepDisplay | None = None
) -> SweepResult:
    """Train all runs of the experiments, and return the sweep's results."""
    jobs = whole("jobs", jobs)
    folder, planned = listed(chosen, output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}. Choose another --output.") from error
    safe_open.check_folders([folder / LOGS, folder / CLAIMS, *(run.folder for run in planned)])
    work = Sweep(folder, planned, ProcessPool(jobs))
    if display is not None:
        display.announce(work)
    work.work()
    if display is not None:
        display.doing("drawing the curves")
    return results_of(work)


# ---------------------------------------------------------------------------------------------------- the arguments
def experiments(algorithms: Any, environments: Any, seeds: Any, options: Mapping[str, Any]) -> list[Experiment]:
    """Return an experiment for each algorithm in each environment.

    Args:
        algorithms, environments, options: As in `sweep`.
        seeds: As in `parse_seeds`.

    Raises:
        UsageError: An argument is unknown or missing.
    """
    by_name = algorithms.items() if isinstance(algorithms, Mapping) else [(None, each) for each in _as_list(algorithms)]
    made = [
        _experiment(name, name if algorithm is None else algorithm, environment, parse_seeds(seeds), options)
        for name, algorithm in by_name
        for environment in _as_list(environments)
    ]
    if not made:
        raise UsageError("sweep needs at least one algorithm and one environment, such as td3 and Pendulum-v1.")
    return made


def _as_list(values: Any) -> Sequence[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def _experiment(
    name: Any, algorithm: Any, environment: Any, seeds: tuple[int, ...], common: Mapping[str, Any]
) -> Experiment:
    options = dict(common)
    if isinstance(algorithm, Mapping):
        options |= algorithm
        algorithm = options.pop("algorithm", name)
    if "seed" in options:
        raise UsageError("sweep has seeds, and no option 'seed'. Give seeds: 0-4, or seeds: 0,3,9.")
    preset, environment_options, track = (options.pop(option, None) for option in _OPTIONS)
    in_file = isinstance(algorithm, str) and is_file(algorithm)
    kind, origin = named(algorithm) if in_file else (algorithm, None)
    place = label_of(environment) if isinstance(environment, str) else environment
    spec = RunSpec.of(
        kind, place, preset, environment_options, options, caller="sweep", arguments=_OPTIONS, origin=origin
    )
    name = f"{slug(str(name or spec.algorithm.name()))}-{slug(spec.label)}"
    return Experiment(replace(spec, name=name), seeds, tuple(_as_list(track or ())))


def default_name(chosen: Sequence[Experiment]) -> str:
    """Return the default name of a sweep's folder: algorithms and environments, at most 100 characters."""
    algorithms = "+".join(dict.fromkeys(slug(experiment.spec.algorithm.name()) for experiment in chosen))
    environments = "+".join(dict.fromkeys(slug(experiment.spec.label) for experiment in chosen))
    return f"{algorithms}-{environments}"[:MAX_NAME].rstrip("-+.")


# ---------------------------------------------------------------------------------------------------- results
def results_of(sweep: Sweep) -> SweepResult:
    """Return the results. Unless the sweep was stopped, draw curves and save a table; if that fails, add a notice."""
    complete = [run.folder for run in sweep.runs if run.state == "complete"]
    results: list[ExperimentResult] = []
    drawn = None
    if complete and not sweep.stopped:
        try:
            by_experiment = groups(complete, METRIC, by_name=True)
            curves = [curve(group, METRIC) for group in by_experiment]
            results = [
                ExperimentResult(
                    group.members[0].experiment,
                    each.label,
                    each.environment,
                    len(each.values),
                    int(each.steps[-1]),
                    *each.last(),
                )
                for group, each in zip(by_experiment, curves, strict=True)
            ]
            names = [field.name for field in dataclasses.fields(ExperimentResult)]
            table = csv_text(names, [dataclasses.astuple(result) for result in results])
            atomic_io.write_output(sweep.folder / "results.csv", table)
            drawn = picture(curves, sweep.folder / "curves.png", METRIC)
        except DuettoError as error:  # the runs are complete, so the same command can draw them later
            sweep.notices.append(str(error))
    runs = [
        RunResult(
            run.folder,
            run.state,
            run.step,
            run.mean_return,
            run.reason,
            run.job.log if run.state == "failed" else None,
        )
        for run in sweep.runs
    ]
    return SweepResult(sweep.folder, tuple(runs), tuple(results), drawn, sweep.stopped, tuple(sweep.notices))
