"""Write a report on run folders to one file, from a template.

The template escapes all texts, so a stranger's run cannot insert markup; the page runs no script. Charts are SVG images
without a background, in colors that are readable on light and dark pages.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import DuettoError, UsageError, escaped, few
from duetto.install_hint import install
from duetto.storage import atomic_io, reproducibility, safe_open
from duetto.storage.safe_yaml import LARGEST
from duetto.tools.plot.curves import (
    MIN_SEEDS,
    Curve,
    curve,
    draw,
    finish,
    height_of,
    interquartile_mean,
    new_figure,
    number,
)
from duetto.tools.plot.grouping import LONGEST, Group, Recorded, groups
from duetto.tools.report import metric_docs

_MADE_BY = "Made by Duetto"  # in each report: only a file that contains it is overwritten
LARGEST_VIDEO = 2**24  # bytes
_LONGEST_CONFIG = 2**16  # characters of a configuration
_FIRST = (("algorithm", "name"), ("environment", "id"))
MOST_POINTS = 300  # largest number of points of a curve in a chart
_HIDDEN = ("train/episodes", "learn/updates", "episodes", "seconds", "mean_length")
_HIDDEN += ("std_return", "min_return", "max_return")
_COLORED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
# Matplotlib's settings: text stays text, and the same runs give the same bytes.
STYLE: dict[Any, Any] = dict.fromkeys(_COLORED, "#768390") | {
    "svg.fonttype": "none",
    "svg.hashsalt": "duetto",
    "legend.framealpha": 0,
}


@dataclass(frozen=True)
class Chart:
    """The curves in one pair of axes."""

    environment: str
    metrics: tuple[str, ...]  # the first is drawn with lines or a band for its seeds, the others as dotted lines
    groups: tuple[Group, ...]
    image: str  # a data URL


def report(
    runs: Iterable[str | Path],
    output: str | Path = "report.html",
    metric: str = "mean_return",
) -> Path:
    """Write one page about `runs`: results, curves, learning metrics, and the commands that repeat the runs.

    The page needs no network. Runs that differ only in their seed make one curve, as in `duetto.plot`. A curve of three
    seeds or more has an interquartile mean and a 95 % bootstrap interval. Notices on damaged files are on the page and
    on stderr.

    Args:
        runs: Folders of runs.
        output: An .html file.
        metric: The metric of the curves: a column of `evaluations.csv`, or a number of `metrics.jsonl`.

    Returns:
        The file's path.

    Raises:
        UsageError: A folder is missing, or none is a run with the metric; an extra is not installed; or `output` is a
            file that is not a report.
        DuettoError: A file is damaged so that nothing can be read, or the page cannot be written.
    """
    path = atomic_io.check_suffix(output, ".html", "a report")
    atomic_io.check_replaceable(path, lambda file: _MADE_BY.encode() in file.read_bytes(), "report")
    try:
        import jinja2  # noqa: F401
        from matplotlib import rc_context
    except ImportError as error:
        raise UsageError(f"Reports need Matplotlib and Jinja2. Install: {install('report')}") from error
    with np.errstate(over="ignore", invalid="ignore"), rc_context(STYLE):  # too large numbers become gaps
        context = _context(runs, metric)
    for notice in context["notices"]:
        print(escaped(notice), file=sys.stderr)
    atomic_io.write_output(path, _render(context))
    return path


def _context(runs: Iterable[str | Path], metric: str) -> dict[str, Any]:
    """Return the template's variables."""
    grouped = groups(runs, metric)
    curves = [curve(group, metric) for group in grouped]
    films, missing = videos(grouped)
    labels, environments = (
        list(dict.fromkeys(short(name, 40) for name in names))
        for names in ([group.label for group in grouped], [group.environment for group in grouped])
    )
    seeds = sum(len(group.members) for group in grouped)
    notices = [*(notice for each in curves for notice in each.notices), *missing]
    return {
        "title": f"{few(labels, 3, '; ')} on {few(environments, most=3)}",
        "about": f"{len(grouped)} curve{'s' * (len(grouped) > 1)} of {seeds} run{'s' * (seeds > 1)}",
        "metric": short(metric).replace("_", " "),
        "notices": list(dict.fromkeys(notices)),
        "min_seeds": MIN_SEEDS,
        "results": results(curves),
        "returns": returns(grouped, curves, metric),
        "learning": learning(grouped, metric),
        "videos": films,
        "differences": differences(grouped),
        "repeating": repeating(grouped),
        "footer": f"{_MADE_BY} {version('duetto')}. This page needs no network.",
    }


def _render(context: dict[str, Any]) -> str:
    """Fill in the template, with variables escaped for HTML and without control characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def finalize(value: object) -> object:
        return escaped(str(value)) if not isinstance(value, Markup) else value

    def code(words: str) -> Markup:
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))

    loader = PackageLoader("duetto.tools.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=finalize)
    environment.filters |= {"code": code, "docs": docs, "short": short}
    environment.filters |= {"config_text": config_text}
    return environment.get_template("report.html").render(context)


# ---------------------------------------------------------------------------------------------------- parts of the page
def short(value: object, most: int = LONGEST) -> str:
    """Cut a text to at most `most` characters."""
    words = str(value)
    return words if len(words) <= most else f"{words[:most]}…"


def results(curves: Sequence[Curve]) -> list[list[object]]:
    """Return a row per curve: label, environment, seeds, last step, interquartile mean, interval, highest mean."""
    rows: list[list[object]] = []
    for each in curves:
        middle, low, high = each.last()
        interval = "–" if low is None or high is None else f"{number(low)} to {number(high)}"
        maximum = float(interquartile_mean(each.values).max())
        about = [short(each.label), short(each.environment), len(each.values), f"{each.steps[-1]:,.0f}"]
        rows.append([*about, number(middle), interval, number(maximum)])
    return rows


def docs(chart: Chart) -> list[tuple[metric_docs.Meaning, list[str]]]:
    """Return the explanations of a chart's metric. If they differ by algorithm, each has a list of its algorithms."""
    texts: dict[metric_docs.Meaning | None, list[str]] = {}
    for algorithm in dict.fromkeys(run.algorithm for group in chart.groups for run in group.members[:1]):
        texts.setdefault(metric_docs.meaning(algorithm, chart.metrics[0]), []).append(algorithm)
    return [(row, names if len(texts) > 1 else []) for row, names in texts.items() if row is not None]


def videos(groups: Sequence[Group]) -> tuple[list[tuple[Group, str, str]], list[str]]:
    """Return the curves' videos, each as its group, a data URL and a caption; and notices on unreadable videos.

    A curve's video is the newest one of its first run that has videos.
    """
    embedded: list[tuple[Group, str, str]] = []
    notices: list[str] = []
    for group in groups:
        paths = (_newest_video(run.folder) for run in group.members)
        if (path := next(filter(None, paths), None)) is None:
            continue
        try:
            content = safe_open.read_file(path, LARGEST_VIDEO)
        except (DuettoError, OSError) as error:
            notices.append(f"{path} is left out: {error}")
            continue
        address = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
        embedded.append((group, address, f"{path.parent.parent.name}, {path.name}"))
    return embedded, notices


def _newest_video(folder: Path) -> Path | None:
    """Return the run's newest video, by the step in the file's name; None if the run has no video."""
    try:
        safe_open.check_folders([folder / "videos"])
        paths = [path for path in (folder / "videos").glob("*.mp4") if not path.name.startswith(".")]
    except (DuettoError, OSError):
        return None
    return max(paths, default=None)


def config_text(run: Recorded) -> str:
    """Return the text of the run's `config.yaml`, without its cryptographic signature."""
    text = safe_open.read_file(run.folder / "config.yaml", LARGEST).decode()
    return short(re.sub(r"(?m)^ *signature: .*\n", "", text), _LONGEST_CONFIG)


def differences(groups: Sequence[Group]) -> dict[str, Any]:
    """Return a table of the options whose values differ between the groups (a group of runs is one curve)."""
    settings = [group.members[0].settings for group in groups]
    rows = []
    for option in dict.fromkeys([*_FIRST, *(option for options in settings for option in options)]):
        values = [options[option] for options in settings if option in options]
        if any(value != values[0] for value in values):
            cells = [short(options[option]) if option in options else "–" for options in settings]
            rows.append([short(option[1]), *cells])
    names = [f"{short(group.label)} in {short(group.environment)}" for group in groups]
    return {"groups": groups, "names": names, "rows": rows}


def repeating(groups: Sequence[Group]) -> list[tuple[Group, str, list[str]]]:
    """Return, for each curve, the commands that repeat its runs, and sentences on requirements and limits."""
    rows = []
    for group in groups:
        commands = {run.seed: reproducibility.repeat_command(run.config, "config.yaml") for run in group.members}
        sentences: dict[str, None] = {}
        for run in group.members:
            needed = (*reproducibility.needed(run.config), *reproducibility.of_its_history(run.config))
            sentences |= dict.fromkeys(needed)
        lines = [f"{command} --seed {seed}" for seed, command in commands.items() if command]
        rows.append((group, "\n".join(lines), list(sentences)))
    return rows


# ---------------------------------------------------------------------------------------------------- charts
def returns(groups: Sequence[Group], curves: Sequence[Curve], metric: str) -> list[Chart]:
    """Draw `metric`, usually the return: one chart per environment, with bands as in `duetto plot`."""
    by_environment: dict[str, list[tuple[Group, list[Curve]]]] = {}
    for group, each in zip(groups, curves, strict=True):
        by_environment.setdefault(group.environment, []).append((group, [each]))
    return [_chart((metric,), drawn, _labels(groups), is_main=True) for drawn in by_environment.values()]


def learning(groups: Sequence[Group], metric: str) -> list[Chart]:
    """Draw the metrics that `_shared` selects, in a chart for each environment and quantity."""
    charts: list[Chart] = []
    for environment in dict.fromkeys(group.environment for group in groups):
        here = [group for group in groups if group.environment == environment]
        for metrics in _shared(here, metric):
            drawn: list[tuple[Group, list[Curve]]] = []
            for group in here:
                with suppress(DuettoError):  # a seed lacks the metric
                    drawn.append((group, [curve(group, name) for name in metrics]))
            if drawn:
                charts.append(_chart(metrics, drawn, _labels(groups), is_main=False))
    return charts


def _chart(
    metrics: tuple[str, ...], drawn: Sequence[tuple[Group, list[Curve]]], labels: list[str], is_main: bool
) -> Chart:
    """Draw a curve for each group and metric. Only the main charts have bands and an axis title."""
    canvas = new_figure(9.0, height_of(labels)) if is_main else new_figure(5.0, 2.6)
    axes = canvas.add_subplot()
    for group, curves in drawn:
        style = labels.index(group.label)
        first, *others = map(_thinned, curves)
        draw(axes, group.label, first.steps, first.values, style, first.remark, band=is_main)
        for other in others:
            axes.plot(other.steps, other.values.mean(0), f"C{style % 10}:", linewidth=1.3)
    finish(axes, "", metrics[0].replace("_", " ") if is_main else "", legend=is_main or len(drawn) > 1)
    return Chart(drawn[0][0].environment, metrics, tuple(group for group, _ in drawn), _image(canvas))


def _shared(groups: Sequence[Group], metric: str) -> list[tuple[str, ...]]:
    """Return the metrics that all seeds of at least one curve have, without `metric`, times and `_HIDDEN`.

    The mean, minimum and maximum of a quantity make one tuple.
    """
    names = {name for group in groups for name in set.intersection(*(set(run.names()) for run in group.members))}
    families: dict[str, list[str]] = {}
    for name in sorted(names - {metric, *_HIDDEN}):
        if not name.startswith("time/"):
            families.setdefault(metric_docs.stem(name), []).append(name)
    return [tuple(sorted(family, key=lambda name: not name.endswith("_mean"))) for family in families.values()]


def _image(canvas: Any) -> str:
    file = io.BytesIO()
    canvas.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def _thinned(curve: Curve) -> Curve:
    """Return the curve with at most MOST_POINTS evenly spaced points, including the first and the last."""
    if len(curve.steps) <= MOST_POINTS:
        return curve
    kept = np.unique(np.linspace(0, len(curve.steps) - 1, MOST_POINTS).round().astype(int))
    return replace(curve, steps=curve.steps[kept], values=curve.values[:, kept])


def _labels(groups: Sequence[Group]) -> list[str]:
    """Return all labels. A label's index selects its color, the same in every chart."""
    return list(dict.fromkeys(group.label for group in groups))
