"""A sweep's results: learning curves, and the interquartile mean of each experiment."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError, near
from duetto.storage import atomic_io
from duetto.tools.plot import figure
from duetto.tools.plot.curves import curve, number
from duetto.tools.plot.grouping import groups
from duetto.tools.sweep.sweep import Sweep

METRIC = "mean_return"


@dataclass(frozen=True)
class ExperimentResult:
    """The result of one experiment, at the last evaluation that all its complete seeds have."""

    name: str  # of its runs' folders, without the seed
    label: str  # of its curve
    environment: str
    seeds: int
    step: int
    interquartile_mean: float  # over seeds, of the evaluations' mean returns; with fewer than three seeds the mean
    low: float | None  # the 95 % stratified bootstrap interval, with three seeds or more
    high: float | None


@dataclass(frozen=True)
class RunResult:
    """One run of a sweep, and how it ended."""

    path: Path
    state: str  # "complete", "failed", or "waiting" if the sweep was stopped
    step: int
    mean_return: float | None  # of its last evaluation
    reason: str  # why it failed
    log: Path | None  # the file with the reason and its traceback


@dataclass(frozen=True)
class SweepResult:
    """The results of `duetto.sweep`."""

    folder: Path
    runs: tuple[RunResult, ...]
    results: tuple[ExperimentResult, ...]
    picture: Path | None
    stopped: bool
    notices: tuple[str, ...]

    @property
    def failed(self) -> tuple[RunResult, ...]:
        """The runs that failed. The same call tries them again."""
        return tuple(run for run in self.runs if run.state == "failed")

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=str))

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads."""
        for each in self.results:  # the interquartile mean over the seeds
            low, high = each.low, each.high
            interval = "" if low is None or high is None else f" (95 %: {number(low)} to {number(high)})"
            yield (
                f"{each.environment}, {each.label}: mean return {number(each.interquartile_mean)}{interval}, "
                f"{each.seeds} seed{'s' * (each.seeds > 1)}, {each.step:,} steps"
            )
        counts = Counter(run.state for run in self.runs)
        yield ", ".join(f"{count} {state}" for state, count in counts.items()) + "."
        if self.picture is not None:
            yield str(near(self.picture))
        if self.stopped:
            yield "Stopped. Continue with the same command."


def results_of(sweep: Sweep) -> SweepResult:
    """Draw and save the results of the complete runs; a notice reports why that failed."""
    complete = [run.folder for run in sweep.runs if run.state == "complete"]
    results: list[ExperimentResult] = []
    picture = None
    if complete and not sweep.stopped:
        try:
            by_experiment = groups(complete, METRIC, by_name=True)
            curves = [curve(group, METRIC) for group in by_experiment]
            results = [
                ExperimentResult(
                    group.members[0].experiment,
                    each.label,
                    each.environment,
                    len(each.values),
                    int(each.steps[-1]),
                    *each.last(),
                )
                for group, each in zip(by_experiment, curves, strict=True)
            ]
            text = io.StringIO()
            table = csv.writer(text, lineterminator="\n")
            table.writerow([field.name for field in dataclasses.fields(ExperimentResult)])
            table.writerows(dataclasses.astuple(result) for result in results)
            atomic_io.write_output(sweep.folder / "results.csv", text.getvalue())
            picture = figure.picture(curves, sweep.folder / "curves.png", METRIC)
        except DuettoError as error:  # the runs are complete: the same command draws them later
            sweep.notices.append(str(error))
    runs = tuple(RunResult(run.folder, run.state, run.step, run.mean_return, run.reason, run.log) for run in sweep.runs)
    return SweepResult(sweep.folder, runs, tuple(results), picture, sweep.stopped, tuple(sweep.notices))
