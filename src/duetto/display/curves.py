"""Which runs make one learning curve, and its numbers, from what their folders hold; no framework is needed.

Runs that differ in nothing but their seed make one curve. How often they are looked at does not count; all else does,
their length too, since schedules follow it. A seed that is there twice makes a curve of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError, UsageError
from duetto.storage import marks
from duetto.storage.records import Csv, JsonLines, Scan
from duetto.storage.yaml_files import read_yaml

Option = tuple[str, str]  # of the algorithm, the run or the environment; its name

_LOOKS = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every")
_UNSEEN: set[Option] = {("run", name) for name in ("seed", "threads", *_LOOKS)}
_NAMED = 3  # differences that a label spells out; with more it takes the folder's name


@dataclass(frozen=True)
class Curve:
    """One number over the steps of runs that differ in their seed alone."""

    label: str
    environment: str
    steps: np.ndarray  # (T,), to where the shortest seed ends
    values: np.ndarray  # (seeds, T), interpolated where the seeds were looked at in different steps
    remark: str  # what ends it early
    notices: tuple[str, ...]  # a sentence for each file of which lines cannot be read or were changed


@dataclass(frozen=True)
class Recorded:
    """What a run's `config.yaml` says. A network of the user's own need not be at hand."""

    folder: Path
    algorithm: str
    environment: str
    seed: int
    settings: dict[Option, Any]


def curves(runs: Sequence[str | Path], metric: str = "mean_return") -> list[Curve]:
    """The curves of `runs`, folders of runs, in their order.

    Args:
        runs: Each counts once, however it is named.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: A folder is no run, or has not that number.
        DuettoError: A file is damaged, and nothing of it can be read.
    """
    folders: dict[Path, Path] = {}
    for run in runs:
        folders.setdefault(Path(run).resolve(), Path(run))
    if not folders:
        raise UsageError("No run is named. Give one folder or more: duetto plot runs/td3-*")
    groups = _groups([_recorded(folder) for folder in folders.values()])
    series = [[_series(run.folder, metric) for run in group] for group in groups]
    return [
        Curve(label, group[0].environment, *_joined(group, own), tuple(each.notice for each in own if each.notice))
        for label, group, own in zip(_labels(groups), groups, series, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------- which runs
def _recorded(folder: Path) -> Recorded:
    path = folder / "config.yaml"
    if not path.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {path.name}.")
    try:
        values = read_yaml(path)
        algorithm, environment = values["algorithm"], values["environment"]
        name, options = algorithm["name"], {key: value for key, value in algorithm.items() if key != "name"}
        sections = {"algorithm": _complete(name, options), "run": values["run"], "environment": environment["options"]}
        settings = {(where, key): value for where, found in sections.items() for key, value in found.items()}
        settings |= {("algorithm", "name"): name, ("environment", "id"): environment["id"]}
        settings = {option: value for option, value in settings.items() if option not in _UNSEEN}
        return Recorded(folder, name, environment["id"], values["run"]["seed"], settings)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
        raise DuettoError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error


def _complete(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of what an older version did not write, without what it wrote and nobody reads."""
    if name not in ALGORITHMS:
        return options
    defaults = dataclasses.asdict(ALGORITHMS[name]())
    defaults = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    return {key: options.get(key, defaults[key]) for key in ALGORITHMS[name].options()}


def _groups(runs: list[Recorded]) -> list[list[Recorded]]:
    groups: list[list[Recorded]] = []
    for run in runs:
        alike = [group for group in groups if group[0].settings == run.settings]
        without_it = [group for group in alike if run.seed not in [other.seed for other in group]]
        if without_it:
            without_it[0].append(run)
        else:
            groups.append([run])
    return groups


def _labels(groups: list[list[Recorded]]) -> list[str]:
    """The algorithm, and in what it differs from the other curves of the same algorithm and environment."""
    labels = [(group[0].environment, _label(group, groups)) for group in groups]
    return [
        label[1] if labels.count(label) == 1 else f"{group[0].folder.resolve().parent.name}/{_folder_name(group)}"
        for label, group in zip(labels, groups, strict=True)
    ]


def _label(group: list[Recorded], groups: list[list[Recorded]]) -> str:
    ours, kind = group[0].settings, (group[0].algorithm, group[0].environment)
    rivals = [other[0].settings for other in groups if (other[0].algorithm, other[0].environment) == kind]
    options = dict.fromkeys(option for one in rivals for option in one)
    differing = [option for option in options if any(one.get(option) != ours.get(option) for one in rivals)]
    if len(differing) > _NAMED or (not differing and len(rivals) > 1):
        return _folder_name(group)
    return ", ".join([group[0].algorithm, *(f"{option[1]} {ours.get(option, 'default')}" for option in differing)])


def _folder_name(group: list[Recorded]) -> str:
    """That of its first run; of several seeds, without the seed."""
    name = group[0].folder.resolve().name
    return re.sub(r"-s\d+$", "", name) if len(group) > 1 else name


# ---------------------------------------------------------------------------------------------------- its numbers
@dataclass(frozen=True)
class Series:
    """One number of one run, without what is not finite."""

    steps: np.ndarray  # (T,)
    values: np.ndarray  # (T,)
    notice: str  # how many lines cannot be read, and that others were changed, if so


def _series(folder: Path, metric: str) -> Series:
    names: set[str] = set()
    notices: list[str] = []
    changed = marks.changed(folder)
    for file, scan in (("evaluations.csv", Csv.scan), ("metrics.jsonl", JsonLines.scan)):
        path = folder / file
        if not path.exists():
            continue
        try:
            found = scan(path)
        except OSError as error:
            raise DuettoError(f"{path} cannot be read: {error.strerror}.") from error
        points, unreadable = _points(found, metric, path)
        said = [f"{unreadable} of the lines of {path} cannot be read and are left out."] * (unreadable > 0)
        if file in changed:
            said.append(f"{path} is not what it was at the checkpoint of step {changed[file]}.")
        notices += said
        points = points[np.isfinite(points).all(1)]
        if len(points):
            return Series(points[:, 0], points[:, 1], " ".join(said))
        names |= {name for row in found.rows for name in row} - {"step"}
    if not names:
        raise UsageError(" ".join([f"{folder} has no evaluations and no metrics yet. Leave it out.", *notices]))
    what = f"finite number in {metric!r}" if metric in names else f"{metric!r}"
    raise UsageError(" ".join([f"{folder} has no {what}. It has: {', '.join(sorted(names))}.", *notices]))


def _points(found: Scan, metric: str, path: Path) -> tuple[np.ndarray, int]:
    """Steps and values (T, 2), and how many lines cannot be read."""
    points: list[tuple[float, float]] = []
    errors: list[Exception] = []
    for row in found.rows:
        if row.get(metric) in (None, ""):
            continue
        try:
            points.append((float(row["step"]), float(row[metric])))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            errors.append(error)
    if errors and not points:
        raise DuettoError(f"{path} has no numbers by step in {metric!r} ({errors[0]!r}).") from errors[0]
    return np.array(points).reshape(-1, 2), len(found.damaged) + found.half + len(errors)


def _joined(group: list[Recorded], found: list[Series]) -> tuple[np.ndarray, np.ndarray, str]:
    """Steps (T,), values (seeds, T), and what ends them early."""
    series = [(one.steps, one.values) for one in found]
    begin, end = max(steps[0] for steps, _ in series), min(steps[-1] for steps, _ in series)
    within = [(steps >= begin) & (steps <= end) for steps, _ in series]
    steps = series[0][0][within[0]]
    if len(steps) == 0:
        raise UsageError(f"{' and '.join(str(run.folder) for run in group)} share no steps. Plot them one by one.")
    shortest = min(zip(group, series, strict=True), key=lambda pair: pair[1][0][-1])[0]
    remark = f", as far as {shortest.folder.name} is" if any(own[-1] > end for own, _ in series) else ""
    if all(np.array_equal(own[inside], steps) for (own, _), inside in zip(series, within, strict=True)):
        return steps, np.stack([values[inside] for (_, values), inside in zip(series, within, strict=True)]), remark
    return steps, np.stack([np.interp(steps, *_once(*each)) for each in series]), remark


def _once(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last value of each step: before and after pre-training there is one of step 0."""
    last = dict(zip(steps.tolist(), values.tolist(), strict=True))
    return np.array(list(last)), np.array(list(last.values()))
