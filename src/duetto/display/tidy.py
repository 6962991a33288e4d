"""Results as a tidy table, one number a row: `exp_name,env_name,seed,metric,env_step,value`.

The authors of SimbaV2 and of XQC publish their results in this form, and those they compare with. Their `avg_return` is
Duetto's `mean_return`: it is written by their name, and read by either. Other columns are passed over.
"""

from __future__ import annotations

import csv
import io
import math
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from duetto.display.series import OURS, Series
from duetto.errors import UsageError, escaped

LARGEST = 2**28  # bytes of a table that is read
LONGEST = 200  # characters of a name
_THEIRS = {ours: theirs for theirs, ours in OURS.items()}
_NUMBERS = ("env_step", "value")


class Row(NamedTuple):
    """One row of a table: one number."""

    exp_name: str  # the curve: an algorithm, and in what it differs from others
    env_name: str
    seed: int
    metric: str
    env_step: float
    value: float


@dataclass(frozen=True)
class Tabled:
    """The numbers in a table of one seed of one experiment in one environment."""

    path: Path
    experiment: str
    environment: str
    seed: int
    found: dict[str, Series]  # by metric

    @property
    def name(self) -> str:
        """The seed's name among others of its curve."""
        return f"seed {self.seed}"

    def __str__(self) -> str:
        return f"seed {self.seed} of {self.experiment} in {self.path}"

    def names(self) -> list[str]:
        """The names of the numbers that it has."""
        return list(self.found)

    def has(self, metric: str) -> bool:
        """Whether it has numbers of this metric, by either name."""
        return their(metric) in self.found or metric in self.found

    def series(self, metric: str) -> Series:
        """One number by step. Raises UsageError if there is none."""
        if not self.has(metric):
            raise UsageError(f"{self} has no {metric!r}. It has: {', '.join(self.found)}.")
        return self.found.get(their(metric)) or self.found[metric]


def their(metric: str) -> str:
    """The name of a metric in such tables."""
    return _THEIRS.get(metric, metric)


def is_table(source: str | Path) -> bool:
    """Whether a source is a table, by its name, and no run's folder."""
    path = Path(source)
    return path.suffix.lower() == ".csv" and not path.is_dir()


def written(rows: Iterable[Row]) -> str:
    """The table as text. `float` gives back each value exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        step = int(row.env_step) if float(row.env_step).is_integer() else row.env_step
        writer.writerow([*map(escaped, (row.exp_name, row.env_name)), row.seed, escaped(row.metric), step, row.value])
    return text.getvalue()


def read(path: Path) -> list[Tabled]:
    """Read the seeds of a table, in its order. Values that are not finite are left out, and counted in a notice.

    Raises UsageError if it is no such table, with the line and what is wrong there.
    """
    points: dict[tuple[str, str, int], dict[str, dict[float, float]]] = {}
    rows = not_finite = earlier = 0
    for where, row in _rows(path):
        rows += 1
        if not (math.isfinite(row.env_step) and math.isfinite(row.value)):
            not_finite += 1
            continue
        seeds = points.setdefault((row.exp_name, row.env_name, row.seed), {})
        found = seeds.setdefault(row.metric, {})
        if row.env_step in found and row.env_step != 0:  # where there are two of step 0, pre-training lies between
            raise UsageError(
                f"{where} has a second value of {row.metric} at step {row.env_step:g} for seed {row.seed} of "
                f"{row.exp_name} in {row.env_name}. Take one of them out, or give their runs an exp_name each."
            )
        earlier += row.env_step in found
        found[row.env_step] = row.value
    if not points:
        raise UsageError(f"{path} has no {'finite number' if rows else 'rows'} below its header. Leave it out.")
    said = [f"{not_finite} of the values of {path} are not finite and are left out."] if not_finite else []
    said += [f"{earlier} of the values of {path} have a later one at step 0, and are left out."] if earlier else []
    notice = " ".join(said)
    return [
        Tabled(path, *key, {metric: _series(found, notice) for metric, found in metrics.items()})
        for key, metrics in points.items()
    ]


def _series(points: dict[float, float], notice: str) -> Series:
    array = np.array(sorted(points.items()))
    return Series(array[:, 0], array[:, 1], notice)


def is_written(path: Path) -> bool:
    """Whether a file begins as `written` does."""
    try:
        with path.open("rb") as file:
            return file.readline(LONGEST).strip() == ",".join(Row._fields).encode()
    except OSError:
        return False


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Each row, with the line that it is in, in words. UsageError for a file that is no table."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is no plain file. Name a table of {','.join(Row._fields)}.")
        if status.st_size > LARGEST:
            raise UsageError(
                f"{path} has {status.st_size:,} bytes, more than the {LARGEST:,} of a table that are read. Cut it."
            )
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _parsed(file, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no table: it is not text in UTF-8.") from error


def _parsed(file: TextIO, path: Path) -> Iterator[tuple[str, Row]]:
    reader = csv.reader(file)
    try:
        header = next(reader, [])
        missing = [name for name in Row._fields if header.count(name) != 1]
        if missing:
            raise UsageError(
                f"{path} has not each of the columns {','.join(Row._fields)} once ({', '.join(missing)}): its first "
                f"line is {','.join(header)[:LONGEST]!r}."
            )
        places = [header.index(name) for name in Row._fields]
        for cells in reader:
            if cells:
                where = f"Line {reader.line_num:,} of {path}"
                yield where, _row(cells, places, where)
    except csv.Error as error:
        raise UsageError(f"Line {reader.line_num:,} of {path} is no line of a table: {error}.") from error


def _row(cells: list[str], places: list[int], where: str) -> Row:
    if len(cells) <= max(places):
        raise UsageError(f"{where} has {len(cells)} cells, fewer than the header. Correct it, or take it out.")
    found = dict(zip(Row._fields, (cells[place].strip() for place in places), strict=True))
    for name in ("exp_name", "env_name", "metric"):
        if not 0 < len(found[name]) <= LONGEST:
            raise UsageError(f"{where} has {name} with {len(found[name]):,} characters; it must have 1 to {LONGEST}.")
    seed, step, value = (_number(name, found[name], where) for name in ("seed", *_NUMBERS))
    if not (math.isfinite(seed) and seed.is_integer()):
        raise UsageError(f"{where} has seed {found['seed']!r}; it must be a whole number.")
    return Row(found["exp_name"], found["env_name"], int(seed), found["metric"], step, value)


def _number(name: str, text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{where} has {name} {text[:40]!r}; it must be a number.") from None
