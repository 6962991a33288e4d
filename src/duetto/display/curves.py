"""Grouping runs into learning curves, and the curves' numbers, from what the runs' folders hold; needs no framework.

Runs that differ in nothing but their seed make one curve. How often they are evaluated and logged does not count; all
else does: their length, too, since schedules follow it, the run that they began from, and the contents of a file of the
user's own. A seed that is there twice makes a curve of its own. In a tidy table (see `tidy`) each experiment makes a
curve in each environment. No two curves of an environment have the same label.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from duetto import own_files
from duetto.algorithms import ALGORITHMS
from duetto.display import sources, tidy
from duetto.display.series import Logs, Series
from duetto.display.tidy import Tabled
from duetto.errors import CheckpointError, DuettoError, UsageError, escaped, few
from duetto.storage.config import RunOptions
from duetto.storage.history import History
from duetto.storage.migration import migrated
from duetto.storage.yaml_files import read_yaml

Option = tuple[str, str]  # of the algorithm, the run, the environment or the cluster; its name

_LOOKS = ("evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every")
_UNSEEN: set[Option] = {("run", name) for name in ("seed", "threads", *_LOOKS)}
MOST = 200  # curves; a table that would make more is cut first
CHANGED, SET = ("run", "changed at"), ("run", "with callbacks that set")
_LISTED = 12  # names in a sentence
_NAMED = 3  # differences that a label spells out; with more it takes the folder's name


@dataclass(frozen=True)
class Curve:
    """One number over the steps of runs that only differ in their seed."""

    label: str
    environment: str
    steps: np.ndarray  # (T,), to where the shortest seed ends
    values: np.ndarray  # (seeds, T), interpolated where the seeds were looked at in different steps
    remark: str  # what ends it early
    notices: tuple[str, ...]  # a sentence for each file of which lines cannot be read or were changed


class Member(Protocol):
    """One seed of a curve: a run's folder, or rows of a table."""

    @property
    def name(self) -> str:
        """Its name among the other seeds."""
        ...

    @property
    def seed(self) -> int:
        """Its seed."""
        ...

    def names(self) -> list[str]:
        """The names of the numbers that it has."""
        ...

    def series(self, metric: str) -> Series:
        """One number by step. Raises UsageError if there is none, DuettoError if nothing can be read."""
        ...


@dataclass(frozen=True)
class Recorded:
    """A run as its `config.yaml` describes it. A network of the user's own need not be at hand."""

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
        """See `Logs`."""
        return self.logs.names()

    def series(self, metric: str) -> Series:
        """See `Logs`."""
        return self.logs.series(metric)


@dataclass(frozen=True)
class Group:
    """The seeds of one curve, and notices on what is left out."""

    label: str
    environment: str
    members: Sequence[Member]
    notices: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Recorded]:
        """The members that are runs: all or none."""
        return [member for member in self.members if isinstance(member, Recorded)]


def curves(runs: Iterable[str | Path], metric: str = "mean_return") -> list[Curve]:
    """The curves of `runs`, folders of runs and tidy tables, in their order; see `groups`."""
    return [curve(group, metric) for group in groups(runs, metric)]


def curve(group: Group, metric: str) -> Curve:
    """The curve of a group. Raises UsageError if one of its seeds does not have that number."""
    own = [member.series(metric) for member in group.members]
    notices = (*group.notices, *(each.notice for each in own if each.notice))
    return Curve(group.label, group.environment, *_joined(group.members, own), tuple(dict.fromkeys(notices)))


def groups(
    runs: Iterable[str | Path],
    metric: str | Sequence[str] = "mean_return",
    apart: Callable[[str], str] = lambda _: "",
) -> list[Group]:
    """Group `runs` into curves, in their order; the tables' curves come last.

    If there are folders of runs, tables only count in the runs' environments.

    Args:
        runs: Folders of runs, and tables (.csv). Each counts once, however it is named.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss"; or several,
            of which a run has one at least.
        apart: From a folder's name to what two runs of one curve must have in common.

    Raises:
        UsageError: A folder does not exist, or none of them is a run that has the number; a table is malformed or has
            nothing that fits, or there are too many curves.
        DuettoError: A file is damaged, and nothing of it can be read.
    """
    named: dict[Path, Path] = {}
    for run in listed(runs):
        named.setdefault(Path(run).resolve(), Path(run))
    if not named:
        raise UsageError("No run is named. Give one folder or more, such as runs/td3-*")
    folders = [path for path in named.values() if not tidy.is_table(path)]
    metrics = [metric] if isinstance(metric, str) else list(metric)
    recorded, left_out = _usable(folders, metrics, alone=len(folders) == len(named))
    found = _groups(recorded, apart)
    environments = {group[0].environment for group in found}
    grouped = [
        Group(_cut(label), group[0].environment, group, _again(group, found))
        for label, group in zip(_labels(found), found, strict=True)
    ]
    for path in named.values():
        if tidy.is_table(path):
            grouped += _of_table(path, metrics, environments, {(one.environment, one.label) for one in grouped})
    if len(grouped) > MOST:
        raise UsageError(f"These would be {len(grouped):,} curves, more than {MOST}. Name fewer, or cut the table.")
    first, *others = _told_apart(grouped)
    return [dataclasses.replace(first, notices=(*left_out, *first.notices)), *others]


def listed(runs: Any) -> list[str | Path]:
    """The named paths as a list. UsageError unless `runs` is an iterable of paths."""
    if not isinstance(runs, str | os.PathLike) and isinstance(runs, Iterable):
        found = list(runs)
        if all(isinstance(run, str | os.PathLike) for run in found):
            return found
    raise UsageError(f"runs is {runs!r:.200}; it must be a list of folders, such as ['runs/td3-Pendulum-v1-s0'].")


def _of_table(path: Path, metrics: Sequence[str], environments: set[str], taken: set[tuple[str, str]]) -> list[Group]:
    """The curves of a table in these environments, or in all if none is named. UsageError if it has none of them."""
    seeds = tidy.read(path)
    there = list(dict.fromkeys(seed.environment for seed in seeds))
    wanted = [seed for seed in seeds if not environments or seed.environment in environments]
    if not wanted:
        raise UsageError(
            f"{path} has none of the runs' environments ({few(sorted(environments), _LISTED)}). It has: "
            f"{few(there, _LISTED)}. Where they are the same by another name, give them one name in the table."
        )
    having = [seed for seed in wanted if any(map(seed.has, metrics))]
    if not having:
        called = " and no ".join(repr(tidy.their(metric)) for metric in metrics)
        names = dict.fromkeys(name for seed in wanted for name in seed.names())
        raise UsageError(f"{path} has no {called}. It has: {few(list(names), _LISTED)}.")
    notices = []
    if others := len(set(there) - {seed.environment for seed in wanted}):
        notices.append(f"{others} of the environments of {path} are those of no run and are left out.")
    if lacking := len(wanted) - len(having):
        called = " or ".join(map(repr, metrics))
        notices.append(f"{lacking} of the seeds of {path} have no {called} and are left out.")
    members: dict[tuple[str, str], list[Tabled]] = {}
    for seed in having:
        members.setdefault((seed.environment, seed.experiment), []).append(seed)
    return [
        Group(label if (where, label) not in taken else f"{label} ({path})", where, group, tuple(notices))
        for (where, label), group in members.items()
    ]


def _told_apart(grouped: list[Group]) -> list[Group]:
    """The groups, with a number after each label that an earlier curve of the environment has."""
    taken: set[tuple[str, str]] = set()
    found: list[Group] = []
    for group in grouped:
        label, number = _cut(group.label), 1
        while (group.environment, label) in taken:
            number += 1
            label = _cut(group.label, f" ({number})")
        taken.add((group.environment, label))
        found.append(dataclasses.replace(group, label=label))
    return found


def _cut(label: str, ending: str = "") -> str:
    """The label, no longer than a table's names may be, and as a table would return it."""
    label, most = escaped(label).strip(), tidy.LONGEST - len(ending)
    return (label if len(label) <= most else f"{label[: most - 1]}…") + ending


# ---------------------------------------------------------------------------------------------------- which runs
def _usable(folders: Sequence[Path], metrics: Sequence[str], alone: bool) -> tuple[list[Recorded], list[str]]:
    """The runs that have one of the numbers, and a sentence for each other folder, such as a sweep's `logs`.

    If no run has one and there are no tables (`alone`), the error of the first run is raised, else of the first folder.
    """
    found: list[Recorded] = []
    errors: list[DuettoError] = []
    runs: list[DuettoError] = []  # those of them that are about a run
    for folder in folders:
        try:
            run = _recorded(folder)
            if all(_lacks(run, metric) for metric in metrics[1:]):
                run.series(metrics[0])
            found.append(run)
        except DuettoError as error:
            if not folder.exists():
                raise
            errors.append(error)
            runs += [error] if (folder / "config.yaml").is_file() else []
    if errors and not found and alone:
        raise (runs or errors)[0]
    return found, [f"Left out: {error}" for error in errors]


def _recorded(folder: Path) -> Recorded:
    path = folder / "config.yaml"
    if not path.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {path.name}.")
    try:
        values = migrated(read_yaml(path))
        algorithm, environment = values["algorithm"], values["environment"]
        name = algorithm["name"]
        sections = {
            "algorithm": {"from": sources.of_algorithm(algorithm)} | _complete(algorithm),
            "run": dataclasses.asdict(RunOptions()) | values["run"] | {"from": sources.of_networks(values)},
            "environment": environment["options"],
            "cluster": values.get("cluster") or {},
        }
        settings = {(where, key): value for where, found in sections.items() for key, value in found.items()}
        settings |= {("algorithm", "name"): name, ("environment", "id"): _with_checksum(environment)}
        settings = {option: value for option, value in settings.items() if option not in _UNSEEN}
        settings |= {option: value for option, value in _history(values).items() if value}
        if not (isinstance(environment["id"], str) and isinstance(values["run"]["seed"], int)):
            raise TypeError("an id is text, and a seed a whole number")
        return Recorded(
            folder, name, own_files.short(environment["id"]), values["run"]["seed"], settings, values, Logs(folder)
        )
    except (UsageError, CheckpointError) as error:
        raise type(error)(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
        raise DuettoError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error


def _complete(algorithm: dict[str, Any]) -> dict[str, Any]:
    """The algorithm's options: with defaults for what an older version did not write, without what nobody reads."""
    kind = None if algorithm.get("from") else ALGORITHMS.get(algorithm["name"])
    if kind is None:
        return {key: value for key, value in algorithm.items() if key not in ("name", "from")}
    defaults = dataclasses.asdict(kind())
    defaults = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    return {key: algorithm.get(key, defaults[key]) for key in kind.options()}


def _with_checksum(environment: dict[str, Any]) -> str:
    """The environment's id, with the checksum of its file if it has one."""
    name, checksum = environment["id"], environment.get("sha256")
    return f"{name} (sha256 {checksum[:8]})" if checksum else name


def _history(values: dict[str, Any]) -> dict[Option, str]:
    """What was changed in a run after it had begun."""
    history = History.of(values)
    return {CHANGED: "; ".join(map(str, history.changed)), SET: ", ".join(history.attributes)}


def _lacks(member: Member, metric: str) -> str:
    """A sentence on why a member does not have the number; "" if it has."""
    try:
        member.series(metric)
    except DuettoError as error:
        return str(error)
    return ""


def with_number(group: Group, metric: str) -> Group:
    """The group with only the seeds that have the number, and a notice for each other one."""
    lacking = {id(member): _lacks(member, metric) for member in group.members}
    kept = [member for member in group.members if not lacking[id(member)]]
    notices = [f"Left out: {sentence}" for sentence in lacking.values() if sentence]
    return dataclasses.replace(group, members=kept, notices=(*group.notices, *notices))


def _groups(runs: list[Recorded], apart: Callable[[str], str]) -> list[list[Recorded]]:
    groups: list[list[Recorded]] = []
    for run in runs:
        alike = [group for group in groups if group[0].settings == run.settings]
        alike = [group for group in alike if apart(group[0].name) == apart(run.name)]
        without_it = [group for group in alike if run.seed not in [other.seed for other in group]]
        if without_it:
            without_it[0].append(run)
        else:
            groups.append([run])
    return groups


def _again(group: list[Recorded], groups: list[list[Recorded]]) -> tuple[str, ...]:
    """A sentence, in a tuple, if an earlier curve has the same settings and one of its seeds; else ()."""
    first = next(other for other in groups if other[0].settings == group[0].settings)
    if first is group or not {run.seed for run in first} & {run.seed for run in group}:
        return ()
    return (f"{group[0]} has the options of {first[0]} and a seed that is there already: it is in a curve of its own.",)


def _labels(groups: list[list[Recorded]]) -> list[str]:
    """Labels of curves: the algorithm, and the options in which it differs from other curves of the same algorithm and
    environment; their folders if these labels are equal.
    """
    alike: dict[tuple[str, str], list[Path]] = {}
    labels = [(group[0].environment, _label(group, groups)) for group in groups]
    paths = [group[0].folder.resolve().parent / _folder_name(group) for group in groups]
    for label, path in zip(labels, paths, strict=True):
        alike.setdefault(label, []).append(path)
    return [
        label[1] if len(alike[label]) == 1 else _end(path, alike[label])
        for label, path in zip(labels, paths, strict=True)
    ]


def _end(path: Path, others: list[Path]) -> str:
    """The shortest end of a path that no other path has, of at least two names."""
    lengths = range(2, len(path.parts))
    unlike = (
        length for length in lengths if [other.parts[-length:] for other in others].count(path.parts[-length:]) == 1
    )
    return "/".join(path.parts[-next(unlike, 2) :])


def _label(group: list[Recorded], groups: list[list[Recorded]]) -> str:
    ours, panel = group[0].settings, [other[0] for other in groups if other[0].environment == group[0].environment]
    rivals = [run.settings for run in panel if run.algorithm == group[0].algorithm]
    others = [run.settings for run in panel]  # an environment's options make it another task, whoever learns it
    options = dict.fromkeys(option for one in rivals + others for option in one)
    differing = [
        option
        for option in options
        if any(one.get(option) != ours.get(option) for one in (others if option[0] == "environment" else rivals))
    ]
    if len(differing) > _NAMED or (not differing and len(rivals) > 1):
        return _folder_name(group)
    named = [option for option in differing if option in ours or option not in (CHANGED, SET)]
    return ", ".join([group[0].algorithm, *(f"{option[1]} {ours.get(option, 'default')}" for option in named)])


def _folder_name(group: list[Recorded]) -> str:
    """The folder's name of the group's first run; of several seeds, without the seed."""
    name = group[0].folder.resolve().name
    return re.sub(r"-s\d+$", "", name) if len(group) > 1 else name


# ---------------------------------------------------------------------------------------------------- its numbers
def _joined(group: Sequence[Member], found: list[Series]) -> tuple[np.ndarray, np.ndarray, str]:
    """Join series into steps (T,) and values (seeds, T); also return a remark on what ends them early, or ""."""
    series = [(one.steps, one.values) for one in found]
    begin, end = max(steps[0] for steps, _ in series), min(steps[-1] for steps, _ in series)
    within = [(steps >= begin) & (steps <= end) for steps, _ in series]
    # Of the shortest, so that none ends later: what the others have at its last step is between two of theirs.
    place = min(range(len(series)), key=lambda one: series[one][0][-1])
    steps = series[place][0][within[place]]
    if len(steps) == 0:
        raise UsageError(f"{' and '.join(map(str, group))} share no steps. Plot them one by one.")
    shortest = min(zip(group, series, strict=True), key=lambda pair: pair[1][0][-1])[0]
    remark = f", as far as {shortest.name} is" if any(own[-1] > end for own, _ in series) else ""
    if all(np.array_equal(own[inside], steps) for (own, _), inside in zip(series, within, strict=True)):
        return steps, np.stack([values[inside] for (_, values), inside in zip(series, within, strict=True)]), remark
    return steps, np.stack([np.interp(steps, *once(*each)) for each in series]), remark


def once(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps (T,) and values (T,) with only the last value of each step: step 0 has two, before and after
    pre-training.
    """
    last = dict(zip(steps.tolist(), values.tolist(), strict=True))
    return np.array(list(last)), np.array(list(last.values()))
