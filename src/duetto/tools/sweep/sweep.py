"""The loop of a sweep, and of a study, which adds runs to it.

while runs remain:
    start as many as the pool has room for; a run that another process works on is tried again later
    record how each ends: a failure is kept, with its traceback, and the others continue
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto.errors import escaped, near
from duetto.runs.pool import FAILED, HINDERED, IN_USE, Job, ProcessPool
from duetto.tools.sweep.plan import PlannedRun
from duetto.training.notices import Notices
from duetto.training.progress_lines import clock
from duetto.training.signals import interruptible

POLL_SECONDS = 0.2  # between two checks whether to stop
STOP_SIGNALS = [int(getattr(signal, name)) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]
RETRY_SECONDS = 5.0  # until a run is tried again that another process works on
LOGS = "logs"  # the folder in the sweep's for the output of its processes


class Sweep:
    """A running sweep.

    Attributes:
        runs: All runs.
        notices: Sentences for the user, in order.
        stopped: Whether it was asked to end before its last run.
        on_event: Gets a line for each event, for a display.
        on_poll: Called several times in a second, for a display.
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
        self.on_poll: Callable[[], None] = lambda: None

    def work(self) -> None:
        """Train to the end of the last run, or until Ctrl-C."""
        with interruptible(self._stop):
            try:
                while self._remains():
                    for job, message in self.pool.wait(POLL_SECONDS):
                        self._receive(next(run for run in self.runs if run.job is job), *message)
                    self.on_poll()
            finally:
                self.pool.close()
                for log in {self.log_of(run.job) for run in self.runs if run.state == "complete"}:
                    if log.is_file() and not log.stat().st_size:
                        log.unlink()

    def log_of(self, job: Job) -> Path:
        """Return the path of the file with the output of the job's process, and the reason of its failure."""
        return log_of(self.folder, job)

    # ------------------------------------------------------------------------------------------------ the loop
    def _stop(self) -> None:
        self.stopped = True

    def _remains(self) -> bool:
        """Start runs while there is room; return whether any is at work."""
        if self.stopped:
            self._stop_runs(self.runs)
        while not self.stopped and self.pool.room() and (run := self._next()):
            run.update()
            if run.complete:  # by another process
                self._ended(run, "complete")
                continue
            run.state, run.started, run.first_step = "working", time.monotonic(), run.step
            self.pool.start(run.job)
        return any(run.is_at_work or (run.state == "waiting" and not self.stopped) for run in self.runs)

    def _next(self) -> PlannedRun | None:
        """Return the next run to start; those that no other process works on come first."""
        waiting = [run for run in self.runs if run.state == "waiting" and run.retry_at <= time.monotonic()]
        return min(waiting, key=lambda run: run.retry_at, default=None)

    def _stop_runs(self, runs: Sequence[PlannedRun]) -> None:
        """Let the runs at work end, with checkpoints."""
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
                self.notices.hear(run.label(self.folder), details[1], run.folder)
            how, reason, trace = _failure(kind, details)
            if run.complete and kind != "failed":
                self._ended(run, "complete")
            elif how == HINDERED and kind != "failed" and (self.stopped or run.state == "stopping"):
                self._ended(run, "waiting")
            else:
                self._ended(run, "failed", how, reason, trace)

    def _started(self, run: PlannedRun, evaluations: list[tuple[int, float]], step: int) -> None:
        run.first_step = run.step = step
        with suppress(OSError):  # an earlier failure; only now no other process writes it
            os.truncate(self.log_of(run.job), 0)
        self.on_event(f"{run.name}  {f'resumes at step {step:,}' if step else 'starts'}")

    def _evaluated(self, run: PlannedRun, step: int, mean_return: float) -> None:
        """Receive an evaluation of a job that waits after each."""

    def _ended(self, run: PlannedRun, state: Any, how: str = "", reason: str = "", trace: str = "") -> None:
        """Record the end of a run; of a failed one, how, why and with which traceback."""
        if how == IN_USE:
            if not run.retry_at:
                self.on_event(f"{run.name}  is in use by another process; waiting for it")
            run.state, run.retry_at = "waiting", time.monotonic() + RETRY_SECONDS
            return
        run.state, run.reason = state, reason
        spent = clock(time.monotonic() - run.started) if run.started else ""  # "": another process made it
        if state == "complete":
            self.on_event("  ".join(part for part in (run.name, f"{run.step:,} steps", run.score, spent) if part))
        elif state == "failed":
            run.log = log = self.log_of(run.job)
            with suppress(OSError):  # a full disk ends this run, not the others
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(f"{reason}\n{trace}".strip() + "\n")
            self.on_event(f"{run.name}  failed: {reason}  See {near(log)}")

    # ------------------------------------------------------------------------------------------------ for a display
    def headline(self) -> str:
        """Return the first lines: how many runs, and where they are."""
        experiments = len({run.name.rpartition("-s")[0] for run in self.runs})
        count, plural = len(self.runs), "s" * (experiments > 1)
        return f"{count} run{'s' * (count > 1)} of {experiments} experiment{plural}\n{near(self.folder)}/"

    def status(self) -> list[str]:
        """Return how far it is, the most important first."""
        counts = Counter(run.state for run in self.runs)
        parts = [f"{counts['complete']}/{len(self.runs)} runs"]
        parts += [f"{counts['failed']} failed"] * bool(counts["failed"])
        parts.append(clock(time.monotonic() - self.started))
        return parts


def log_of(folder: Path, job: Job) -> Path:
    """Return the path of the log of a job in a sweep's folder."""
    return folder / LOGS / f"{job.name}.txt"


def _failure(kind: str, details: Sequence[Any]) -> tuple[str, str, str]:
    """Return how and why a run failed, and its traceback."""
    if kind == "ended" or (kind == "gone" and -details[0] in STOP_SIGNALS):
        return HINDERED, "It was stopped by a signal.", ""
    if kind == "gone":
        return FAILED, f"Its process ended with the code {details[0]}.", ""
    how, sentence, trace = details
    return how, escaped(sentence), trace
