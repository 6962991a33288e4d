"""A sweep at work.

while runs remain:
    hand out as many as the crew has room for; a run that another process works on is tried again later
    note how each ends: a failure is kept, with its traceback, and the others go on
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from duetto.errors import escaped
from duetto.runs.job import IN_USE
from duetto.sweeping import progress
from duetto.sweeping.crews import LOGS, Crew, Message, log_of
from duetto.sweeping.plan import Planned
from duetto.training.interruption import interruptible
from duetto.training.notices import Notices

LOOK = 0.2  # seconds between two looks at whether it shall stop
AGAIN = 5.0  # seconds until a run is tried again that another process is at
State = Literal["waiting", "working", "elsewhere", "complete", "failed"]


@dataclass
class Entry:
    """One run of a sweep at work, and how far it is."""

    planned: Planned
    state: State = "waiting"
    step: int = 0
    mean_return: float | None = None
    reason: str = ""  # of a failure
    began: float = 0.0  # when it was handed out, and at which step
    first: int = 0
    due: float = 0.0  # when it is tried again

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.planned.job.name

    @property
    def steps(self) -> int:
        """The steps that the run makes in all."""
        return self.planned.config.run.steps

    def look(self) -> None:
        """Read how far the run is from its folder."""
        step, self.mean_return = progress.read(self.planned.folder)
        self.step = max(step, self.planned.made())


class Sweep:
    """A sweep at work: the loop that hands out its runs.

    Attributes:
        entries: All runs.
        notices: Sentences for the user, in order.
        stopped: Whether it ended, or is about to end, before its last run because it was asked to.
    """

    folder: Path
    crew: Crew

    def __init__(self, folder: Path, runs: Sequence[Planned], crew: Crew) -> None:
        self.folder, self.crew = folder, crew
        self.entries: list[Entry] = [Entry(run) for run in runs]
        self.notices: Notices = Notices()
        self.stopped: bool = False
        self.began: float = time.monotonic()
        self.on_event: Callable[[Entry, str], None] = lambda *_: None  # whoever shows the sweep
        self.on_look: Callable[[], None] = lambda: None
        self._asked = False

    def work(self) -> None:
        """Train to the end of the last run, or until Ctrl-C."""
        for entry in self.entries:
            entry.look()
            if entry.planned.complete:
                entry.state = "complete"
        with interruptible(self._stop):
            try:
                while self._goes_on():
                    for job, message in self.crew.wait(LOOK):
                        self._hear(next(entry for entry in self.entries if entry.planned.job is job), *message)
                    self.on_look()
            except BaseException:
                self.crew.kill()
                raise
        self.crew.close()

    def failed(self) -> list[Entry]:
        """The runs that failed."""
        return [entry for entry in self.entries if entry.state == "failed"]

    def log_of(self, entry: Entry) -> Path:
        """The path of the file with what the run's process printed, and why it failed."""
        return log_of(self.folder / LOGS, entry.planned.job)

    def _stop(self) -> None:
        self.stopped = True

    def _goes_on(self) -> bool:
        """Hand out what there is room for; return whether anything is still to come."""
        working = [entry for entry in self.entries if entry.state == "working"]
        if self.stopped:
            if not self._asked:
                self._asked = True
                self.crew.stop()
            return bool(working)
        while self.crew.room() and (entry := self._next()):
            self._begin(entry)
        return any(entry.state in ("waiting", "working", "elsewhere") for entry in self.entries)

    def _next(self) -> Entry | None:
        """The next run to hand out, or None; runs that no other process works on come first."""
        waiting = [entry for entry in self.entries if entry.state == "waiting"]
        again = [entry for entry in self.entries if entry.state == "elsewhere" and entry.due <= time.monotonic()]
        return next(iter([*waiting, *again]), None)

    def _begin(self, entry: Entry) -> None:
        entry.look()
        if entry.planned.complete:  # by another process
            self._end(entry, "complete")
            return
        entry.began, entry.first = time.monotonic(), entry.step
        entry.state = "working"
        self.crew.begin(entry.planned.job)

    # ------------------------------------------------------------------------------------------------ what is heard
    def _hear(self, entry: Entry, kind: str, *told: Any) -> None:
        if kind == "started":
            _, step = told
            entry.first = entry.step = step
            with suppress(OSError):  # of an earlier failure; only now is nobody else at it
                os.truncate(self.log_of(entry), 0)
            self.on_event(entry, f"goes on at step {step:,}" if step else "begins")
            return
        entry.look()
        if kind == "ended":
            self.notices.hear(entry.name, told[1], entry.planned.folder)
        if entry.planned.complete:
            self._end(entry, "complete")
        elif kind == "ended" and self.stopped:
            entry.state = "waiting"
        elif kind == "failed" and told[0] == IN_USE:
            if entry.due == 0.0:
                self.on_event(entry, "is at work in another process; waiting for that")
            entry.state, entry.due = "elsewhere", time.monotonic() + AGAIN
        else:
            entry.reason, trace = _failure(kind, told)
            self._keep(entry, trace)
            self._end(entry, "failed")

    def _end(self, entry: Entry, state: State) -> None:
        entry.state = state
        log = self.log_of(entry)
        with suppress(OSError):  # another sweep may have ended it, too
            if state == "complete" and not log.stat().st_size:
                log.unlink()  # nothing was printed
        self.on_event(entry, state)

    def _keep(self, entry: Entry, trace: str) -> None:
        """Append why the run failed to what its process printed."""
        path = self.log_of(entry)
        with suppress(OSError):  # a disk that is full ends this run, not the others
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"{entry.reason}\n{trace}".strip() + "\n")


def _failure(kind: str, told: Message) -> tuple[str, str]:
    """Why a run failed, and its traceback."""
    if kind == "gone":
        return f"Its process ended with the code {told[0]}.", ""
    if kind == "ended":
        return "It was stopped from outside.", ""
    _, sentence, trace = told
    return escaped(sentence), trace
