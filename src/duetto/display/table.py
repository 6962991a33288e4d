"""Results of runs as a tidy table, for others' plots and for ours; see `tidy`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from duetto.display import files, tidy
from duetto.display.curves import groups, listed, once, with_number
from duetto.display.tidy import Row
from duetto.errors import UsageError


def table(
    runs: Iterable[str | Path], output: str | Path | None = None, metrics: Sequence[str] = ("mean_return",)
) -> list[Row]:
    """The numbers of `runs` as rows `(exp_name, env_name, seed, metric, env_step, value)`, one for each point.

    `exp_name` is the curve's label in `duetto.plot`. The metric "mean_return" is written "avg_return", as the authors
    of SimbaV2 and XQC call it. If a run has several values at one step, before and after pre-training, the table has
    the last. What is left out goes to stderr, a sentence each.

    Args:
        runs: Folders of runs, and tables of this schema (.csv).
        output: A .csv to write them to, which `duetto.plot` and `duetto.report` read. It may replace an earlier table,
            but none of `runs`.
        metrics: Columns of `evaluations.csv`, or numbers of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: None of the folders is a run with that number, or one is not there; a table is of another schema
            or lacks that number; or `output` would replace one of them.
        DuettoError: Nothing of a file can be read, or the table cannot be written.
    """
    path = files.check_name(output, ".csv", "a table") if output is not None else None
    runs = listed(runs)
    if path is not None:
        _check_free(path, runs)
    if not metrics or isinstance(metrics, str):
        raise UsageError(f"metrics is {metrics!r}; it must be one name or more, such as ['mean_return'].")
    rows: list[Row] = []
    notices: dict[str, None] = {}
    by_name = list({tidy.their(metric): metric for metric in metrics}.values())
    found = groups(runs, by_name)  # once, so that a run is called the same in all of them
    for metric in by_name:
        having = [with_number(group, metric) for group in found]
        if not any(group.members for group in having):
            groups(runs, metric)  # says what there is instead
        for group in having:
            notices |= dict.fromkeys(group.notices)
            for member in group.members:
                series = member.series(metric)
                steps, values = once(series.steps, series.values)
                doubled = len(series.steps) - len(steps)
                earlier = f"{doubled} of the values of {metric!r} of {member} have a later one at their step: left out."
                said = (series.notice, earlier * (doubled > 0))
                notices |= dict.fromkeys(filter(None, said))
                point = (group.label, group.environment, member.seed, tidy.their(metric))
                rows += [Row(*point, *pair) for pair in zip(steps.tolist(), values.tolist(), strict=True)]
    for notice in notices:
        print(notice, file=sys.stderr)
    if path is not None:
        files.publish(path, tidy.written(rows))
    return rows


def _check_free(path: Path, runs: Sequence[str | Path]) -> None:
    """Raise UsageError if writing the table would replace one that is read, or a file that is no such table."""
    if path.is_file() and path.resolve() in [Path(run).resolve() for run in runs]:
        raise UsageError(
            f"{path} is read, and what of it is not in the new table would be lost. Give another --output."
        )
    files.check_free(path, tidy.is_written, "table")
