"""`duetto.sweep`: start many runs, or continue them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from duetto.errors import UsageError
from duetto.runs.argument_checks import whole
from duetto.runs.pool import CLAIMS, ProcessPool
from duetto.storage import safe_open
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.sweep.plan import Experiment, PlannedRun, default_name, experiments, runs
from duetto.tools.sweep.results import SweepResult, results_of
from duetto.tools.sweep.sweep import LOGS, Sweep, log_of
from duetto.training.notices import shown_elsewhere
from duetto.training.progress_lines import is_watched
from duetto.training.signals import passed_on, say_how

Result = TypeVar("Result")


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
    work = Sweep(folder, planned, ProcessPool(jobs, lambda job: log_of(folder, job)))
    if display is not None:
        display.announce(work)
    work.work()
    if display is not None:
        display.doing("drawing the curves")
    return results_of(work)
