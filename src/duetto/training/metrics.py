"""The metrics of a run: lines of `metrics.jsonl` and points of TensorBoard.

Every `log_every` steps, and at the end, the log writes one line. The line contains means over the updates since the
last line, and means of the numbers that callbacks logged since then. Until a line is due, metrics stay on the device,
so that the loop does not wait for the device. Then a NaN or infinite metric raises NonFiniteError. Keys that start with
"time/" depend on the machine. Two runs with the same config have equal values for all other keys, except keys from
callbacks.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from duetto.environments import Episode
from duetto.errors import NonFiniteError, UsageError
from duetto.functional.state_schema import NUMBER, DictOf, ListOf
from duetto.learners.base import Metrics, on_host
from duetto.storage import safe_open
from duetto.storage.logs import JsonLines
from duetto.training.notices import LOGGER

_OWN = "/"  # prefix of custom names in `MetricLog._window`
_NAME = re.compile(r"[^\W_][\w .-]*(/\w[\w .-]*)*")
_TAKEN = ("train/", "learn/", "time/", "evaluation/")
ADVICE = "Start again with a lower learning rate, a gradient-norm limit (--max-grad-norm 1) or scaled rewards."
RECENT = 100  # the training return is the mean over at most this many of the last finished episodes


class MetricLog:
    """Collects metrics and recent episodes, and writes lines to `metrics.jsonl` and TensorBoard.

    Attributes:
        lines: The file `metrics.jsonl`.
        episodes: Number of finished training episodes.
        last: Steps and updates at the last line; zeros before the first line.
        last_line: The last line that this process wrote; {} before the first.
        listeners: Functions that get the step and the numbers of each line and each evaluation.
    """

    STATE: ClassVar[dict[str, Any]] = {
        "lines": int,
        "window": DictOf({"sum": NUMBER, "count": int}),
        "returns": ListOf(float),
        "lengths": ListOf(int),
        "successes": ListOf(float),
        "episodes": int,
        "last": ListOf(int),
        "published": int,
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        safe_open.check_folders([folder / "tensorboard"])
        self.lines: JsonLines = JsonLines(folder / "metrics.jsonl")
        self._board: Board | None = None
        self._pending: list[tuple[int, Metrics]] = []  # steps and metrics that are still on the device
        self._window: dict[str, tuple[float, int]] = {}  # sum and count of each name since the last line
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._lengths: deque[int] = deque(maxlen=RECENT)
        self._successes: deque[float] = deque(maxlen=RECENT)
        self.episodes: int = 0
        self.last: tuple[int, int] = (0, 0)
        self.last_line: dict[str, Any] = {}
        self._published = 0  # 1 + the last step in TensorBoard; 0 before the first
        self.listeners: list[Callable[[int, dict[str, float]], None]] = []

    @property
    def recent_return(self) -> float | None:
        """Mean training return of the recent episodes, with exploration; None before the first."""
        return float(np.mean(self._returns)) if self._returns else None

    def add(self, step: int, metrics: Metrics, numbers: Mapping[str, float] | None = None) -> None:
        """Add an update's metrics, which stay on the device until they are needed, and further `numbers` to log."""
        self._pending.append((step, metrics))
        for name, value in (numbers or {}).items():
            self._count(name, value)

    def scalar(self, name: str, value: float) -> None:
        """Log a custom number. The next line contains the mean of its values since the last line.

        Args:
            name: The number's name, as in "robot/torque". Duetto's own names are not allowed.
            value: A number; NaN and infinity are allowed.

        Raises:
            UsageError: The name is invalid or reserved, or the value is not a number.
        """
        if not (isinstance(name, str) and _NAME.fullmatch(name)) or name == "step" or name.startswith(_TAKEN):
            raise UsageError(
                f"{name!r} cannot be a scalar's name. Use letters, digits, '_', '-', '.' and blanks, a letter or digit "
                f"first, and '/' between groups, as in 'robot/torque'. Reserved are step and {', '.join(_TAKEN)}."
            )
        try:
            self._count(_OWN + name, float(value))
        except (TypeError, ValueError) as error:
            raise UsageError(f"The scalar {name!r} is {str(value)[:60]!r}; it must be one number.") from error

    def add_episodes(self, episodes: list[Episode]) -> None:
        """Add finished training episodes: count them, and store their returns, lengths and successes."""
        for episode in episodes:
            self.episodes += 1
            self._returns.append(episode.total_reward)
            self._lengths.append(episode.length)
            if episode.success is not None:
                self._successes.append(episode.success)

    def look(self) -> None:
        """Wait for the device, and add all pending metrics to the sums for the next line.

        Raises:
            NonFiniteError: A metric is NaN or infinite; the error names its step.
        """
        pending, self._pending = self._pending, []
        for step, metrics in pending:
            values = on_host(metrics.values).astype(np.float64)
            if not np.isfinite(values).all():
                name = metrics.names[int(np.flatnonzero(~np.isfinite(values))[0])]
                raise NonFiniteError(
                    f"{name} is not finite in an update at step {step}: learning has diverged. {ADVICE}"
                )
            for name, value in zip(metrics.names, values.tolist(), strict=True):
                self._count(name, value)

    def _count(self, name: str, value: float) -> None:
        total, count = self._window.get(name, (0.0, 0))
        self._window[name] = total + value, count + 1

    def write(self, step: int, extra: dict[str, float | int | None]) -> dict[str, Any]:
        """Write and return a line with the means since the last line, and the entries `extra`."""
        self.look()
        line: dict[str, Any] = {"step": step, "train/episodes": self.episodes}
        line["train/return"] = self.recent_return
        line["train/length"] = float(np.mean(self._lengths)) if self._lengths else None
        if self._successes:
            line["train/success_rate"] = float(np.mean(self._successes))
        line |= self._means(self._window)
        line |= extra
        self.lines.append(line)
        self.last, self.last_line = (step, line.get("learn/updates", 0)), line
        self.publish(step, line)
        self._window = {}
        return line

    def _means(self, window: dict[str, tuple[float, int]]) -> dict[str, float]:
        names = {name: name.removeprefix(_OWN) if name.startswith(_OWN) else f"learn/{name}" for name in window}
        return {names[name]: total / count for name, (total, count) in sorted(window.items())}

    def write_own(self, step: int) -> None:
        """Write a line with the custom numbers since the last line, if there are any."""
        if own := {name: self._window.pop(name) for name in list(self._window) if name.startswith(_OWN)}:
            line = self._means(own)
            self.lines.append({"step": step} | line)
            self.publish(step, line)

    def publish(self, step: int, values: Mapping[str, Any]) -> None:
        """Send numbers to TensorBoard and to the listeners."""
        numbers = numbers_of(values)
        if self._board is None:
            self._board = Board(self._folder / "tensorboard", step, self._published)
        self._published = step + 1
        for listener in [self._board.add, *self.listeners]:
            listener(step, numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums since the last line, the recent episodes and the number of lines of `metrics.jsonl`."""
        self.look()
        return {
            "lines": self.lines.synced_lines(),
            "window": {name: {"sum": total, "count": count} for name, (total, count) in self._window.items()},
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "successes": list(self._successes),
            "episodes": self.episodes,
            "last": list(self.last),
            "published": self._published,
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Restore the result of `state_dict`, and remove later lines. Returns messages about missing lines."""
        self._window = {name: (part["sum"], part["count"]) for name, part in state["window"].items() if part["count"]}
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self._successes.extend(state["successes"])
        self.episodes, self.last, self._published = state["episodes"], tuple(state["last"]), state["published"]
        return self.lines.cut_back(state["lines"])

    def close(self) -> None:
        """Close the files."""
        self.lines.close()
        if self._board is not None:
            self._board.close()


def numbers_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in a line of metrics, without its step."""
    return {name: float(value) for name, value in line.items() if name != "step" and value is not None}


class Board:
    """A file of TensorBoard events. If writing fails, Duetto warns once and stops writing events.

    Duetto does not use the writers of tensorboardX. If the disk is full, the thread of `SummaryWriter` ends silently
    and every later write hangs. `RecordWriter` is slow, because it waits for the disk after every record.
    """

    def __init__(self, folder: Path, step: int, purge: int) -> None:
        """Create a file that starts at `step`. From step `purge` on, TensorBoard hides the events of older files."""
        self._folder = folder
        self._tensorboard = _tensorboard()
        self._file: IO[bytes] | None = None
        # The name contains the step, so that a resume within the same second does not overwrite the file.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{step:012}"
        try:
            folder.mkdir(exist_ok=True)  # fails if the run's folder is gone
            self._file = (folder / name).open("wb")
        except FileNotFoundError:
            raise
        except OSError as error:
            self._end(error)
        self._write(0, file_version="brain.Event:2")
        log = self._tensorboard.proto.event_pb2.SessionLog
        self._write(purge, session_log=log(status=log.START))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write a scalar at this step for each name and number."""
        summary = self._tensorboard.proto.summary_pb2.Summary
        rows = [summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step, summary=summary(value=rows))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # closing writes, so it may fail again; a warning has been shown
                file.close()

    def _write(self, step: int, **content: Any) -> None:
        if self._file is None:
            return
        event = self._tensorboard.proto.event_pb2.Event(step=step, wall_time=time.time(), **content).SerializeToString()
        length, checksum = struct.pack("<Q", len(event)), self._tensorboard.record_writer.masked_crc32c
        record = length + struct.pack("<I", checksum(length)) + event + struct.pack("<I", checksum(event))
        try:
            self._file.write(record)
            self._file.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        self.close()
        LOGGER.warning(
            "%s cannot be written: %s. The run continues without TensorBoard; metrics.jsonl has the same numbers.",
            self._folder,
            error.strerror,
        )


def _tensorboard() -> Any:
    """Import tensorboardX at the first use, because this takes 0.3 s.

    tensorboardX imports PyTorch if it is installed, to draw models. That takes another 0.9 s and 200 MB, which runs on
    JAX do not need. So this hides PyTorch during the import.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tensorboardX.proto.event_pb2
        import tensorboardX.proto.summary_pb2
    finally:
        if hidden:
            del sys.modules["torch"]
    return tensorboardX
