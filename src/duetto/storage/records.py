"""Logs that only grow: lines that survive kill -9, and can be cut back to where a checkpoint was made.

A line counts when its newline is there. What a killed process left of its last line is dropped by the next writer,
and passed over by readers.

The log's end at a checkpoint is recorded as a `Mark`, with a checksum of all that comes before it: a log that was
cut, replaced or changed since then is noticed.
"""

import csv
import hashlib
import io
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np

from duetto.errors import DuettoError, UsageError, to_resume
from duetto.storage import within

LARGEST = 2**30  # bytes of a log that is read

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Mark(TypedDict):
    """A log's end, and the proof of what it held: its length in bytes, and their SHA-256."""

    length: int
    sha256: str


class Scan(NamedTuple):
    """The rows of a log that can be read, and the lines that cannot."""

    rows: list[dict[str, Any]]
    damaged: list[int]  # the numbers of whole lines that cannot be read, from 1
    half: bool  # whether a line without an end follows


class _Log(ABC):
    """A file of whole lines, appended one by one. Each is with the operating system when `_append` returns.

    Attributes:
        found: Length in bytes of the file when it was opened; 0 where there was none.
    """

    _header = b""  # the first line of every log of its kind

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = within.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise DuettoError(f"{path} cannot be opened for writing: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "ab+", buffering=0)
        self.found: int = self._size()
        if self.found > LARGEST:  # a file may claim any length, and this one is read whole
            self.close()
            raise DuettoError(
                f"{path} has {self.found:,} bytes, more than the {LARGEST:,} that a log may have. Move it away to "
                "start a new one."
            )
        self._tail = self._cut_to_whole_lines(self.found)  # dropped when it was opened; see `as_found`
        self._digest = self._digest_to(self._size())

    @property
    def position(self) -> int:
        """Length of the log in bytes, all of which is synced to the disk, so that a checkpoint may refer to it."""
        os.fsync(self._file.fileno())
        return self._size()

    @property
    def mark(self) -> Mark:
        """The mark of the log's end, for a checkpoint to refer to; see `position`."""
        return {"length": self.position, "sha256": self._digest.hexdigest()}

    def return_to(self, mark: Mark | int) -> bool:
        """Drop everything after a mark. False, and nothing is changed, if what comes before it is not what was there.

        Checkpoints of earlier versions have a length alone, with which only missing bytes are noticed.
        """
        length, proof = (mark, None) if isinstance(mark, int) else (mark["length"], mark["sha256"])
        digest = self._digest_to(length)
        if length > self._size() or proof not in (None, digest.hexdigest()):
            return False
        self._cut_to_whole_lines(length)
        self._digest = digest
        self._begin()
        return True

    def as_found(self) -> bytes:
        """The bytes that were in the file when it was opened. Nothing may have been appended since."""
        self._file.seek(0)
        return self._file.read(self.found - len(self._tail)) + self._tail

    def keep_readable(self, last: int) -> int:
        """Drop every line that cannot be read or is of a step beyond `last`; returns how many are left."""
        self._file.seek(0)
        lines = [line for line in self._file.read().split(b"\n")[:-1] if self._is_until(line, last)]
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self._begin()
        for line in lines:
            self._append(line + b"\n")
        return len(lines)

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
            with suppress(OSError):  # the disk may be gone as a whole; half a line is passed over
                self._file.truncate(size)
            raise DuettoError(
                f"{self.path} cannot be written: {error.strerror}. "
                f"Put that right, then go on with: {to_resume(self.path.parent)}"
            ) from error
        self._digest.update(line)

    @staticmethod
    @abstractmethod
    def scan(path: Path) -> Scan:
        """Read a log, passing over what is damaged."""

    @abstractmethod
    def _is_until(self, line: bytes, last: int) -> bool:
        """Whether a line can be read and is of a step up to `last`."""

    def _begin(self) -> None:
        if self._header and self._size() == 0:
            self._append(self._header)

    def _digest_to(self, end: int) -> Any:
        self._file.seek(0)
        digest = hashlib.sha256()
        while (rest := end - self._file.tell()) > 0 and (data := self._file.read(min(rest, 1 << 20))):
            digest.update(data)
        return digest

    def _cut_to_whole_lines(self, end: int) -> bytes:
        """Drop the half line that `end` is in, and what follows it; returns what was dropped."""
        while end > 0:
            start = max(end - 4096, 0)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            end = start + newline + 1
            if newline >= 0:
                break
        self._file.seek(end)
        dropped = self._file.read()
        if dropped:
            self._file.truncate(end)
        return dropped


class JsonLines(_Log):
    """A log with one JSON object per line.

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
        return _all_rows(JsonLines.scan(path), path)

    @staticmethod
    def scan(path: Path) -> Scan:
        """Return the records that can be read, and which lines cannot."""
        lines, half = _lines(path)
        return _scanned(lines, _record, half)

    def _is_until(self, line: bytes, last: int) -> bool:
        try:
            return _record(line)["step"] <= last
        except (*_UNREADABLE, KeyError):
            return False


class Csv(_Log):
    """A log that is a CSV table with a header. Floats are written so that `float` gives them back exactly, None as an
    empty cell.
    """

    fields: tuple[str, ...]

    def __init__(self, path: Path, fields: Sequence[str], added: Sequence[str] = ()) -> None:
        """`added` are more fields, after the others, which a table that is there already may lack."""
        super().__init__(path)
        self._added = tuple(added)
        self._file.seek(0)
        header = self._file.readline()
        self.fields = tuple(fields) if header == _csv_line(fields) else (*fields, *added)
        self._header = _csv_line(self.fields)
        if header and header != self._header:
            self.close()
            raise UsageError(
                f"{path} has the columns {header.decode(errors='replace').strip()}, not {','.join(self.fields)}. "
                "Move it away to start a new table."
            )
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; added fields that the table lacks are left out.

        Raises ValueError unless it has exactly the table's fields, without line breaks.
        """
        if row.keys() != {*self.fields, *self._added}:
            raise ValueError(f"the row has {sorted(row)}, the table {sorted(self.fields)}")
        self._append(_csv_line([row[field] for field in self.fields]))

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """Return the rows. Raises DuettoError with the line's number if one is damaged."""
        return _all_rows(Csv.scan(path), path)

    @staticmethod
    def scan(path: Path) -> Scan:
        """Return the rows that can be read, and which lines cannot; without a header none can."""
        lines, half = _lines(path)
        try:
            fields = _cells(lines[0]) if lines else []
        except _UNREADABLE:
            return Scan([], list(range(1, len(lines) + 1)), half)
        return _scanned(lines[1:], lambda line: _row(fields, line), half, first=2)

    def _is_until(self, line: bytes, last: int) -> bool:
        try:
            return float(_row(self.fields, line)["step"]) <= last
        except (*_UNREADABLE, KeyError):  # the header, too
            return False


_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError, csv.Error)


def holds(path: Path, mark: Mark | int) -> bool:
    """Whether a log begins with what it held when `mark` was made. See `_Log.return_to`."""
    length, proof = (mark, None) if isinstance(mark, int) else (mark["length"], mark["sha256"])
    data = within.read_file(path, LARGEST)[:length] if path.exists() else b""
    return len(data) == length and proof in (None, hashlib.sha256(data).hexdigest())


def _lines(path: Path) -> tuple[list[bytes], bool]:
    """The whole lines of a file, and whether a half one follows."""
    *lines, rest = within.read_file(path, LARGEST).split(b"\n")
    return lines, bool(rest)


def _scanned(lines: list[bytes], read: Callable[[bytes], dict[str, Any]], half: bool, first: int = 1) -> Scan:
    rows: list[dict[str, Any]] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, first):
        try:
            rows.append(read(line))
        except _UNREADABLE:
            damaged.append(number)
    return Scan(rows, damaged, half)


def _all_rows(scan: Scan, path: Path) -> list[dict[str, Any]]:
    if scan.damaged:
        raise DuettoError(f"Line {scan.damaged[0]} of {path} is damaged. Remove that line to read the others.")
    return scan.rows


def _record(line: bytes) -> dict[str, Any]:
    return {key: _restored(value) for key, value in json.loads(line).items()}


def _row(fields: Sequence[str], line: bytes) -> dict[str, str]:
    return dict(zip(fields, _cells(line), strict=True))


def _cells(line: bytes) -> list[str]:
    (cells,) = csv.reader([line.decode()], strict=True)
    return cells


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
