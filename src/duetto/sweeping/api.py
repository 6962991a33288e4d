"""`duetto.sweep`: begin many runs, or go on with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from duetto.cluster import Cluster
from duetto.display.live import is_watched
from duetto.errors import UsageError
from duetto.runs.asked import count
from duetto.runs.planning import label_of
from duetto.sweeping.crews import Crew, Processes, Tasks
from duetto.sweeping.plan import Planned, Setting, named, runs
from duetto.sweeping.results import Swept, concluded, needed
from duetto.sweeping.settings import from_file, settings
from duetto.sweeping.showing import SweepDisplay
from duetto.sweeping.sweep import LOGS, Sweep
from duetto.training.interruption import passed_on, say_how
from duetto.training.notices import shown_elsewhere


def sweep(
    algorithms: Any,
    environments: Any = (),
    *,
    seeds: int | str | Sequence[int] | None = None,
    jobs: int | None = None,
    output: str | Path | None = None,
    cluster: Cluster | None = None,
    progress: bool = True,
    **options: Any,
) -> Swept:
    """Train every algorithm in every environment with every seed, so many at a time; the same call goes on.

    A run that fails does not end the others: it is in the result's `failed`, its traceback in the folder's `logs/`.
    Ctrl-C, SIGTERM and SIGHUP end it as they do `duetto.train`.

    Args:
        algorithms: One, several, or a mapping from its runs' name to one: a name, a class or an object as in
            `duetto.train`, or a mapping of `algorithm` and options of its own. Or a YAML file of a whole sweep, alone.
        environments: One or several: ids, or functions that make environments and can be sent to another process.
        seeds: Their number, from 0 on; or which: "3-7", [0, 3, 9]; None: 3.
        jobs: Runs at a time; None: one, and on a cluster as many as it has CPUs.
        output: The folder of the runs; by default `sweeps/<algorithms>-<environments>`.
        cluster: A Ray cluster, of which each run gets a CPU; its machines must all see the folder.
        progress: Show on a terminal or in a notebook what the command line shows.
        options: `preset`, `environment_options`, `track`, fields of `RunOptions`, hyper-parameters (not beside an
            object). A mapping's win.

    Raises:
        UsageError: A mistake in the call, before anything begins; or a run is there and was begun with other options.
    """
    if isinstance(algorithms, Path) or (isinstance(algorithms, str) and is_file(algorithms)):
        if environments or options or seeds is not None:
            raise UsageError(f"{algorithms} says what is swept: write environments, seeds and options into it.")
        chosen, name = from_file(algorithms), Path(algorithms).stem
    else:
        chosen = settings(algorithms, environments, 3 if seeds is None else seeds, options)
        name = name_of(chosen)
    console = Console()
    with passed_on() as came:
        if not (progress and is_watched(console)):
            found = conduct(chosen, name, output, jobs, cluster)
            say_how(came, "The same call goes on.")
            return found
        with shown_elsewhere(), SweepDisplay(console) as display:
            found = conduct(chosen, name, output, jobs, cluster, display)
        display.finish(found)
    return found


def is_file(name: str) -> bool:
    """Whether a name is a sweep's YAML file, not an algorithm."""
    return name.endswith((".yaml", ".yml"))


def name_of(settings: Sequence[Setting]) -> str:
    """The default name of the folder for a sweep of these settings."""
    return named((one.algorithm.name() for one in settings), (label_of(one.environment) for one in settings))


def listed(
    settings: Sequence[Setting], name: str, output: str | Path | None, cluster: Cluster | None = None
) -> tuple[Path, list[Planned]]:
    """Return the sweep's folder, and its runs; nothing is written. Raises UsageError as `sweep` does."""
    folder = Path("sweeps") / name if output is None else Path(output)
    return folder, runs(settings, folder.absolute() if cluster else folder)


def conduct(
    settings: Sequence[Setting],
    name: str,
    output: str | Path | None,
    jobs: int | None,
    cluster: Cluster | None = None,
    display: SweepDisplay | None = None,
) -> Swept:
    """Train all runs of the settings, and return the sweep's results."""
    jobs = None if jobs is None else count("jobs", jobs)
    folder, planned = listed(settings, name, output, cluster)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}. Put that right, or choose another --output."
        ) from error
    swept = Sweep(folder, planned, crew(folder, jobs, cluster))
    swept.notices += [notice] if (notice := needed(max(len(one.seeds) for one in settings))) else []
    if display is not None:
        display.announce(swept)
    swept.work()
    if display is not None:
        display.doing("drawing the curves")
    return concluded(swept)


def crew(folder: Path, jobs: int | None, cluster: Cluster | None) -> Crew:
    """The crew that trains: processes, or tasks of a cluster. Raises UsageError if there is no such cluster."""
    if cluster is None:
        return Processes(jobs or 1, folder / LOGS)
    if cluster != Cluster(cluster.address):
        raise UsageError("A sweep's cluster has an address, and nothing else: each of its runs is one task.")
    return Tasks(cluster.address, jobs, folder.absolute())
