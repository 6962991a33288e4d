"""The metrics in a run's folder by step, each file read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from duetto.errors import DuettoError, UsageError
from duetto.storage.logs import Csv, JsonLines, Scan

_FILES = {"evaluations.csv": Csv.scan, "metrics.jsonl": JsonLines.scan}


@dataclass(frozen=True)
class Series:
    """One metric of one run by step, finite values only."""

    steps: np.ndarray  # (T,)
    values: np.ndarray  # (T,)
    notice: str  # the number of lines that cannot be read and of values that are not finite; "" if none


class Logs:
    """The logs in a run's folder: `evaluations.csv` and `metrics.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scans: dict[str, Scan | None] = {}

    def series(self, metric: str) -> Series:
        """Return a metric by step, from the first file that has it; without evaluations, of "mean_return" training's.

        Raises:
            UsageError: Neither has it.
            DuettoError: A file is damaged, and nothing of it can be read.
        """
        names = set[str]()
        notices: list[str] = []
        for file in _FILES:
            if (scan := self._scan(file)) is None:
                continue
            path = self.folder / file
            points, unreadable = _points(scan, metric, path)
            about = [f"{unreadable} of the lines of {path} cannot be read and are left out."] * (unreadable > 0)
            notices += about
            finite = np.isfinite(points).all(1)
            if (not_finite := int((~finite).sum())) > 0:
                about.append(f"{not_finite} of the values of {metric!r} in {path} are not finite and are left out.")
            points = points[finite]
            if len(points):
                return Series(points[:, 0], points[:, 1], " ".join(about))
            names |= _names(scan)
        if not names:
            raise UsageError(
                " ".join([f"{self.folder} has no evaluations and no metrics yet. Leave it out.", *notices])
            )
        if metric == "mean_return" and "train/return" in names:
            training = self.series("train/return")
            return replace(training, notice=f"{self.folder} has no evaluations: its returns are those of training.")
        what = f"finite number in {metric!r}" if metric in names else f"{metric!r}"
        raise UsageError(" ".join([f"{self.folder} has no {what}. It has: {', '.join(sorted(names))}.", *notices]))

    def names(self) -> list[str]:
        """Return the names of the metrics, those of the evaluations first."""
        scans = [scan for file in _FILES if (scan := self._scan(file)) is not None]
        return list(dict.fromkeys(name for scan in scans for name in sorted(_names(scan))))

    def _scan(self, file: str) -> Scan | None:
        """Return a file's rows, read once; None if there is no file."""
        if file not in self._scans:
            path = self.folder / file
            try:
                self._scans[file] = _FILES[file](path) if path.exists() else None
            except OSError as error:
                raise DuettoError(f"{path} cannot be read: {error.strerror}.") from error
        return self._scans[file]


def _names(scan: Scan) -> set[str]:
    return {name for row in scan.rows for name in row} - {"step"}


def _points(scan: Scan, metric: str, path: Path) -> tuple[np.ndarray, int]:
    """Return steps and values (T, 2), and the number of lines that cannot be read."""
    points: list[tuple[float, float]] = []
    errors: list[Exception] = []
    for row in scan.rows:
        if row.get(metric) in (None, ""):
            continue
        try:
            points.append((float(row["step"]), float(row[metric])))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            errors.append(error)
    if errors and not points:
        raise DuettoError(f"{path} has no numbers by step in {metric!r} ({errors[0]!r}).") from errors[0]
    return np.array(points).reshape(-1, 2), len(scan.damaged) + len(errors)
