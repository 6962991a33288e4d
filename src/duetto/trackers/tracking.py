"""The callback that sends a run's numbers and videos to a tracker.

A point contains all data of one step: the line of metrics, the evaluation and new videos. Duetto sends the point once
the run is at a later step. The file `tracking/<name>.txt` in the run's folder contains the id of the tracked run, so
that a resumed run continues it. After a kill, the resumed run sends the points since the last checkpoint again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.storage import atomic_io, safe_open
from duetto.storage.logs import Csv, JsonLines
from duetto.trackers.base import Point, Tracker
from duetto.training.callbacks import Callback
from duetto.training.metrics import numbers_of
from duetto.training.trainer import Trainer

FOLDER = "tracking"
_ID = re.compile(r"[\w.+-]{1,128}")
_MAX_BYTES = 10_000  # size limit of the file with the id
_UNSENT = ("step", "episodes", "seconds")  # columns of `evaluations.csv` that are not sent


class Tracking(Callback):
    """The callback that sends a run to one tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._name = f"The tracker {tracker.name}"
        self._unsent: dict[int, dict[str, float]] = {}  # by step
        self._ended = self._failed = False

    def on_start(self, trainer: Trainer) -> None:
        """Start a tracked run and send all logged metrics, or continue the tracked run from the checkpoint."""
        folder = trainer.folder
        path = folder / FOLDER / f"{self.tracker.name}.txt"
        known = read(path)
        try:
            identity, where = self.tracker.start(folder.name, known, trainer.config.to_dict(), folder)
        except DuettoError:
            raise
        except Exception as error:
            hint = f" To start a new tracked run instead, remove {path}." if known else ""
            raise UsageError(f"{self._name} cannot start: {_sentence(error)}{hint}") from error
        trainer.when_closed(lambda: self._try(trainer, self.tracker.finish, not self._ended))
        if not isinstance(identity, str) or not _ID.fullmatch(identity):
            raise UsageError(f"{self._name} returned the id {identity!r}. Use letters, digits, '-', '.' and '_'.")
        if known != identity:
            if known:
                trainer.notices.append(f"{self._name}: tracked run {known} no longer exists; starting a new one.")
            self._try(trainer, write, path, identity)
        if where:
            trainer.notices.append(f"Tracked by {self.tracker.name}: {where}")
        self._video_sent = trainer.step - 1 if known == identity else -1  # step of the last video that was sent
        self._unsent = logged(folder, self._video_sent)
        trainer.log.listeners.append(self._add)
        self._send(trainer)

    def _add(self, step: int, numbers: dict[str, float]) -> None:
        self._unsent.setdefault(step, {}).update(numbers)

    def on_step(self, trainer: Trainer) -> None:
        """Send the points of past steps."""
        self._send(trainer)

    def on_end(self, trainer: Trainer) -> None:
        """Send the remaining points, and the best parameters."""
        self._ended = True
        trainer.log.write_own(trainer.step)  # sends numbers that other callbacks logged in `on_end`
        self._unsent.setdefault(trainer.step, {})  # a point for videos after the last line
        self._send(trainer)
        try:
            best = trainer.checkpoints.store.load_best()
        except CheckpointError:  # nothing was evaluated
            return
        self._try(trainer, self.tracker.best, best.path, best.step, best.info["mean_return"])

    def _send(self, trainer: Trainer) -> None:
        """Send the unsent numbers and videos of past steps to the tracker, oldest first.

        After an error, stop and keep the rest for the next call.
        """
        for step in sorted(self._unsent):
            if step >= trainer.step and not self._ended:  # the current step may get more numbers
                return
            videos = self._videos(trainer.folder, step)
            point = Point(step, self._unsent[step], list(videos.values()))
            if (point.numbers or point.videos) and not self._try(trainer, self.tracker.send, point):
                return
            self._video_sent = max([self._video_sent, *videos])
            del self._unsent[step]

    def _videos(self, folder: Path, until: int) -> dict[int, Path]:
        """Return the unsent videos up to the step `until`, sorted by step."""
        videos = {int(path.stem[5:]): path for path in folder.glob("videos/step-*.mp4") if path.stem[5:].isdecimal()}
        return {step: videos[step] for step in sorted(videos) if self._video_sent < step <= until}

    def _try(self, trainer: Trainer, send: Callable[..., None], *arguments: Any) -> bool:
        """Call `send`, and return whether it succeeded. The first of several errors in a row becomes a notice."""
        try:
            send(*arguments)
        except Exception as error:
            if not self._failed:
                again = ", and Duetto sends the data again later" if send == self.tracker.send else ""
                trainer.notices.append(f"{self._name} failed: {_sentence(error)} The run continues{again}.")
            self._failed = True
            return False
        self._failed = False
        return True


def tracked(folder: Path) -> list[str]:
    """Return the names of the trackers that a run has used."""
    return sorted(path.stem for path in (folder / FOLDER).glob("*.txt") if not path.name.startswith("."))


def read(path: Path) -> str | None:
    """Read the id of a tracked run; None if the file is missing. Raises UsageError if the file is damaged."""
    safe_open.check_folders([path.parent])
    if not path.exists():
        return None
    identity = safe_open.read_file(path, _MAX_BYTES).decode("utf-8", "replace")
    if not _ID.fullmatch(identity):
        raise UsageError(f"{path} is damaged. Remove it to start a new tracked run; Duetto then sends all points.")
    return identity


def write(path: Path, identity: str) -> None:
    """Write the id of a tracked run."""
    atomic_io.make_folder(path.parent)
    atomic_io.publish_file(path, identity.encode())


def logged(folder: Path, after: int) -> dict[int, dict[str, float]]:
    """Read the numbers that a run logged after the step `after`; return them by step."""
    steps: dict[int, dict[str, float]] = {}
    for line in JsonLines.scan(folder / "metrics.jsonl").rows:
        steps.setdefault(int(line["step"]), {}).update(numbers_of(line))
    for row in Csv.scan(folder / "evaluations.csv").rows:
        numbers = {f"evaluation/{name}": value for name, value in row.items() if name not in _UNSENT}
        steps.setdefault(int(row["step"]), {}).update(numbers)
    return {step: numbers for step, numbers in steps.items() if step > after}


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else 'no message'}."
