"""`duetto.sweep`: start many runs, or continue them; its results: learning curves, and interquartile means."""

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
    """The result of one experiment, at the last evaluation that all its complete seeds have."""

    name: str  # of its runs' folders, without the seed
    label: str  # of its curve
    environment: str
    seeds: int
    step: int
    interquartile_mean: float  # over seeds, of the evaluations' mean returns; with fewer than three seeds the mean
    low: float | None  # the 95 % stratified bootstrap interval, with three seeds or more
    high: float | None


@dataclass(frozen=True)
class RunResult:
    """One run of a sweep, and how it ended."""

    path: Path
    state: str  # "complete", "failed", or "waiting" if the sweep was stopped
    step: int
    mean_return: float | None  # of its last evaluation
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
        """The runs that failed. The same call tries them again."""
        return tuple(run for run in self.runs if run.state == "failed")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads."""
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
    """Train every algorithm in every environment with every seed, `jobs` at a time; the same call continues.

    If a run fails, the others continue: it is in the result's `failed`, with its traceback in the folder's `logs/`.
    Ctrl-C, SIGTERM and SIGHUP end a sweep as they end `duetto.train`.

    Args:
        algorithms: One, several, or a mapping from names to algorithms: a name, a class or an object as in
            `duetto.train`, or a mapping with the keys `algorithm` and option names.
        environments: One or several: ids, or functions that make environments and can be sent to another process.
        seeds: Their number, from 0 on; or a list: "3-7", [0, 3, 9].
        jobs: Runs at a time.
        output: The folder of the runs; by default `sweeps/<algorithms>-<environments>`.
        progress: Show on a terminal or in a notebook what the command line shows.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not with an
            object). A mapping's options take precedence.

    Raises:
        UsageError: A mistake in the call, before anything starts; or a run exists that was started with other options.
    """
    chosen = experiments(algorithms, environments, seeds, options)
    return displayed(lambda display: conduct(chosen, output, jobs, display), progress)


def displayed(work: Callable[[SweepDisplay | None], Result], progress: bool) -> Result:
    """Return the result of the work of a call from Python, with a display if somebody watches and wants it."""
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
        algorithms: One, several, or a mapping from names to algorithms. An algorithm may also be a mapping with the
            keys `algorithm` and option names.
        environments: One or several, as `duetto.train` takes them.
        seeds: As `parse_seeds` takes them.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not of an object).

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
    """Draw and save the results of the complete runs; a notice reports why that failed."""
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
        except DuettoError as error:  # the runs are complete: the same command draws them later
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
