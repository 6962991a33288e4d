"""`duetto.sweep`: start many runs, or continue them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from duetto.errors import UsageError
from duetto.runs.argument_checks import whole
from duetto.runs.pool import ProcessPool
from duetto.runs.worker import CLAIMS
from duetto.storage import safe_open
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.sweep.experiments import Experiment, default_name, experiments, from_file
from duetto.tools.sweep.plan import PlannedRun, runs
from duetto.tools.sweep.results import SweepResult, missing_package, results_of
from duetto.tools.sweep.sweep import LOGS, Sweep, log_of
from duetto.training.notices import shown_elsewhere
from duetto.training.progress_lines import is_watched
from duetto.training.signals import passed_on, say_how


def sweep(
    algorithms: Any,
    environments: Any = (),
    *,
    seeds: int | str | Sequence[int] | None = None,
    jobs: int | None = None,
    output: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> SweepResult:
    """Train every algorithm in every environment with every seed, `jobs` at a time; the same call continues.

    If a run fails, the others continue: it is in the result's `failed`, with its traceback in the folder's `logs/`.
    Ctrl-C, SIGTERM and SIGHUP end a sweep as they end `duetto.train`.

    Args:
        algorithms: One, several, or a mapping from names to algorithms: a name, a class or an object as in
            `duetto.train`, or a mapping with the keys `algorithm` and option names. Or only a YAML file of a whole
            sweep.
        environments: One or several: ids, or functions that make environments and can be sent to another process.
        seeds: Their number, from 0 on; or a list: "3-7", [0, 3, 9]; None: 3.
        jobs: Runs at a time; None: one.
        output: The folder of the runs; by default `sweeps/<algorithms>-<environments>`.
        progress: Show on a terminal or in a notebook what the command line shows.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not with an
            object). A mapping's options take precedence.

    Raises:
        UsageError: A mistake in the call, before anything starts; or a run exists that was started with other options.
    """
    if isinstance(algorithms, Path) or (isinstance(algorithms, str) and algorithms.endswith((".yaml", ".yml"))):
        if environments or options or seeds is not None:
            raise UsageError(f"{algorithms} describes the whole sweep: write environments, seeds and options into it.")
        chosen, name = from_file(algorithms), Path(algorithms).stem
    else:
        chosen, name = experiments(algorithms, environments, 3 if seeds is None else seeds, options), None
    console = Console()
    with passed_on() as came:
        if not (progress and is_watched(console)):
            result = conduct(chosen, name, output, jobs)
            say_how(came, "The same call continues.")
            return result
        with shown_elsewhere(), SweepDisplay(console) as display:
            result = conduct(chosen, name, output, jobs, display)
        display.finish(result)
    return result


def listed(chosen: Sequence[Experiment], name: str | None, output: str | Path | None) -> tuple[Path, list[PlannedRun]]:
    """Return the sweep's folder and its runs; nothing is written. Raises UsageError as `sweep` does."""
    folder = Path("sweeps") / (name or default_name(chosen)) if output is None else Path(output)
    return folder.absolute(), runs(chosen, folder.absolute())


def conduct(
    chosen: Sequence[Experiment],
    name: str | None,
    output: str | Path | None,
    jobs: int | None,
    display: SweepDisplay | None = None,
) -> SweepResult:
    """Train all runs of the experiments, and return the sweep's results."""
    jobs = None if jobs is None else whole("jobs", jobs)
    folder, planned = listed(chosen, name, output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}. Choose another --output.") from error
    safe_open.check_folders([folder / LOGS, folder / CLAIMS, *(run.folder for run in planned)])
    work = Sweep(folder, planned, ProcessPool(jobs or 1, lambda job: log_of(folder, job.name)))
    if notice := missing_package(max(len(experiment.seeds) for experiment in chosen)):
        work.notices.append(notice)
    if display is not None:
        display.announce(work)
    work.work()
    if display is not None:
        display.doing("drawing the curves")
    return results_of(work)
