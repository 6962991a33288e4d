"""Results as a tidy table, one number a row: `exp_name,env_name,seed,metric,env_step,value`.

The authors of SimbaV2 and XQC publish their results in this form. Their `avg_return` is Duetto's `mean_return`: tables
are written with their name, and read with either. Other columns are ignored.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duetto.errors import UsageError, escaped
from duetto.tools.plot.metric_series import Series, duetto_name

LONGEST = 200  # characters of a name
_NUMBERS = ("seed", "env_step", "value")


class CsvRow(NamedTuple):
    """One row of a table: one number."""

    exp_name: str  # the curve: an algorithm, and its differences from others
    env_name: str
    seed: int
    metric: str
    env_step: float
    value: float


@dataclass(frozen=True)
class Tabled:
    """One seed of one experiment in one environment, from a table."""

    path: Path
    experiment: str
    environment: str
    seed: int
    by_metric: dict[str, Series]

    @property
    def name(self) -> str:
        """Its name among the seeds of its curve."""
        return f"seed {self.seed}"

    def __str__(self) -> str:
        return f"seed {self.seed} of {self.experiment} in {self.path}"

    def names(self) -> list[str]:
        """Return the names of its metrics."""
        return list(self.by_metric)

    def has(self, metric: str) -> bool:
        """Return whether it has this metric, by either name."""
        return duetto_name(metric) in self.by_metric

    def series(self, metric: str) -> Series:
        """Return a metric by step. Raises UsageError if there is none."""
        if not self.has(metric):
            raise UsageError(f"{self} has no {metric!r}. It has: {', '.join(self.by_metric)}.")
        return self.by_metric[duetto_name(metric)]


def table_name(metric: str) -> str:
    """Return the name of a metric in such tables."""
    return "avg_return" if metric == "mean_return" else metric


def is_table(source: str | Path) -> bool:
    """Return whether a source is a table, by its name, and no run's folder."""
    path = Path(source)
    return path.suffix.lower() == ".csv" and not path.is_dir()


def written(rows: Iterable[CsvRow]) -> str:
    """Return the table as text. `float` gives back each value exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CsvRow._fields)
    for row in rows:
        step = int(row.env_step) if float(row.env_step).is_integer() else row.env_step
        writer.writerow([*map(escaped, (row.exp_name, row.env_name)), row.seed, escaped(row.metric), step, row.value])
    return text.getvalue()


def is_written(path: Path) -> bool:
    """Return whether a file starts as `written` does."""
    try:
        with path.open("rb") as file:
            return file.readline(LONGEST).strip() == ",".join(CsvRow._fields).encode()
    except OSError:
        return False


def read(path: Path) -> list[Tabled]:
    """Read the seeds of a table, in its order. Values that are not finite are left out, and counted in a notice.

    Raises UsageError for another file, with the line and the mistake in it.
    """
    points: dict[tuple[str, str, int], dict[str, dict[float, float]]] = {}
    rows = not_finite = 0
    for where, row in _rows(path):
        rows += 1
        if not (math.isfinite(row.env_step) and math.isfinite(row.value)):
            not_finite += 1
            continue
        metrics = points.setdefault((row.exp_name, row.env_name, row.seed), {})
        by_step = metrics.setdefault(duetto_name(row.metric), {})
        if row.env_step in by_step and row.env_step != 0:  # step 0 may have two: before and after pre-training
            raise UsageError(
                f"{where} has a second value of {row.metric} at step {row.env_step:g} for seed {row.seed} of "
                f"{row.exp_name} in {row.env_name}. Remove one of them, or give their runs an exp_name each."
            )
        by_step[row.env_step] = row.value
    if not points:
        raise UsageError(f"{path} has no {'finite number' if rows else 'rows'} below its header. Leave it out.")
    notice = f"{not_finite} of the values of {path} are not finite and are left out." if not_finite else ""
    return [
        Tabled(path, *key, {metric: _series(by_step, notice) for metric, by_step in metrics.items()})
        for key, metrics in points.items()
    ]


def _series(by_step: dict[float, float], notice: str) -> Series:
    array = np.array(sorted(by_step.items()))
    return Series(array[:, 0], array[:, 1], notice)


def _rows(path: Path) -> Iterator[tuple[str, CsvRow]]:
    """Yield each row, with the words for its line. UsageError for a file that is no table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or [])
            if missing := [name for name in CsvRow._fields if name not in header]:
                raise UsageError(
                    f"{path} lacks the columns {', '.join(missing)}: its first line is {','.join(header)[:LONGEST]!r}."
                )
            for cells in reader:
                where = f"Line {reader.line_num:,} of {path}"
                yield where, _row(cells, where)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no table ({error}).") from error


def _row(cells: dict[str, str | None], where: str) -> CsvRow:
    values: dict[str, Any] = {}
    for name in CsvRow._fields:
        text = (cells[name] or "").strip()
        try:
            values[name] = float(text) if name in _NUMBERS else text
        except ValueError:
            raise UsageError(f"{where} has {name} {text[:40]!r}; it must be a number.") from None
        if not 0 < len(text) <= LONGEST:
            raise UsageError(f"{where} has {name} with {len(text):,} characters; it must have 1 to {LONGEST}.")
    if not values["seed"].is_integer():
        raise UsageError(f"{where} has seed {cells['seed']!r}; it must be a whole number.")
    values["seed"] = int(values["seed"])
    return CsvRow(**values)
