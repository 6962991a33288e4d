"""Group runs into learning curves by their configs, name the curves, and read their metrics.

Runs that differ only in their seed make one curve. The number of threads and the options of `_INTERVALS` may differ
too. All other options must be equal, including the number of steps, since schedules depend on it. The run that they
started from (--from) and the contents of custom files must also be equal. A second run with the same seed makes a
second curve. No two curves of an environment have the same label.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from duetto.algorithms import ALGORITHMS
from duetto.errors import CheckpointError, DuettoError, UsageError, escaped, near
from duetto.storage import user_code
from duetto.storage.config import History, RunOptions, check_format, networks_source
from duetto.storage.logs import Csv, JsonLines, Scan
from duetto.storage.safe_yaml import read_yaml

Option = tuple[str, str]  # section ("algorithm", "run", "environment", "cluster"), option

_INTERVALS = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every")
_IGNORED: set[Option] = {("run", name) for name in ("seed", "threads", *_INTERVALS)}
CHANGED = ("run", "changed at")
LONGEST = 200  # characters of a label
_IN_LABEL = 3  # maximum number of options in a label; if more differ, the label is the folder's name
_LOGS = {"evaluations.csv": Csv.scan, "metrics.jsonl": JsonLines.scan}


@dataclass(frozen=True)
class Series:
    """One metric of one run by step, finite values only.

    If a step has several values, the last is kept: step 0 may have one before and one after pre-training.
    """

    steps: np.ndarray  # (T,)
    values: np.ndarray  # (T,)
    notice: str  # about unreadable lines and infinite values; "" if there are none


@dataclass(frozen=True)
class Recorded:
    """A run, read from its `config.yaml` and logs. The code of custom networks is not needed."""

    folder: Path
    algorithm: str
    environment: str
    seed: int
    settings: dict[Option, Any]
    config: dict[str, Any] = field(compare=False, repr=False)
    scans: dict[str, Scan] = field(compare=False, repr=False)  # contents of the logs that exist, by file name

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.absolute().name

    @property
    def experiment(self) -> str:
        """The folder's name without the seed."""
        return re.sub(r"-s\d+$", "", self.name)

    def __str__(self) -> str:
        return str(self.folder)

    def series(self, metric: str) -> Series:
        """Return a metric by step, from `evaluations.csv` or else from `metrics.jsonl`.

        If a run has no evaluations, "mean_return" gives the returns of training episodes.

        Raises:
            UsageError: Neither log has the metric.
        """
        notices: list[str] = []
        for file, scan in self.scans.items():
            points, about = _points(scan, metric, self.folder / file)
            if points:
                return Series(np.array(list(points)), np.array(list(points.values())), " ".join(about))
            notices += about
        names = self.names()
        if not names:
            raise UsageError(" ".join([f"{self.folder} has no evaluations and no metrics. Leave it out.", *notices]))
        if metric == "mean_return" and "train/return" in names:
            notice = f"{self.folder} has no evaluations: its returns are those of training."
            return dataclasses.replace(self.series("train/return"), notice=notice)
        what = f"finite number in {metric!r}" if metric in names else f"{metric!r}"
        raise UsageError(" ".join([f"{self.folder} has no {what}. It has: {', '.join(sorted(names))}.", *notices]))

    def names(self) -> list[str]:
        """Return the names of the metrics, beginning with those of evaluations."""
        names = (sorted({name for row in scan.rows for name in row} - {"step"}) for scan in self.scans.values())
        return list(dict.fromkeys(name for each in names for name in each))


@dataclass(frozen=True)
class Group:
    """The runs of one curve, which differ only in their seed. The first group has all notices on skipped folders."""

    label: str
    environment: str
    members: Sequence[Recorded]
    notices: tuple[str, ...] = ()


def groups(runs: Iterable[str | Path] | str | Path, metric: str = "mean_return", by_name: bool = False) -> list[Group]:
    """Group `runs` into curves, in the order of `runs`.

    Args:
        runs: Folders of runs. A folder that is given twice is used once.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss".
        by_name: Separate runs if their folders' names differ in more than the seed.

    Raises:
        UsageError: A folder does not exist, or none of them is a run with the metric.
        DuettoError: A file is damaged so that nothing can be read.
    """
    named: dict[Path, Path] = {}
    for run in [runs] if isinstance(runs, str | Path) else runs:
        named.setdefault(Path(run).resolve(), Path(run))
    if not named:
        raise UsageError("No run is named. Give one folder or more, such as runs/td3-*")
    recorded, left_out = _usable(list(named.values()), metric)
    by_curve = _by_settings(recorded, by_name)
    names = [(members[0].environment, _label(members, by_curve)) for members in by_curve]
    grouped: list[Group] = []
    for (environment, label), members in zip(names, by_curve, strict=True):
        if names.count((environment, label)) > 1:  # the options are equal, so add the path
            label = escaped(str(near(members[0].folder.absolute())))
        grouped.append(Group(label, environment, members, () if grouped else tuple(left_out)))
    return grouped


# ---------------------------------------------------------------------------------------------------- runs
def _usable(folders: Sequence[Path], metric: str) -> tuple[list[Recorded], list[str]]:
    """Return the runs with the metric, and a notice for each other folder, such as a sweep's `logs`.

    If no run has the metric, raise the first run's error; if no folder is a run, the first folder's error.
    """
    runs: list[Recorded] = []
    errors: dict[Path, DuettoError] = {}
    for folder in folders:
        try:
            run = _recorded(folder)
            run.series(metric)
            runs.append(run)
        except DuettoError as error:
            if not folder.exists():
                raise
            errors[folder] = error
    if errors and not runs:
        of_runs = [error for folder, error in errors.items() if (folder / "config.yaml").is_file()]
        raise next(iter([*of_runs, *errors.values()]))
    return runs, [f"Left out: {error}" for error in errors.values()]


def _recorded(folder: Path) -> Recorded:
    path = folder / "config.yaml"
    if not path.is_file():
        inside = f" For the runs in it: {folder}/*" if any(folder.glob(f"*/{path.name}")) else ""
        raise UsageError(f"{folder} is no run folder: it has no {path.name}.{inside}")
    try:
        values = read_yaml(path)
        check_format(values)
        algorithm, environment = values["algorithm"], values["environment"]
        name, environment_id = algorithm["name"], environment["id"]
        if checksum := environment.get("sha256"):  # the environment is a custom file
            environment_id = f"{environment_id} (sha256 {checksum[:8]})"
        sections = {
            "algorithm": _complete(algorithm) | {"from": user_code.algorithm_source(algorithm), "name": name},
            "run": dataclasses.asdict(RunOptions()) | values["run"] | {"from": networks_source(values)},
            "environment": environment["options"],
            "cluster": values.get("cluster") or {},
        }
        settings = {(where, key): value for where, options in sections.items() for key, value in options.items()}
        settings |= {("environment", "id"): environment_id}
        settings = {option: value for option, value in settings.items() if option not in _IGNORED}
        history = History.of(values)
        settings |= {CHANGED: "; ".join(map(str, history.changed))} if history.changed else {}
        texts = name, environment["id"]
        if not (all(isinstance(text, str) for text in texts) and isinstance(values["run"]["seed"], int)):
            raise TypeError("names and ids are text, and a seed is a whole number")
    except (UsageError, CheckpointError) as error:
        raise type(error)(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
        raise DuettoError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    scans = {file: scan(folder / file) for file, scan in _LOGS.items() if (folder / file).exists()}
    return Recorded(folder, name, user_code.short(environment["id"]), values["run"]["seed"], settings, values, scans)


def _complete(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Return the algorithm's options, without unknown options and with defaults for missing ones."""
    kind = None if algorithm.get("from") else ALGORITHMS.get(algorithm["name"])
    if kind is None:
        return algorithm
    defaults = dataclasses.asdict(kind())
    defaults = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    return {key: algorithm.get(key, defaults[key]) for key in kind.options()}


def _points(scan: Scan, metric: str, path: Path) -> tuple[dict[float, float], list[str]]:
    """Return the finite values of a metric by step, and notices on lines and values that are left out."""
    values = [(float(row["step"]), float(row[metric])) for row in scan.rows if row.get(metric) is not None]
    points = {step: value for step, value in values if math.isfinite(value)}
    infinite = sum(not math.isfinite(value) for _, value in values)
    notices = []
    if scan.damaged:
        notices.append(f"{len(scan.damaged)} of the lines of {path} cannot be read and are left out.")
    if infinite:
        notices.append(f"{infinite} of the values of {metric!r} in {path} are not finite and are left out.")
    return points, notices


def _by_settings(runs: list[Recorded], by_name: bool) -> list[list[Recorded]]:
    """Group runs with the same settings and different seeds."""
    groups: list[list[Recorded]] = []
    for run in runs:
        for group in groups:
            same = group[0].settings == run.settings and not (by_name and group[0].experiment != run.experiment)
            if same and run.seed not in [other.seed for other in group]:
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _label(group: list[Recorded], groups: list[list[Recorded]]) -> str:
    """Return a curve's label: the algorithm, and the options that differ from those of the environment's other curves.

    Options of algorithm, run and cluster are compared only with curves of the same algorithm. If more than three
    options differ, or none although the algorithm has other curves, the label is the name of the folder; for several
    runs, the name of their folders without the seed.
    """
    settings = group[0].settings
    panel = [other[0] for other in groups if other[0].environment == group[0].environment]
    rivals = [run for run in panel if run.algorithm == group[0].algorithm]
    differing = [
        option
        for option in dict.fromkeys(option for run in rivals + panel for option in run.settings)
        if any(
            run.settings.get(option) != settings.get(option)
            for run in (panel if option[0] == "environment" else rivals)  # environment options change the task
        )
    ]
    if len(differing) > _IN_LABEL or (not differing and len(rivals) > 1):
        label = group[0].experiment if len(group) > 1 else group[0].name
    else:
        named = [option for option in differing if option in settings or option != CHANGED]
        label = ", ".join([group[0].algorithm, *(f"{option[1]} {settings.get(option, 'default')}" for option in named)])
    label = escaped(label).strip()
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
