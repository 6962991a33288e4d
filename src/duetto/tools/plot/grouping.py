"""Group runs into learning curves by their `config.yaml`, and name the curves.

Runs that differ only in their seed make one curve. Intervals of evaluations and logs do not count. All other options
do, the number of steps included, since schedules follow it; so do the run that they started from, and the contents of a
custom file. A second run with the same seed makes a second curve. No two curves of an environment have the same label.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms import ALGORITHMS
from duetto.errors import CheckpointError, DuettoError, UsageError, escaped, near
from duetto.storage import user_code
from duetto.storage.config import RunOptions, check_format, networks_source
from duetto.storage.resume_history import History
from duetto.storage.safe_yaml import read_yaml
from duetto.tools.plot.metric_series import Logs, Series

Option = tuple[str, str]  # algorithm, run, environment or cluster; the option's name

_INTERVALS = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every")
_IGNORED: set[Option] = {("run", name) for name in ("seed", "threads", *_INTERVALS)}
CHANGED = ("run", "changed at")
LONGEST = 200  # characters of a label
_IN_LABEL = 3  # differences that a label names; with more it is the folder's name


@dataclass(frozen=True)
class Recorded:
    """A run as its `config.yaml` describes it. Custom networks are not needed."""

    folder: Path
    algorithm: str
    environment: str
    seed: int
    settings: dict[Option, Any]
    config: dict[str, Any] = field(compare=False, repr=False)
    logs: Logs = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def __str__(self) -> str:
        return str(self.folder)

    def names(self) -> list[str]:
        """Return the names of its metrics."""
        return self.logs.names()

    def series(self, metric: str) -> Series:
        """Return a metric by step. Raises UsageError if there is none, DuettoError if nothing can be read."""
        return self.logs.series(metric)


@dataclass(frozen=True)
class Group:
    """The seeds of one curve, and notices on skipped ones."""

    label: str
    environment: str
    members: Sequence[Recorded]
    notices: tuple[str, ...] = ()


def groups(
    runs: Iterable[str | Path],
    metric: str | Sequence[str] = "mean_return",
    apart: Callable[[str], str] = lambda _: "",
) -> list[Group]:
    """Group `runs` into curves, in their order.

    Args:
        runs: Folders of runs. Each counts once, however it is named.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss"; or several;
            a run needs one of them.
        apart: A key from a folder's name. Runs with different keys make different curves.

    Raises:
        UsageError: A folder does not exist, or none of them is a run with the metric.
        DuettoError: Nothing of a damaged file can be read.
    """
    named: dict[Path, Path] = {}
    for run in listed(runs):
        named.setdefault(Path(run).resolve(), Path(run))
    if not named:
        raise UsageError("No run is named. Give one folder or more, such as runs/td3-*")
    recorded, left_out = _usable(list(named.values()), [metric] if isinstance(metric, str) else list(metric))
    by_curve = _by_settings(recorded, apart)
    grouped = [
        Group(label, members[0].environment, members, _repeated_seed(members, by_curve))
        for label, members in zip(_labels(by_curve), by_curve, strict=True)
    ]
    first, *others = _with_unique_labels(grouped)
    return [dataclasses.replace(first, notices=(*left_out, *first.notices)), *others]


def listed(runs: Any) -> list[str | Path]:
    """Return the paths as a list. UsageError unless `runs` is an iterable of paths."""
    if not isinstance(runs, str | os.PathLike) and isinstance(runs, Iterable):
        paths = list(runs)
        if all(isinstance(run, str | os.PathLike) for run in paths):
            return paths
    raise UsageError(f"runs is {runs!r:.200}; it must be a list of folders, such as ['runs/td3-Pendulum-v1-s0'].")


def _with_unique_labels(grouped: list[Group]) -> list[Group]:
    """Return the groups, with a number after each label that an earlier curve of the environment has."""
    taken: set[tuple[str, str]] = set()
    renamed: list[Group] = []
    for group in grouped:
        label, number = _cut(group.label), 1
        while (group.environment, label) in taken:
            number += 1
            label = _cut(group.label, f" ({number})")
        taken.add((group.environment, label))
        renamed.append(dataclasses.replace(group, label=label))
    return renamed


def _cut(label: str, ending: str = "") -> str:
    label, most = escaped(label).strip(), LONGEST - len(ending)
    return (label if len(label) <= most else f"{label[: most - 1]}…") + ending


# ---------------------------------------------------------------------------------------------------- runs
def _usable(folders: Sequence[Path], metrics: Sequence[str]) -> tuple[list[Recorded], list[str]]:
    """Return the runs with one of the metrics, and a sentence for each other folder, such as a sweep's `logs`.

    If no run has one, raise the error of the first run, or else of the first folder.
    """
    runs: list[Recorded] = []
    errors: dict[Path, DuettoError] = {}
    for folder in folders:
        try:
            run = _recorded(folder)
            if all(_lacks(run, metric) for metric in metrics[1:]):
                run.series(metrics[0])
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
        raise UsageError(f"{folder} is no run folder: it has no {path.name}.")
    try:
        values = read_yaml(path)
        check_format(values)
        algorithm, environment = values["algorithm"], values["environment"]
        name, environment_id = algorithm["name"], environment["id"]
        if checksum := environment.get("sha256"):  # of a custom file
            environment_id = f"{environment_id} (sha256 {checksum[:8]})"
        sections = {
            "algorithm": {"from": user_code.algorithm_source(algorithm)} | _complete(algorithm),
            "run": dataclasses.asdict(RunOptions()) | values["run"] | {"from": networks_source(values)},
            "environment": environment["options"],
            "cluster": values.get("cluster") or {},
        }
        settings = {(where, key): value for where, options in sections.items() for key, value in options.items()}
        settings |= {("algorithm", "name"): name, ("environment", "id"): environment_id}
        settings = {option: value for option, value in settings.items() if option not in _IGNORED}
        history = History.of(values)
        settings |= {CHANGED: "; ".join(map(str, history.changed))} if history.changed else {}
        if not (isinstance(environment["id"], str) and isinstance(values["run"]["seed"], int)):
            raise TypeError("an id is text, and a seed a whole number")
        return Recorded(
            folder, name, user_code.short(environment["id"]), values["run"]["seed"], settings, values, Logs(folder)
        )
    except (UsageError, CheckpointError) as error:
        raise type(error)(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
        raise DuettoError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error


def _complete(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Return the algorithm's options, with defaults for missing ones and without unknown ones."""
    kind = None if algorithm.get("from") else ALGORITHMS.get(algorithm["name"])
    if kind is None:
        return {key: value for key, value in algorithm.items() if key not in ("name", "from")}
    defaults = dataclasses.asdict(kind())
    defaults = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    return {key: algorithm.get(key, defaults[key]) for key in kind.options()}


def _lacks(member: Recorded, metric: str) -> str:
    """Return a sentence if a member lacks the metric, else ""."""
    try:
        member.series(metric)
    except DuettoError as error:
        return str(error)
    return ""


def with_number(group: Group, metric: str) -> Group:
    """Return the group with only the seeds that have the metric, and a notice for each other one."""
    lacking = {id(member): _lacks(member, metric) for member in group.members}
    kept = [member for member in group.members if not lacking[id(member)]]
    notices = [f"Left out: {sentence}" for sentence in lacking.values() if sentence]
    return dataclasses.replace(group, members=kept, notices=(*group.notices, *notices))


def _by_settings(runs: list[Recorded], apart: Callable[[str], str]) -> list[list[Recorded]]:
    """Group runs of the same settings; a seed is in a group only once."""
    groups: list[list[Recorded]] = []
    for run in runs:
        for group in groups:
            same = group[0].settings == run.settings and apart(group[0].name) == apart(run.name)
            if same and run.seed not in [other.seed for other in group]:
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _repeated_seed(group: list[Recorded], groups: list[list[Recorded]]) -> tuple[str, ...]:
    """Return a sentence, in a tuple, if an earlier curve has the same settings and one of the seeds; else ()."""
    first = next(other for other in groups if other[0].settings == group[0].settings)
    if first is group or not {run.seed for run in first} & {run.seed for run in group}:
        return ()
    return (f"{group[0]} has the options of {first[0]} and a seed that is there already: it makes its own curve.",)


def _labels(groups: list[list[Recorded]]) -> list[str]:
    """Return labels of curves: the algorithm, and the options that differ from those of other curves of the same
    algorithm and environment; or the folder's path if that does not tell curves apart.
    """
    labels = [(group[0].environment, _label(group, groups)) for group in groups]
    return [
        label
        if labels.count((environment, label)) == 1
        else str(near(group[0].folder.absolute().parent / _folder_name(group)))
        for (environment, label), group in zip(labels, groups, strict=True)
    ]


def _label(group: list[Recorded], groups: list[list[Recorded]]) -> str:
    settings = group[0].settings
    panel = [other[0] for other in groups if other[0].environment == group[0].environment]
    rivals = [run.settings for run in panel if run.algorithm == group[0].algorithm]
    others = [run.settings for run in panel]  # an environment's options change the task for all algorithms
    options = dict.fromkeys(option for other in rivals + others for option in other)
    differing = [
        option
        for option in options
        if any(
            other.get(option) != settings.get(option) for other in (others if option[0] == "environment" else rivals)
        )
    ]
    if len(differing) > _IN_LABEL or (not differing and len(rivals) > 1):
        return _folder_name(group)
    named = [option for option in differing if option in settings or option != CHANGED]
    return ", ".join([group[0].algorithm, *(f"{option[1]} {settings.get(option, 'default')}" for option in named)])


def _folder_name(group: list[Recorded]) -> str:
    """Return the name of the group's first folder; without the seed if there are several."""
    name = group[0].folder.resolve().name
    return re.sub(r"-s\d+$", "", name) if len(group) > 1 else name
