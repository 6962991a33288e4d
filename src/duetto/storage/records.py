"""Logs that only grow: lines that survive kill -9, and can be cut back to where a checkpoint was made.

A line counts when its newline is there. What a killed process left of its last line is dropped by the next writer,
and passed over by readers.
"""

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from duetto.errors import DuettoError, UsageError
from duetto.storage import within

LARGEST = 2**30  # bytes of a log that is read

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class _Log:
    """Whole lines, appended to a file one by one. Each is with the operating system when `_append` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = within.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise DuettoError(f"{path} cannot be opened for writing: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "ab+", buffering=0)
        self._cut_to_whole_lines(self._size())

    @property
    def position(self) -> int:
        """Length of the log in bytes. So much of it is on the disk, so a checkpoint may refer to it."""
        os.fsync(self._file.fileno())
        return self._size()

    def truncate(self, position: int) -> int:
        """Drop everything after `position`, and return how many bytes before it are missing.

        That is 0 unless someone shortened the file. The log goes on from what is there.
        """
        size = self._size()
        self._cut_to_whole_lines(min(position, size))
        return max(position - size, 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _append(self, line: bytes) -> None:
        size = self._size()
        try:
            if self._file.write(line) != len(line):
                raise OSError(None, "the disk is full")
        except OSError as error:
            self._file.truncate(size)
            raise DuettoError(
                f"{self.path} cannot be written: {error.strerror}. "
                f"Put that right, then go on with: duetto resume {self.path.parent}"
            ) from error

    def _cut_to_whole_lines(self, end: int) -> None:
        while end > 0:
            start = max(end - 4096, 0)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            end = start + newline + 1
            if newline >= 0:
                break
        if end != self._size():
            self._file.truncate(end)


class JsonLines(_Log):
    """One JSON object per line.

    Floats come back exactly. NaN and the infinities are written as "nan", "inf" and "-inf", and those three strings are
    read as floats, so they are refused as text.
    """

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line. NumPy scalars become Python numbers.

        Raises TypeError or ValueError for what could not be read back.
        """
        plain = _plain(record, "record")
        self._append(json.dumps(plain, allow_nan=False, separators=(",", ":")).encode() + b"\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Return the records. Raises DuettoError with the line's number if one is damaged."""
        records = []
        for number, line in enumerate(_whole_lines(path), 1):
            try:
                records.append({key: _restored(value) for key, value in json.loads(line).items()})
            except (ValueError, AttributeError):
                raise DuettoError(f"Line {number} of {path} is damaged. Remove that line to read the others.") from None
        return records


class Csv(_Log):
    """A table with a header. Floats are written so that `float` gives them back exactly, None as an empty cell."""

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        super().__init__(path)
        self.fields = tuple(fields)
        self._file.seek(0)
        header = self._file.readline()
        if header and header != _csv_line(self.fields):
            self.close()
            raise UsageError(
                f"{path} has the columns {header.decode(errors='replace').strip()}, not {','.join(self.fields)}. "
                "Move it away to start a new table."
            )
        self._write_header()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row. Raises ValueError unless it has exactly the table's fields, without line breaks."""
        if row.keys() != set(self.fields):
            raise ValueError(f"the row has {sorted(row)}, the table {sorted(self.fields)}")
        self._append(_csv_line([row[field] for field in self.fields]))

    def truncate(self, position: int) -> int:
        """Drop the rows after `position`; see JsonLines. The header stays."""
        missing = super().truncate(position)
        self._write_header()
        return missing

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """Return the rows. Raises DuettoError if they are no table."""
        try:
            return list(csv.DictReader([line.decode() for line in _whole_lines(path)]))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DuettoError(f"{path} is damaged: {error}. Take out that line to read the others.") from error

    def _write_header(self) -> None:
        if self._size() == 0:
            self._append(_csv_line(self.fields))


def _whole_lines(path: Path) -> list[bytes]:
    return within.read_file(path, LARGEST).split(b"\n")[:-1]


def _csv_line(values: Sequence[Any]) -> bytes:
    texts = ["" if value is None else str(_unboxed(value)) for value in values]
    if any("\n" in text or "\r" in text for text in texts):
        raise ValueError(f"a line break in {texts}")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(texts)
    return line.getvalue().encode()


def _plain(value: Any, path: str) -> Any:
    value = _unboxed(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        if value in _NOT_FINITE:
            raise ValueError(f"{path}: the text {value!r} would be read as a float")
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(item, f"{path}[{key!r}]") for key, item in value.items()}
    raise TypeError(f"{path}: {type(value).__name__} cannot be logged")


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{path}: the key {key!r} is not text")
    return key


def _unboxed(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
