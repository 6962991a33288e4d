"""The numbers that a run's folder holds, by step, read once; no framework is needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from duetto.errors import DuettoError, UsageError
from duetto.storage import marks
from duetto.storage.records import Csv, JsonLines, Scan

_FILES = {"evaluations.csv": Csv.scan, "metrics.jsonl": JsonLines.scan}


OURS = {"avg_return": "mean_return"}  # what a tidy table calls otherwise


@dataclass(frozen=True)
class Series:
    """One number of one run by step, finite values only."""

    steps: np.ndarray  # (T,)
    values: np.ndarray  # (T,)
    notice: str  # how many lines cannot be read, how many values are not finite, that a file was changed, if so


class Logs:
    """The logs of a run's folder: `evaluations.csv` and `metrics.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scans: dict[str, Scan | None] = {}

    def series(self, metric: str) -> Series:
        """One number by step, from the first file that has it; its name in tidy tables is accepted, too.

        Raises:
            UsageError: Neither has it.
            DuettoError: A file is damaged, and nothing of it can be read.
        """
        metric, names = OURS.get(metric, metric), set[str]()
        notices: list[str] = []
        for file in _FILES:
            if (found := self._scan(file)) is None:
                continue
            path = self.folder / file
            points, unreadable = _points(found, metric, path)
            said = [f"{unreadable} of the lines of {path} cannot be read and are left out."] * (unreadable > 0)
            if file in self._changed:
                said.append(f"{path} is not what it was at the checkpoint of step {self._changed[file]}.")
            notices += said
            finite = np.isfinite(points).all(1)
            if (not_finite := int((~finite).sum())) > 0:
                said.append(f"{not_finite} of the values of {metric!r} in {path} are not finite and are left out.")
            points = points[finite]
            if len(points):
                return Series(points[:, 0], points[:, 1], " ".join(said))
            names |= _names(found)
        if not names:
            raise UsageError(
                " ".join([f"{self.folder} has no evaluations and no metrics yet. Leave it out.", *notices])
            )
        what = f"finite number in {metric!r}" if metric in names else f"{metric!r}"
        raise UsageError(" ".join([f"{self.folder} has no {what}. It has: {', '.join(sorted(names))}.", *notices]))

    def names(self) -> list[str]:
        """The names of the numbers that it has, those of the evaluations first."""
        return self._all_names

    def _scan(self, file: str) -> Scan | None:
        """A file's rows, read once; None if there is no file."""
        if file not in self._scans:
            path = self.folder / file
            try:
                self._scans[file] = _FILES[file](path) if path.exists() else None
            except OSError as error:
                raise DuettoError(f"{path} cannot be read: {error.strerror}.") from error
        return self._scans[file]

    @cached_property
    def _all_names(self) -> list[str]:
        scans = [scan for file in _FILES if (scan := self._scan(file)) is not None]
        return list(dict.fromkeys(name for scan in scans for name in sorted(_names(scan))))

    @cached_property
    def _changed(self) -> dict[str, int]:
        return marks.changed(self.folder)


def _names(scan: Scan) -> set[str]:
    return {name for row in scan.rows for name in row} - {"step"}


def _points(found: Scan, metric: str, path: Path) -> tuple[np.ndarray, int]:
    """Steps and values (T, 2), and how many lines cannot be read."""
    points: list[tuple[float, float]] = []
    errors: list[Exception] = []
    for row in found.rows:
        if row.get(metric) in (None, ""):
            continue
        try:
            points.append((float(row["step"]), float(row[metric])))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            errors.append(error)
    if errors and not points:
        raise DuettoError(f"{path} has no numbers by step in {metric!r} ({errors[0]!r}).") from errors[0]
    return np.array(points).reshape(-1, 2), len(found.damaged) + found.half + len(errors)
