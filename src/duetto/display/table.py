"""Results of runs as a tidy table, for others' plots and for ours; see `tidy`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from duetto.display import files, tidy
from duetto.display.curves import groups
from duetto.display.tidy import Row
from duetto.errors import UsageError


def table(
    runs: Sequence[str | Path], output: str | Path | None = None, metrics: Sequence[str] = ("mean_return",)
) -> list[Row]:
    """The numbers of `runs` as rows `(exp_name, env_name, seed, metric, env_step, value)`, one for each point.

    `exp_name` is what `duetto.plot` calls the curve. The metric "mean_return" is written "avg_return", as the authors
    of SimbaV2 and XQC call it. How many lines of a file cannot be read goes to stderr.

    Args:
        runs: Folders of runs, and tables of this schema (.csv).
        output: A .csv to write them to, which `duetto.plot` and `duetto.report` read.
        metrics: Columns of `evaluations.csv`, or numbers of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: A folder is no run, a table is of another schema, or one of them has not that number.
        DuettoError: Nothing of a file can be read, or the table cannot be written.
    """
    path = files.check_name(output, ".csv", "a table") if output is not None else None
    if not metrics or isinstance(metrics, str):
        raise UsageError(f"metrics is {metrics!r}; it must be one name or more, such as ['mean_return'].")
    rows: list[Row] = []
    notices: dict[str, None] = {}
    for metric in dict.fromkeys(metrics):
        for group in groups(runs, metric):
            for member in group.members:
                series = member.series(metric)
                notices |= dict.fromkeys(filter(None, (*group.notices, series.notice)))
                point = (group.label, group.environment, member.seed, tidy.their(metric))
                rows += [Row(*point, *pair) for pair in zip(series.steps.tolist(), series.values.tolist(), strict=True)]
    for notice in notices:
        print(notice, file=sys.stderr)
    if path is not None:
        files.publish(path, tidy.written(rows))
    return rows
