"""Write results of runs as a tidy table, with one number in each row.

The columns are `exp_name,env_name,seed,metric,env_step,value`. The authors of SimbaV2 and XQC publish their results in
this form. Their `avg_return` is Duetto's `mean_return`.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duetto.errors import UsageError, escaped
from duetto.storage import atomic_io
from duetto.tools.plot.grouping import groups


class CsvRow(NamedTuple):
    """One row of a table: one number."""

    exp_name: str  # the curve's label: an algorithm, and the options in which it differs from other curves
    env_name: str
    seed: int
    metric: str
    env_step: float
    value: float


def table(
    runs: Sequence[str | Path] | str | Path, output: str | Path | None = None, metrics: Sequence[str] = ("mean_return",)
) -> list[CsvRow]:
    """Return the numbers of `runs` as rows of a tidy table, one row for each point.

    The columns are `exp_name`, `env_name`, `seed`, `metric`, `env_step` and `value`. `exp_name` is the curve's label in
    `duetto.plot`. The metric "mean_return" is written as "avg_return". If a step has several values (before and after
    pre-training), the table has the last value. Notices on skipped files and values go to stderr.

    Args:
        runs: Folders of runs.
        output: A .csv file to write. It may replace an earlier table.
        metrics: Columns of `evaluations.csv`, or numbers of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: A folder is missing, or none is a run with a metric; or `output` exists and is not a table.
        DuettoError: A file is damaged so that nothing can be read, or the table cannot be written.
    """
    if output is not None:
        path = atomic_io.check_suffix(output, ".csv", "a table")
        atomic_io.check_replaceable(path, _is_table, "table")
    if not metrics or isinstance(metrics, str):
        raise UsageError(f"metrics is {metrics!r}; it must be one name or more, such as ['mean_return'].")
    rows: list[CsvRow] = []
    notices: dict[str, None] = {}
    labels: dict[Path, str] = {}  # the label of each run, the same for all metrics
    for metric in dict.fromkeys(metrics):
        name = "avg_return" if metric == "mean_return" else metric
        for group in groups(runs, metric):
            notices |= dict.fromkeys(group.notices)
            for member in group.members:
                series = member.series(metric)
                notices |= dict.fromkeys([series.notice] if series.notice else [])
                points = zip(series.steps.tolist(), series.values.tolist(), strict=True)
                label = labels.setdefault(member.folder, group.label)
                rows += [CsvRow(label, group.environment, member.seed, name, *point) for point in points]
    for notice in notices:
        print(escaped(notice), file=sys.stderr)
    if output is not None:
        atomic_io.write_output(Path(output), written(rows))
    return rows


def written(rows: Iterable[CsvRow]) -> str:
    """Return the table as text. Numbers are exact: `float` of a cell's text returns the same value."""
    cells: list[Sequence[Any]] = []
    for row in rows:
        step = int(row.env_step) if float(row.env_step).is_integer() else row.env_step
        cells.append([*map(escaped, (row.exp_name, row.env_name)), row.seed, escaped(row.metric), step, row.value])
    return csv_text(CsvRow._fields, cells)


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a header as text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def _is_table(path: Path) -> bool:
    """Return whether a file starts with the header of a table."""
    with path.open("rb") as file:
        return file.readline(200).strip() == ",".join(CsvRow._fields).encode()
