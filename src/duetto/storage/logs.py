"""Logs to which lines are appended. They survive kill -9, and a resume removes the lines after its checkpoint.

A line is complete when it ends in a newline. Readers skip an incomplete last line, which a killed process left, and the
next writer deletes it. A checkpoint records the number of lines; a resume deletes later lines.
"""

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duetto.errors import DuettoError, to_resume
from duetto.storage import safe_open

LARGEST = 2**30  # max bytes of a log that can be read

MAX_STEP = 2**53  # the largest integer in checkpoints
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Scan(NamedTuple):
    """The rows of a log that can be read, and the lines that cannot."""

    rows: list[dict[str, Any]]
    damaged: list[int]  # the numbers, from 1, of complete lines that cannot be read


class _Log(ABC):
    """A file of lines. `_append` returns once the operating system has the line."""

    def __init__(self, path: Path, header: bytes = b"") -> None:
        self.path: Path = path
        self._header = header
        try:
            descriptor = safe_open.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise DuettoError(f"{path} cannot be opened for writing: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        try:
            self.cut_back()
        except BaseException:
            self.close()
            raise

    def synced_lines(self) -> int:
        """Sync the log to the disk and return the number of its lines, for a checkpoint."""
        os.fsync(self._file.fileno())
        return self._lines

    def cut_back(self, lines: int | None = None) -> list[str]:
        """Keep only the first `lines` lines, at least the header. If the log has fewer, return a warning in a list.

        None keeps all complete lines.
        """
        kept = safe_open.read_file(self.path, LARGEST).split(b"\n")[:-1][:lines]
        self._file.truncate(sum(len(line) + 1 for line in kept))
        self._lines = len(kept)
        if not kept and self._header:
            self._append(self._header)
        lost = (lines or 0) - len(kept)
        return [f"{self.path} has lost {lost} lines since the checkpoint."] if lost > 0 else []

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(None, "the disk is full")
        except OSError as error:
            with suppress(OSError):  # the disk may be gone; readers skip an incomplete line
                self._file.truncate(size)
            raise DuettoError(
                f"{self.path} cannot be written: {error.strerror}. Fix that, then resume: {to_resume(self.path.parent)}"
            ) from error
        self._lines += 1

    @classmethod
    def read(cls, path: Path) -> list[dict[str, Any]]:
        """Return the rows. Raises DuettoError with the number of the first damaged line."""
        scan = cls.scan(path)
        if scan.damaged:
            raise DuettoError(f"Line {scan.damaged[0]} of {path} is damaged. Remove that line to read the others.")
        return scan.rows

    @classmethod
    def scan(cls, path: Path) -> Scan:
        """Return the rows that can be read, and the lines that cannot. Raises DuettoError without a readable file."""
        try:
            lines = safe_open.read_file(path, LARGEST).split(b"\n")[:-1]
        except OSError as error:
            raise DuettoError(f"{path} cannot be read: {error.strerror}.") from error
        found = Scan([], [])
        for number, line in enumerate(lines, 1):
            try:
                row = cls._parse(line, lines[0])
                if row is not None and not 0 <= row["step"] <= MAX_STEP:
                    raise ValueError
                found.rows.extend([] if row is None else [row])
            except (ValueError, OverflowError, TypeError, AttributeError, LookupError, RecursionError):
                found.damaged.append(number)
        return found

    @staticmethod
    @abstractmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any] | None:
        """Return the row of a line, or None for a header. `first` is the log's first line."""


class JsonLines(_Log):
    """A log with one JSON object of names and numbers per line.

    Floats are read back exactly; NaN and the infinities are written as "nan", "inf" and "-inf".
    """

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line. NumPy scalars become Python numbers."""
        plain = {name: _plain(value) for name, value in record.items()}
        self._append(json.dumps(plain, allow_nan=False, separators=(",", ":")).encode() + b"\n")

    @staticmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any]:
        values = json.loads(line).items()
        row = {name: _NOT_FINITE[value] if isinstance(value, str) else value for name, value in values}
        for value in row.values():
            if value is not None:
                float(value)  # raises an error unless it is a number
        return row


class Csv(_Log):
    """A CSV table of numbers with a header. Floats are read back exactly; None is an empty cell, which is not read."""

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        self.fields: tuple[str, ...] = tuple(fields)
        super().__init__(path, _csv_line(fields))

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row."""
        self._append(_csv_line([row[field] for field in self.fields]))

    @staticmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any] | None:
        if line == first:
            return None
        names, cells = (part.decode().split(",") for part in (first, line))
        return {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}


def _csv_line(values: Sequence[Any]) -> bytes:
    return (",".join("" if value is None else str(_plain(value)) for value in values) + "\n").encode()


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
