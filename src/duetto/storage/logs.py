"""Logs that only grow: lines that survive kill -9, and can be cut back to where a checkpoint was made.

A line counts once it has its newline. Half a line of a killed process is skipped by readers, and dropped by the next
writer.

A checkpoint records a `Mark`, the log's length and a checksum. A resume cuts the log back to it. If lines before it
were changed, the log continues with those that can be read.
"""

import csv
import io
import json
import math
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np

from duetto.errors import DuettoError, to_resume
from duetto.storage import safe_open

LARGEST = 2**30  # bytes of a log that is read

_UNREADABLE = (ValueError, OverflowError, TypeError, AttributeError, RecursionError, csv.Error)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Mark(TypedDict):
    """A log's end: length in bytes, and the CRC-32 of its content."""

    length: int
    crc: int


MARK = {"length": int, "crc": int}  # its schema


class Scan(NamedTuple):
    """The rows of a log that can be read, and the lines that cannot."""

    rows: list[dict[str, Any]]
    damaged: list[int]  # the numbers of whole lines that cannot be read, from 1
    half: bool  # whether a line without an end follows


class _Log(ABC):
    """A file of whole lines, appended one by one. `_append` returns once the operating system has the line."""

    _header = b""  # the first line of every log of its kind

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = safe_open.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise DuettoError(f"{path} cannot be opened for writing: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "ab+", buffering=0)
        self._is_whole = False  # whether its last line is known to have its end
        if (size := os.fstat(descriptor).st_size) > LARGEST:  # the file is read whole
            self.close()
            raise DuettoError(f"{path} has {size:,} bytes, more than a log may have. Move it away to start a new one.")

    @property
    def mark(self) -> Mark:
        """The mark of the log's end, for a checkpoint to refer to; the log is synced to the disk until there."""
        self._drop_half_line()
        os.fsync(self._file.fileno())
        return _mark_of(self._read())

    def return_to(self, mark: Mark, step: int) -> str:
        """Drop everything after the mark, which the checkpoint of `step` has.

        If the lines before it were changed, keep the readable lines until `step`, and return a sentence on that.
        """
        content, notice = self._read(), ""
        lines = content[: mark["length"]]
        if _mark_of(lines) != mark:
            readable = [line + b"\n" for line in content.split(b"\n")[:-1] if self._is_until(line, step)]
            lines = self._header + b"".join(readable)
            notice = (
                f"{self.path} was changed since the checkpoint of step {step}; it continues with its {len(readable)} "
                "readable lines until then."
            )
        self._is_whole = True
        if content.startswith(lines):
            self._file.truncate(len(lines))
        else:
            self._file.truncate(0)
            self._append(lines)
        self._write_header()
        return notice

    def clear(self) -> None:
        """Drop everything but the header."""
        self._file.truncate(0)
        self._write_header()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        self._drop_half_line()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(None, "the disk is full")
        except OSError as error:
            with suppress(OSError):  # the disk may be gone; half a line is skipped
                self._file.truncate(size)
            raise DuettoError(
                f"{self.path} cannot be written: {error.strerror}. Fix that, then resume: {to_resume(self.path.parent)}"
            ) from error

    @classmethod
    def read(cls, path: Path) -> list[dict[str, Any]]:
        """Return the rows. Raises DuettoError with the line's number if one is damaged."""
        scan = cls.scan(path)
        if scan.damaged:
            raise DuettoError(f"Line {scan.damaged[0]} of {path} is damaged. Remove that line to read the others.")
        return scan.rows

    @classmethod
    def scan(cls, path: Path) -> Scan:
        """Return the rows that can be read, and the lines that cannot."""
        *lines, half = safe_open.read_file(path, LARGEST).split(b"\n")
        rows: list[dict[str, Any]] = []
        damaged: list[int] = []
        for number, line in enumerate(lines, 1):
            try:
                row = cls._parse(line, lines[0])
                if row is not None and not math.isfinite(float(row.get("step", 0))):
                    raise ValueError
                rows += [] if row is None else [row]
            except _UNREADABLE:
                damaged.append(number)
        return Scan(rows, damaged, bool(half))

    @staticmethod
    @abstractmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any] | None:
        """Return the row of a line of a log whose first line is `first`, or None for a header."""

    def _is_until(self, line: bytes, last: int) -> bool:
        """Return whether a line can be read and is of a step up to `last`."""
        try:
            row = self._parse(line, self._header.rstrip())
            return row is not None and float(row["step"]) <= last
        except (*_UNREADABLE, KeyError):
            return False

    def _write_header(self) -> None:
        if self._header and os.fstat(self._file.fileno()).st_size == 0:
            self._append(self._header)

    def _read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def _drop_half_line(self) -> None:
        if not self._is_whole:
            self._file.truncate(self._read().rfind(b"\n") + 1)
            self._is_whole = True
            self._write_header()


class JsonLines(_Log):
    """A log with one JSON object of names and numbers per line.

    Floats come back exactly; NaN and the infinities are written as "nan", "inf" and "-inf".
    """

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line. NumPy scalars become Python numbers."""
        plain = {name: _plain(value) for name, value in record.items()}
        self._append(json.dumps(plain, allow_nan=False, separators=(",", ":")).encode() + b"\n")

    @staticmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any]:
        return {
            name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value
            for name, value in json.loads(line).items()
        }


class Csv(_Log):
    """A log that is a CSV table with a header. Floats come back exactly; None is an empty cell."""

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        super().__init__(path)
        self.fields: tuple[str, ...] = tuple(fields)
        self._header = _csv_line(self.fields)
        try:
            self._drop_half_line()  # writes the header
        except BaseException:
            self.close()
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row."""
        self._append(_csv_line([row[field] for field in self.fields]))

    @staticmethod
    def _parse(line: bytes, first: bytes) -> dict[str, Any] | None:
        fields = _cells(first)
        return None if line == first else dict(zip(fields, _cells(line), strict=True))


def _mark_of(data: bytes) -> Mark:
    return {"length": len(data), "crc": zlib.crc32(data)}


def _cells(line: bytes) -> list[str]:
    (cells,) = csv.reader([line.decode()], strict=True)
    return cells


def _csv_line(values: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(["" if value is None else _plain(value) for value in values])
    return line.getvalue().encode()


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
