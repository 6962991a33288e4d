"""The callback that feeds a tracker, each point once.

A point is sent once the run is past its step, with all that the step has: its line of metrics, its evaluation, which
may be made beside the run, and videos that were recorded since the last one. Before it is sent, its step is written
down in the run's folder, `tracking/<name>.json`, with the id of the tracked run. So a run that is killed and resumed,
and reaches that step again, does not send it twice; and what was logged while the run was not tracked is sent when it
is again. The price: what a killed process was just sending may be missing there. It is in the run's own logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.storage import disk, within
from duetto.storage.records import Csv, JsonLines
from duetto.trackers.base import Point, Tracker
from duetto.training.callbacks import Callback
from duetto.training.evaluation import Evaluation
from duetto.training.session import Session

FOLDER = "tracking"
_ID = re.compile(r"[\w.-]{1,128}")
_LARGEST = 10_000  # bytes of a record
_EVALUATED = ("mean_return", "std_return", "min_return", "max_return", "mean_length")
_SUCCESS = "success_rate"  # where the environment says so


class Record(TypedDict):
    """The record of a tracked run: its id, and the steps of the last point, video and best parameters sent."""

    id: str
    point: int
    video: int
    best: int


class Tracking(Callback):
    """The callback that feeds one tracker; see the module.

    Attributes:
        tracker: The tracker that is fed.
    """

    ends_last: ClassVar[bool] = True

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._left: dict[int, dict[str, float]] = {}  # numbers that were not sent yet, by step
        self._ended = self._failed = False
        self._evaluation: object = None

    def on_start(self, session: Session) -> None:
        """Begin, or go on in the same tracked run; then send what was logged meanwhile."""
        folder, config = session.folder, session.config.to_dict()
        self._path = folder / FOLDER / f"{self.tracker.name}.json"
        self._line, self._evaluation = session.log.last_line, session.last_evaluation
        known = read(self._path)
        try:
            identity, where = self.tracker.begin(folder.name, known and known["id"], config, folder)
        except DuettoError:
            raise
        except Exception as error:
            going_on = f" To begin another tracked run instead, remove {self._path}." if known else ""
            raise UsageError(f"{self._name} cannot begin: {_told(error)}{going_on}") from error
        session.when_closed(lambda: self._close(session))
        if not isinstance(identity, str) or not _ID.fullmatch(identity):
            raise UsageError(f"{self._name} gave its run the id {identity!r}, which is none.")
        if known and known["id"] != identity:
            session.notices.append(
                f"{self._name} has the tracked run {known['id']} no more, or never had a point of it: another one "
                "begins, and gets all that was logged."
            )
            known = None
        self._record = known or Record(id=identity, point=-1, video=-1, best=-1)
        self._taken(session, self._write)
        if where:
            session.notices.append(f"Tracked by {self.tracker.name}: {where}")
        self._left = logged(folder, self._record["point"])
        self._send(session)

    def on_step(self, session: Session) -> None:
        """Note what the step has; before the first one, what the last update of pre-training has. Send what is due."""
        if session.memory.pretraining_left:
            return
        line, evaluation = session.log.last_line, session.last_evaluation
        if line is not self._line:
            self._line = line
            self._left.setdefault(line["step"], {}).update(of_line(line))
        if evaluation is not None and evaluation is not self._evaluation:
            self._evaluation = evaluation
            self._left.setdefault(evaluation[0], {}).update(of_evaluation(evaluation[1]))
        self._send(session)

    def on_end(self, session: Session) -> None:
        """Send what is left, and the best parameters, if they are not those sent last."""
        self._ended = True
        session.log.write_own(session.step)  # what other callbacks have logged at the end
        if not session.memory.pretraining_left:  # else there will be more of step 0
            self._left = logged(session.folder, self._record["point"])  # at the end, two evaluations may come at once
            self._left.setdefault(session.step, {})  # for videos that came after the last one
            self._send(session)
        try:
            best = session.checkpoints.store.load_best()
        except CheckpointError:  # nothing was evaluated
            return
        if best.step == self._record["best"]:
            return
        if self._taken(session, self.tracker.best, best.path, best.step, best.info["mean_return"]):
            self._record["best"] = best.step
            self._taken(session, self._write)

    def _send(self, session: Session) -> None:
        """Send all that is left of past steps, oldest first, until something is refused."""
        now = session.step if session.evaluating is None else session.evaluating
        for step in sorted(self._left):
            if step >= now and not self._ended:  # there may be more of it
                return
            before = self._record.copy()
            if step > before["point"]:
                point = self._with_videos(session.folder, Point(step, self._left[step]))
                if (point.numbers or point.videos) and not self._taken(session, self._write_and_send, point):
                    self._record = before
                    with suppress(OSError):  # a record that is ahead would lose what was refused
                        self._write()
                    return
            del self._left[step]

    def _with_videos(self, folder: Path, point: Point) -> Point:
        videos = {int(path.stem[5:]): path for path in folder.glob("videos/step-*.mp4") if path.stem[5:].isdecimal()}
        new = sorted(step for step in videos if self._record["video"] < step <= point.step)
        self._record["video"] = max([self._record["video"], *new])
        return Point(point.step, point.numbers, [videos[step] for step in new])

    def _write_and_send(self, point: Point) -> None:
        self._record["point"] = point.step
        self._write()
        self.tracker.send(point)

    def _taken(self, session: Session, send: Callable[..., None], *arguments: Any) -> bool:
        """Send, and return whether it was taken; the first error in a row is a notice, and the run goes on."""
        try:
            send(*arguments)
        except Exception as error:
            if not self._failed:
                session.notices.append(
                    f"{self._name} does not take what is sent: {_told(error)} The run goes on. What was not sent is "
                    "sent as soon as it is taken, or when the run is resumed with the same tracker."
                )
            self._failed = True
            return False
        self._failed = False
        return True

    def _write(self) -> None:
        disk.make_folder(self._path.parent)
        disk.publish_file(self._path, json.dumps(self._record).encode())

    def _close(self, session: Session) -> None:
        self._taken(session, self.tracker.finish, not self._ended)

    @property
    def _name(self) -> str:
        return f"The tracker {self.tracker.name}"


def tracked(folder: Path) -> list[str]:
    """The names of the trackers that have tracked a run."""
    return sorted(path.stem for path in (folder / FOLDER).glob("*.json") if not path.name.startswith("."))


def read(path: Path) -> Record | None:
    """Read the record of a tracked run; None if there is none. Raises UsageError if it is damaged."""
    within.check_folders([path.parent])
    if not path.exists():
        return None
    try:
        found = json.loads(within.read_file(path, _LARGEST))
        steps = {name: found[name] for name in ("point", "video", "best")}
        if not _ID.fullmatch(found["id"]) or any(type(step) is not int for step in steps.values()):
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged. Remove it, and a new tracked run begins, with all points.") from error
    return Record(id=found["id"], **steps)


def logged(folder: Path, after: int) -> dict[int, dict[str, float]]:
    """The numbers that a run has logged after a step, from its files, by step."""
    steps: dict[int, dict[str, float]] = {}
    for line in JsonLines.scan(folder / "metrics.jsonl").rows:
        steps.setdefault(int(line["step"]), {}).update(of_line(line))
    for row in Csv.scan(folder / "evaluations.csv").rows:
        numbers = {f"evaluation/{name}": float(row[name]) for name in _EVALUATED}
        if rate := row.get(_SUCCESS):
            numbers[f"evaluation/{_SUCCESS}"] = float(rate)
        steps.setdefault(int(float(row["step"])), {}).update(numbers)
    return {step: numbers for step, numbers in steps.items() if step > after}


def of_line(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a line of metrics, without its step and without None."""
    return {name: float(value) for name, value in line.items() if name != "step" and value is not None}


def of_evaluation(result: Evaluation) -> dict[str, float]:
    """The numbers of an evaluation, as a row of `evaluations.csv` has them, by name."""
    numbers = (
        result.mean_return,
        result.std_return,
        float(result.returns.min()),
        float(result.returns.max()),
        float(result.lengths.mean()),
    )
    found = {f"evaluation/{name}": number for name, number in zip(_EVALUATED, numbers, strict=True)}
    return found if result.success_rate is None else found | {f"evaluation/{_SUCCESS}": result.success_rate}


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else 'no more is known'}."
