"""The runs of a sweep or study, their progress, and the loop that trains them.

while runs remain:
    start as many as the pool has room for; retry a run later if another process trains it
    record how each ends: write the traceback of a failure, and continue with the others
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from duetto import trackers
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError, escaped, near
from duetto.runs.pool import FAILED, HINDERED, IN_USE, Job, ProcessPool, pack
from duetto.runs.spec import RunSpec, check_name
from duetto.storage.checkpoint import folders
from duetto.storage.config import Config
from duetto.storage.logs import Csv, JsonLines
from duetto.storage.reproducibility import check_same_run
from duetto.storage.run_folder import foreign
from duetto.tools.plot.curves import number
from duetto.training.notices import Notices
from duetto.training.progress_lines import clock
from duetto.training.signals import interruptible

POLL_SECONDS = 0.2  # longest wait for messages before the next check for Ctrl-C
STOP_SIGNALS = [int(getattr(signal, name)) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]
RETRY_SECONDS = 5.0  # until the next attempt to start a run that another process holds
LOGS = "logs"  # the folder for the output of processes, in the sweep's folder
State = Literal["waiting", "working", "stopping", "stopped", "complete", "failed"]
_DAMAGED = (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, DuettoError)


@dataclass(frozen=True)
class Experiment:
    """Runs that differ only in their seeds. `spec.name` is the name of their folders without the seed."""

    spec: RunSpec
    seeds: tuple[int, ...]
    track: tuple[str, ...] = ()


@dataclass(eq=False)
class PlannedRun:
    """One run of a sweep, and its progress.

    Attributes:
        job: The run's description, which its process receives.
        state: The run's state; "working" or "stopping" while a process of this sweep trains it.
        step: The last known step.
        mean_return: The mean return of the last evaluation.
        reason: Why the run failed; the traceback is in the job's log.
        started: The time at which a process of this sweep got the run.
        first_step: The run's step at the time `started`.
        retry_at: The time of the next attempt to start it, if another process holds its lock.
    """

    job: Job
    state: State = "waiting"
    step: int = 0
    mean_return: float | None = None
    reason: str = ""
    started: float = 0.0
    first_step: int = 0
    retry_at: float = 0.0

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.job.name

    def label(self, folder: Path) -> str:
        """Return the path of the run's folder relative to another folder, as its name in a display."""
        return str(self.folder.relative_to(folder))

    @property
    def config(self) -> Config:
        """The config of the run."""
        return self.job.config

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.job.folder

    @property
    def steps(self) -> int:
        """The total number of steps to train."""
        return self.config.run.steps

    @property
    def has_config(self) -> bool:
        """Whether the run's folder contains `config.yaml`: then the run was started."""
        return (self.folder / "config.yaml").is_file()

    @property
    def is_at_work(self) -> bool:
        """Whether a process of this sweep trains the run."""
        return self.state in ("working", "stopping")

    @property
    def score(self) -> str:
        """The last evaluation's mean return as text."""
        return "" if self.mean_return is None else number(self.mean_return)

    @property
    def complete(self) -> bool:
        """Whether the folder contains a run with this config, all steps and the final evaluation.

        The last checkpoint is not enough: a signal may end a run between its last step and its last evaluation.
        """
        evaluated = not self.config.run.evaluate_every or (last_evaluation(self.folder) or (-1,))[0] >= self.steps
        if not evaluated or self.checkpoint_step() < self.steps:
            return False
        try:
            check_same_run(self.folder, self.config)
        except DuettoError:  # the job reports the same error
            return False
        return True

    def checkpoint_step(self) -> int:
        """Return the step of the newest checkpoint; 0 without a checkpoint."""
        return max(folders(self.folder / "checkpoints"), default=0)

    def update(self) -> None:
        """Read `step` and `mean_return` from the run's logs and checkpoints."""
        evaluation_step, self.mean_return = last_evaluation(self.folder) or (0, None)
        logged_step = 0
        with suppress(*_DAMAGED):
            logged_step = int(JsonLines.scan(self.folder / "metrics.jsonl").rows[-1]["step"])
        self.step = max(logged_step, evaluation_step, self.checkpoint_step())

    def seconds_left(self) -> float | None:
        """Return the remaining seconds at the speed so far; None before the first step."""
        trained, spent = self.step - self.first_step, time.monotonic() - self.started
        return max(0, self.steps - self.step) / trained * spent if trained > 0 else None


def runs(experiments: Sequence[Experiment], folder: Path) -> list[PlannedRun]:
    """List all runs in the order of their start: the first seeds of all experiments, then all second seeds, and so on.

    With this order, every experiment has a curve early.

    Raises:
        UsageError: An algorithm does not fit an environment; a name is invalid or belongs to two runs; or a run's
            folder contains a run with other options.
    """
    by_place: list[tuple[int, PlannedRun]] = []
    for experiment in experiments:
        if is_instance(experiment.spec.environment):
            raise UsageError("A sweep cannot share one environment object. Give an id, or a function that makes it.")
        trackers.callbacks(experiment.track)  # raises for a tracker that is unknown or not installed
        config = experiment.spec.config()
        for place, seed in enumerate(experiment.seeds):
            seeded = replace(config, run=replace(config.run, seed=seed))
            name = f"{experiment.spec.name}-s{seed}"
            check_name(name)
            spec = replace(experiment.spec, options=seeded.run, runs_dir=folder, name=name)
            job = Job(spec, seeded, folder / LOGS / f"{name}.txt", experiment.track, is_contested=True)
            if not place:
                pack(job)  # raises if the job cannot be sent to a process
            by_place.append((place, PlannedRun(job)))
    ordered = [run for _, run in sorted(by_place, key=lambda pair: pair[0])]
    names = [run.name for run in ordered]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"Two runs would be called {twice}. Give the experiments names, as keys of a mapping.")
    for run in ordered:
        if run.has_config:
            check_same_run(run.folder, run.config)
        elif foreign(run.folder):
            raise UsageError(f"{run.folder} exists and is no run: it has no config.yaml. Choose another --output.")
    return ordered


def last_evaluation(folder: Path) -> tuple[int, float] | None:
    """Return step and mean return in the last row of `evaluations.csv`; None if it is missing or damaged."""
    with suppress(*_DAMAGED):
        row = Csv.scan(folder / "evaluations.csv").rows[-1]
        return int(row["step"]), row["mean_return"]
    return None


class Sweep:
    """A running sweep.

    Attributes:
        runs: All runs.
        notices: Sentences for the user, in order.
        stopped: Whether Ctrl-C or an obstacle, such as a full disk, stops the sweep before its last run.
        on_event: Called with a line per event, and with "" several times per second to refresh the display.
    """

    folder: Path
    pool: ProcessPool

    def __init__(self, folder: Path, runs: Sequence[PlannedRun], pool: ProcessPool) -> None:
        self.folder, self.pool = folder, pool
        self.runs: list[PlannedRun] = list(runs)
        for run in self.runs:
            run.update()
            run.state = "complete" if run.complete else "waiting"
        self.notices: Notices = Notices()
        self.stopped: bool = False
        self.started: float = time.monotonic()
        self.on_event: Callable[[str], None] = lambda _: None

    def work(self) -> None:
        """Train until the last run ends, or until Ctrl-C."""
        with interruptible(self._stop):
            try:
                while self._start_runs():
                    for job, message in self.pool.wait(POLL_SECONDS):
                        self._receive(next(run for run in self.runs if run.job is job), *message)
                    self.on_event("")
            finally:
                self.pool.close()
                for log in {run.job.log for run in self.runs if run.state == "complete"}:
                    if log.is_file() and not log.stat().st_size:
                        log.unlink()

    # ------------------------------------------------------------------------------------------------ the loop
    def _stop(self) -> None:
        self.stopped = True

    def _start_runs(self) -> bool:
        """Start runs while there is room; return whether the loop has to continue."""
        if self.stopped:
            self._stop_runs(self.runs)
        while not self.stopped and self.pool.room() and (run := self._next()):
            run.update()
            if run.complete:  # another process has trained it
                self._ended(run, "complete")
                continue
            run.state, run.started, run.first_step = "working", time.monotonic(), run.step
            self.pool.start(run.job)
        return any(run.is_at_work or (run.state == "waiting" and not self.stopped) for run in self.runs)

    def _next(self) -> PlannedRun | None:
        """Return the next run to start; runs that another process held at the last attempt come last."""
        waiting = [run for run in self.runs if run.state == "waiting" and run.retry_at <= time.monotonic()]
        return min(waiting, key=lambda run: run.retry_at, default=None)

    def _stop_runs(self, runs: Sequence[PlannedRun]) -> None:
        """Tell the active ones of `runs` to write a checkpoint and stop."""
        for run in runs:
            if run.state == "working":
                run.state = "stopping"
                self.pool.stop(run.job)

    def _receive(self, run: PlannedRun, kind: str, *details: Any) -> None:
        if kind == "started":
            self._started(run, *details)
        elif kind == "evaluated":
            self._evaluated(run, *details)
        else:
            run.update()
            if kind == "ended":
                self.notices.add_new(run.label(self.folder), details[1], run.folder)
            how, reason, trace = _failure(kind, details)
            if run.complete and kind != "failed":
                self._ended(run, "complete")
            elif how == HINDERED and kind != "failed" and (self.stopped or run.state == "stopping"):
                self._ended(run, "waiting")
            else:
                self._ended(run, "failed", how, reason, trace)

    def _started(self, run: PlannedRun, evaluations: list[tuple[int, float]], step: int) -> None:
        run.first_step = run.step = step
        with suppress(OSError):  # empty the log of an earlier failure; from now on this process holds the run's lock
            os.truncate(run.job.log, 0)
        self.on_event(f"{run.name}  {f'resumes at step {step:,}' if step else 'starts'}")

    def _evaluated(self, run: PlannedRun, step: int, mean_return: float) -> None:
        """Do nothing: in a sweep, no run waits after an evaluation. A study overrides this method."""

    def _ended(self, run: PlannedRun, state: Any, how: str = "", reason: str = "", trace: str = "") -> None:
        """Record how a run ended. `how`, `reason` and `trace` describe a failure. A run that is IN_USE waits again."""
        if how == IN_USE:
            if not run.retry_at:
                self.on_event(f"{run.name}  is in use by another process; waiting for it")
            run.state, run.retry_at = "waiting", time.monotonic() + RETRY_SECONDS
            return
        run.state, run.reason = state, reason
        spent = clock(time.monotonic() - run.started) if run.started else ""  # "" if another process trained it
        if state == "complete":
            self.on_event("  ".join(part for part in (run.name, f"{run.step:,} steps", run.score, spent) if part))
        elif state == "failed":
            log = run.job.log
            with suppress(OSError):  # a full disk must not end the sweep
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(f"{reason}\n{trace}".strip() + "\n")
            self.on_event(f"{run.name}  failed: {reason}  See {near(log)}")

    # ------------------------------------------------------------------------------------------------ for a display
    def headline(self) -> str:
        """Return the display's first lines: the number of runs, and their folder."""
        experiments = len({run.name.rpartition("-s")[0] for run in self.runs})
        count, plural = len(self.runs), "s" * (experiments > 1)
        return f"{count} run{'s' * (count > 1)} of {experiments} experiment{plural}\n{near(self.folder)}/"

    def status(self) -> list[str]:
        """Return the parts of the status line, the most important first."""
        counts = Counter(run.state for run in self.runs)
        parts = [f"{counts['complete']}/{len(self.runs)} runs"]
        parts += [f"{counts['failed']} failed"] * bool(counts["failed"])
        parts.append(clock(time.monotonic() - self.started))
        return parts


def _failure(kind: str, details: Sequence[Any]) -> tuple[str, str, str]:
    """Return the kind, reason and traceback of a failure, given the kind and the details of a worker's last message."""
    if kind == "ended" or (kind == "gone" and -details[0] in STOP_SIGNALS):
        return HINDERED, "It was stopped by a signal.", ""
    if kind == "gone":
        return FAILED, f"Its process ended with the code {details[0]}.", ""
    how, sentence, trace = details
    return how, escaped(sentence), trace
