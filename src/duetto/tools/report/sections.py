"""The tables, texts and videos of a report as plain data, which the template escapes."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from duetto.errors import DuettoError
from duetto.storage import repeat_command, safe_open
from duetto.storage.safe_yaml import LARGEST
from duetto.tools.plot.grouping import Group, Recorded
from duetto.tools.report import metric_docs
from duetto.tools.report.charts import LONGEST, Chart

LARGEST_VIDEO, LARGEST_VIDEOS = 2**24, 2**26  # bytes of one and of all
_LONGEST_CONFIG = 2**16  # characters of a configuration
_MOST_DIFFERENCES = 60
_FIRST = (("algorithm", "name"), ("environment", "id"))


def short(value: object, most: int = LONGEST) -> str:
    """Return a text cut to a length that fits on a page."""
    words = str(value)
    return words if len(words) <= most else f"{words[:most]}… ({len(words):,} characters)"


def number(value: float) -> str:
    """Return a number with few digits, and a minus as wide as a plus; "–" if it is not finite."""
    if not np.isfinite(value):
        return "–"
    size = abs(value)
    words = f"{value:,.0f}" if size >= 1_000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"
    return words.replace("-", "−")


def steps(value: float) -> str:
    """Return a number of steps as text."""
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration in h, min or s; "–" if it is not finite."""
    if not np.isfinite(seconds):
        return "–"
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"


def evaluations(groups: Sequence[Group], metric: str) -> list[list[object]]:
    """Return a row for each seed: its last value, its maximum, and the spread of the last evaluation's episodes."""
    return [_evaluation(group, member, metric) for group in groups for member in group.members]


def _evaluation(group: Group, member: Recorded, metric: str) -> list[object]:
    series = member.series(metric)
    maxima = np.flatnonzero(series.values == series.values.max())
    best = next((i for i in maxima if series.steps[i] > 0), maxima[0])  # rather than the evaluation before training
    spread = ("std_return", "min_return", "max_return") if metric == "mean_return" else ()
    return [
        short(group.label),
        short(member.name),
        short(group.environment),
        steps(series.steps[-1]),
        number(series.values[-1]),
        *([number(_last(member, name)) for name in spread] or ["–"] * 3),
        number(series.values[best]),
        steps(series.steps[best]),
        duration(float(np.fmax(_last(member, "time/seconds"), _last(member, "seconds")))),
    ]


def _last(member: Recorded, metric: str) -> float:
    try:
        return float(member.series(metric).values[-1])
    except DuettoError:
        return float("nan")


def docs(chart: Chart) -> list[tuple[metric_docs.Meaning, list[str]]]:
    """Return the texts on a chart's metric, each once; with its algorithms if there are several texts."""
    texts: dict[metric_docs.Meaning | None, list[str]] = {}
    for algorithm in dict.fromkeys(run.algorithm for group in chart.groups for run in group.members[:1]):
        texts.setdefault(metric_docs.meaning(algorithm, chart.metrics[0]), []).append(algorithm)
    return [(row, names if len(texts) > 1 else []) for row, names in texts.items() if row is not None]


def videos(groups: Sequence[Group]) -> tuple[list[tuple[Group, str, str]], list[str]]:
    """Return the newest video of each curve as a data URL, with a caption; and notices on unreadable ones."""
    embedded: list[tuple[Group, str, str]] = []
    notices: list[str] = []
    left = LARGEST_VIDEOS
    for group in groups:
        paths = (_newest_video(run.folder) for run in group.members)
        if (path := next(filter(None, paths), None)) is None:
            continue
        try:
            content = safe_open.read_file(path, min(left, LARGEST_VIDEO))
        except DuettoError as error:
            notices.append(str(error))
            continue
        except OSError as error:
            notices.append(f"{path} cannot be read: {error.strerror}.")
            continue
        if content[4:8] != b"ftyp":
            notices.append(f"{path} is no mp4, and is left out.")
            continue
        left -= len(content)
        address = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
        embedded.append((group, address, f"{path.parent.parent.name}, {path.name}"))
    return embedded, notices


def _newest_video(folder: Path) -> Path | None:
    """Return the run's video of the latest step, by its name; None if there is none."""
    try:
        safe_open.check_folders([folder / "videos"])
        paths = [path for path in (folder / "videos").glob("*.mp4") if not path.name.startswith(".")]
    except (DuettoError, OSError):
        return None
    return max(paths, default=None)


def config_text(run: Recorded) -> str:
    """Return the text of the run's `config.yaml`, without signatures."""
    try:
        text = safe_open.read_file(run.folder / "config.yaml", LARGEST).decode()
        return short(re.sub(r"(?m)^ *signature: .*\n", "", text), _LONGEST_CONFIG)
    except (OSError, ValueError) as error:
        raise DuettoError(f"{run.folder / 'config.yaml'} cannot be read: {error}.") from error


def differences(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the table of the options in which curves differ."""
    settings = [group.members[0].settings for group in groups]
    rows = []
    for option in dict.fromkeys([*_FIRST, *(option for options in settings for option in options)]):
        values = [options[option] for options in settings if option in options]
        if any(value != values[0] for value in values):
            cells = [short(options[option]) if option in options else "–" for options in settings]
            rows.append([short(option[1]), *cells])
    more = len(rows) - _MOST_DIFFERENCES
    names = [f"{short(group.label)} in {short(group.environment)}" for group in groups]
    return {"groups": groups, "names": names, "rows": rows[:_MOST_DIFFERENCES], "more": max(more, 0)}


def repeating(groups: Sequence[Group]) -> list[tuple[Group, str, list[str], str]]:
    """Return for each curve the commands that repeat its runs, their requirements, and the recorded commands."""
    rows = []
    for group in groups:
        commands: dict[int, str] = {}
        sentences: dict[str, None] = {}
        recorded: list[str] = []
        for run in group.members:
            commands[run.seed] = repeat_command.command(run.config, "config.yaml")
            needed = (*repeat_command.needed(run.config), *repeat_command.of_its_history(run.config))
            sentences |= dict.fromkeys(needed)
            recorded.append(short(run.config.get("command") or "(none: it was started in Python)", 2_000))
        lines = [f"{command} --seed {seed}" for seed, command in commands.items() if command]
        rows.append((group, "\n".join(lines), list(sentences), "\n".join(recorded)))
    return rows


def versions(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Return the table of the packages' versions, with a column for each set of versions."""
    sets: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for run in (run for group in groups for run in group.members):
        versions = run.config.get("versions")
        versions = versions if isinstance(versions, dict) else {}
        sets.setdefault(yaml.safe_dump(versions), (versions, []))[1].append(run.name)
    names = dict.fromkeys(str(name) for versions, _ in sets.values() for name in versions)
    head = ["version" if len(sets) == 1 else short(", ".join(runs)) for _, runs in sets.values()]
    rows = [
        [short(name), *(short(versions.get(name, "–")) for versions, _ in sets.values())] for name in list(names)[:100]
    ]
    return {"head": ["package", *head], "rows": rows}
