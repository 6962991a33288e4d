"""Write results of runs as a tidy table (`tidy_csv`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from duetto.errors import UsageError
from duetto.storage import atomic_io
from duetto.tools.plot import tidy_csv
from duetto.tools.plot.curves import once
from duetto.tools.plot.grouping import groups, listed, with_number
from duetto.tools.plot.metric_series import duetto_name
from duetto.tools.plot.tidy_csv import CsvRow


def table(
    runs: Iterable[str | Path], output: str | Path | None = None, metrics: Sequence[str] = ("mean_return",)
) -> list[CsvRow]:
    """Return the numbers of `runs` as rows `(exp_name, env_name, seed, metric, env_step, value)`, one for each point.

    `exp_name` is the curve's label in `duetto.plot`. The metric "mean_return" is written "avg_return", as the authors
    of SimbaV2 and XQC call it. If a run has several values at one step, before and after pre-training, the table has
    the last. Notices on skipped files and values go to stderr.

    Args:
        runs: Folders of runs, and tables of this schema (.csv).
        output: A .csv to write them to, which `duetto.plot` and `duetto.report` read. It may replace an earlier table,
            but none of `runs`.
        metrics: Columns of `evaluations.csv`, or numbers of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: None of the folders is a run with that number, or a path is missing; a table is of another schema
            or lacks that number; or `output` would replace one of them.
        DuettoError: Nothing of a file can be read, or the table cannot be written.
    """
    path = atomic_io.check_suffix(output, ".csv", "a table") if output is not None else None
    runs = listed(runs)
    if path is not None:
        _check_free(path, runs)
    if not metrics or isinstance(metrics, str):
        raise UsageError(f"metrics is {metrics!r}; it must be one name or more, such as ['mean_return'].")
    rows: list[CsvRow] = []
    notices: dict[str, None] = {}
    metrics = list(dict.fromkeys(map(duetto_name, metrics)))
    grouped = groups(runs, metrics)  # once, so that a run has the same label for all metrics
    for metric in metrics:
        with_metric = [with_number(group, metric) for group in grouped]
        if not any(group.members for group in with_metric):
            groups(runs, metric)  # raises, and lists the metrics that there are
        for group in with_metric:
            notices |= dict.fromkeys(group.notices)
            for member in group.members:
                series = member.series(metric)
                steps, values = once(series.steps, series.values)
                if doubled := len(series.steps) - len(steps):
                    earlier = f"{doubled} of the values of {metric!r} of {member} have a later one at their step"
                    notices[f"{earlier}: left out."] = None
                if series.notice:
                    notices[series.notice] = None
                point = (group.label, group.environment, member.seed, tidy_csv.table_name(metric))
                rows += [CsvRow(*point, *pair) for pair in zip(steps.tolist(), values.tolist(), strict=True)]
    for notice in notices:
        print(notice, file=sys.stderr)
    if path is not None:
        atomic_io.write_output(path, tidy_csv.written(rows))
    return rows


def _check_free(path: Path, runs: Sequence[str | Path]) -> None:
    """Raise UsageError if writing the table would replace one that is read, or a file that is no such table."""
    if path.is_file() and path.resolve() in [Path(run).resolve() for run in runs]:
        raise UsageError(f"{path} is one of the tables to read, and would be replaced. Give another --output.")
    atomic_io.check_replaceable(path, tidy_csv.is_written, "table")
