"""A sweep's results: its curves, and how good each setting is in the end."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duetto.display import files, plotting
from duetto.display.curves import Curve, Group, curve, groups
from duetto.errors import DuettoError, UsageError
from duetto.sweeping.sweep import Sweep

METRIC = "mean_return"
FEWEST = 3  # seeds that make an interval


@dataclass(frozen=True)
class Result:
    """The result of one setting, at the last evaluation that all its complete seeds have."""

    name: str  # what its runs' folders are called, without the seed: in a mapping of settings it begins with its key
    label: str  # that of its curve
    environment: str
    seeds: int
    step: int
    interquartile_mean: float  # over seeds, of the evaluation's mean returns; of fewer than three the mean
    low: float | None  # the 95 % stratified bootstrap interval, of three seeds or more
    high: float | None


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep, and how it ended."""

    path: Path
    state: str  # "complete", "failed", or "waiting" where the sweep was stopped
    step: int
    mean_return: float | None  # of its last evaluation
    reason: str  # why it failed
    log: Path | None  # where that stands with its traceback


@dataclass(frozen=True)
class Swept:
    """The results of `duetto.sweep`."""

    folder: Path
    runs: tuple[SweptRun, ...]
    results: tuple[Result, ...]
    picture: Path | None
    stopped: bool
    notices: tuple[str, ...]

    @property
    def failed(self) -> tuple[SweptRun, ...]:
        """The runs that failed. The same call tries them again."""
        return tuple(run for run in self.runs if run.state == "failed")

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values."""
        return {
            "folder": str(self.folder),
            "runs": [_plain(run) for run in self.runs],
            "results": [_plain(result) for result in self.results],
            "picture": self.picture and str(self.picture),
            "stopped": self.stopped,
            "notices": list(self.notices),
        }


def concluded(sweep: Sweep) -> Swept:
    """Draw and write down the results of the complete runs; if that fails, a notice says why."""
    complete = [entry.planned.folder for entry in sweep.entries if entry.state == "complete"]
    results: list[Result] = []
    picture = None
    if complete and not sweep.stopped:
        try:
            found = groups(complete, apart=_setting)  # also where two settings come to the same options
            drawn = [curve(group, METRIC) for group in found]
            results = [_result(*one) for one in zip(found, drawn, strict=True)]
            _write(sweep.folder / "results.csv", results)
            picture = plotting.picture(drawn, sweep.folder / "curves.png", METRIC)
        except DuettoError as error:  # the runs are whole: the same command draws them once that is put right
            sweep.notices.append(str(error))
    runs = tuple(
        SweptRun(
            entry.planned.folder,
            "waiting" if entry.state == "elsewhere" else entry.state,
            entry.step,
            entry.mean_return,
            entry.reason,
            sweep.log_of(entry) if entry.state == "failed" else None,
        )
        for entry in sweep.entries
    )
    return Swept(sweep.folder, runs, tuple(results), picture, sweep.stopped, tuple(sweep.notices))


def _setting(folder: str) -> str:
    """The name of a run folder's setting: without the seed."""
    return re.sub(r"-s\d+$", "", folder)


def _result(group: Group, drawn: Curve) -> Result:
    last = drawn.values[:, -1]
    which = (_setting(group.members[0].name), drawn.label, drawn.environment, len(last), int(drawn.steps[-1]))
    if len(last) < FEWEST:
        return Result(*which, float(last.mean()), None, None)
    middle, (low, high) = plotting.interquartile(last[:, None])
    return Result(*which, float(middle[0]), float(low[0]), float(high[0]))


def _write(path: Path, results: list[Result]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([field.name for field in dataclasses.fields(Result)])
    table.writerows(dataclasses.astuple(result) for result in results)
    files.publish(path, text.getvalue())


def needed(seeds: int) -> str:
    """A sentence, before a sweep of at most so many seeds, if a package is missing to draw its curves or intervals;
    else "".
    """
    try:
        plotting.new_figure(1.0, 1.0)
        if seeds >= FEWEST:
            plotting.statistics()
    except UsageError as error:
        return f"{error} Then the same command draws the curves."
    return ""


def _plain(value: Any) -> dict[str, Any]:
    return {name: str(own) if isinstance(own, Path) else own for name, own in dataclasses.asdict(value).items()}
