"""The loop of a sweep.

while runs remain:
    start as many as the pool has room for; a run that another process works on is tried again later
    record how each ends: a failure is kept, with its traceback, and the others continue
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto.errors import escaped
from duetto.runs.pool import ProcessPool
from duetto.runs.worker import IN_USE, Message
from duetto.tools.sweep.plan import PlannedRun, State
from duetto.training.notices import Notices
from duetto.training.signals import interruptible

POLL_SECONDS = 0.2  # between two checks whether to stop
LOGS = "logs"  # the folder in the sweep's for the output of its processes
RETRY_SECONDS = 5.0  # until a run is tried again that another process works on


class Sweep:
    """A sweep at work.

    Attributes:
        runs: All runs.
        notices: Sentences for the user, in order.
        stopped: Whether it was asked to end before its last run.
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
        self.on_event: Callable[[PlannedRun, str], None] = lambda *_: None  # for a display
        self.on_poll: Callable[[], None] = lambda: None
        self._pool_stops = False

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

    def failed(self) -> list[PlannedRun]:
        """Return the runs that failed."""
        return [run for run in self.runs if run.state == "failed"]

    def log_of(self, run: PlannedRun) -> Path:
        """Return the path of the file with the output of the run's process, and the reason of its failure."""
        return log_of(self.folder, run.name)

    def _stop(self) -> None:
        self.stopped = True

    def _remains(self) -> bool:
        """Start runs while there is room; return whether any has not ended."""
        if self.stopped:
            if not self._pool_stops:
                self._pool_stops = True
                for run in self.runs:
                    if run.state == "working":
                        self.pool.stop(run.job)
            return any(run.state == "working" for run in self.runs)
        while self.pool.room() and (run := self._next()):
            self._start(run)
        return any(run.state in ("waiting", "working", "elsewhere") for run in self.runs)

    def _next(self) -> PlannedRun | None:
        """Return the next run to start; those that no other process works on come first."""
        waiting = [run for run in self.runs if run.state == "waiting"]
        again = [run for run in self.runs if run.state == "elsewhere" and run.retry_at <= time.monotonic()]
        return next(iter([*waiting, *again]), None)

    def _start(self, run: PlannedRun) -> None:
        run.update()
        if run.complete:  # by another process
            self._end(run, "complete")
            return
        run.state, run.started, run.first_step = "working", time.monotonic(), run.step
        self.pool.start(run.job)

    def _receive(self, run: PlannedRun, kind: str, *details: Any) -> None:
        if kind == "started":
            _, step = details
            run.first_step = run.step = step
            with suppress(OSError):  # an earlier failure; only now no other process writes it
                os.truncate(self.log_of(run), 0)
            self.on_event(run, f"resumes at step {step:,}" if step else "starts")
            return
        run.update()
        if kind == "ended":
            self.notices.hear(run.name, details[1], run.folder)
        if run.complete:
            self._end(run, "complete")
        elif kind == "ended" and self.stopped:
            run.state = "waiting"
        elif kind == "failed" and details[0] == IN_USE:
            if run.retry_at == 0.0:
                self.on_event(run, "is in use by another process; waiting for it")
            run.state, run.retry_at = "elsewhere", time.monotonic() + RETRY_SECONDS
        else:
            run.reason, trace = _failure(kind, details)
            path = self.log_of(run)
            with suppress(OSError):  # a full disk ends this run, not the others
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
                    log.write(f"{run.reason}\n{trace}".strip() + "\n")
            self._end(run, "failed")

    def _end(self, run: PlannedRun, state: State) -> None:
        run.state = state
        log = self.log_of(run)
        with suppress(OSError):  # another sweep may have deleted it
            if state == "complete" and not log.stat().st_size:
                log.unlink()
        self.on_event(run, state)


def log_of(folder: Path, run: str) -> Path:
    """Return the path of the log of a run in a sweep's folder."""
    return folder / LOGS / f"{run}.txt"


def _failure(kind: str, details: Message) -> tuple[str, str]:
    """Return why a run failed, and its traceback."""
    if kind == "gone":
        return f"Its process ended with the code {details[0]}.", ""
    if kind == "ended":
        return "It was stopped by a signal.", ""
    _, sentence, trace = details
    return escaped(sentence), trace
