"""Write a report on folders of runs to one file: tables, texts and videos as plain data, which a template escapes.

A stranger's text stays text, and the page runs no script.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import DuettoError, UsageError, escaped, few
from duetto.install_hint import install
from duetto.storage import atomic_io, reproducibility, safe_open
from duetto.storage.safe_yaml import LARGEST
from duetto.tools.plot.curves import MIN_SEEDS, Curve, curve, interquartile_mean, number
from duetto.tools.plot.grouping import LONGEST, Group, Recorded, groups
from duetto.tools.report import charts, metric_docs

_MADE_BY = "Made by Duetto"  # in each report
LARGEST_VIDEO, LARGEST_VIDEOS = 2**24, 2**26  # bytes of one and of all
_LONGEST_CONFIG = 2**16  # characters of a configuration
_FIRST = (("algorithm", "name"), ("environment", "id"))


def report(
    runs: Iterable[str | Path],
    output: str | Path = "report.html",
    metric: str = "mean_return",
) -> Path:
    """Write one self-contained page about `runs`: results, curves, metrics of learning, how to repeat it.

    It needs no network. Seeds of the same options make one curve, as in `duetto.plot`; three or more have an
    interquartile mean and a 95 % bootstrap interval. Notices on damage are on the page and on stderr.

    Args:
        runs: Folders of runs.
        output: An .html.
        metric: The metric of the curves: a column of `evaluations.csv`, or a number of `metrics.jsonl`.

    Returns:
        The file.

    Raises:
        UsageError: None of the folders is a run with that metric, or one is missing; an extra is not installed; or
            `output` is a file that is no report.
        DuettoError: Nothing of a file can be read, or the page cannot be written.
    """
    path = atomic_io.check_suffix(output, ".html", "a report")
    atomic_io.check_replaceable(path, lambda file: _MADE_BY.encode() in file.read_bytes(), "report")
    try:
        import jinja2  # noqa: F401
        from matplotlib import rc_context
    except ImportError as error:
        raise UsageError(f"Reports need Matplotlib and Jinja2. Install: {install('report')}") from error
    with np.errstate(over="ignore", invalid="ignore"), rc_context(charts.STYLE):  # numbers too large are gaps
        context = _context(runs, metric)
    for notice in context["notices"]:
        print(notice, file=sys.stderr)
    atomic_io.write_output(path, _render(context))
    return path


def _context(runs: Iterable[str | Path], metric: str) -> dict[str, Any]:
    """Return the template's variables."""
    grouped = groups(runs, metric)
    curves = [curve(group, metric) for group in grouped]
    returns = charts.returns(grouped, curves, metric)
    learning, more = charts.learning(grouped, metric)
    films, missing = videos(grouped)
    labels, environments = (
        list(dict.fromkeys(short(name, 40) for name in names))
        for names in ([group.label for group in grouped], [group.environment for group in grouped])
    )
    seeds = sum(len(group.members) for group in grouped)
    notices = [*(notice for each in curves for notice in each.notices), *missing]
    notices += [f"{more:,} more numbers of the runs are not shown."] * (more > 0)
    return {
        "title": f"{few(labels, most=3)} on {few(environments, most=3)}",
        "about": f"{len(grouped)} curve{'s' * (len(grouped) > 1)} of {seeds} run{'s' * (seeds > 1)}",
        "metric": short(metric).replace("_", " "),
        "notices": list(dict.fromkeys(notices)),
        "min_seeds": MIN_SEEDS,
        "results": results(curves),
        "returns": returns,
        "learning": learning,
        "videos": films,
        "differences": differences(grouped),
        "repeating": repeating(grouped),
        "footer": f"{_MADE_BY} {version('duetto')}. This page needs no network.",
    }


def _render(context: dict[str, Any]) -> str:
    """Fill in the template. Each variable is text, escaped for HTML, without control and bidirectional characters."""
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
    """Return a text cut to a length that fits on a page."""
    words = str(value)
    return words if len(words) <= most else f"{words[:most]}…"


def results(curves: Sequence[Curve]) -> list[list[object]]:
    """Return a row for each curve: its value at the end with its interval, and its maximum."""
    rows: list[list[object]] = []
    for each in curves:
        middle, low, high = each.last()
        interval = "–" if low is None or high is None else f"{number(low)} to {number(high)}"
        maximum = float(interquartile_mean(each.values).max())
        about = [short(each.label), short(each.environment), len(each.values), f"{each.steps[-1]:,.0f}"]
        rows.append([*about, number(middle), interval, number(maximum)])
    return rows


def docs(chart: charts.Chart) -> list[tuple[metric_docs.Meaning, list[str]]]:
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
        except (DuettoError, OSError) as error:
            notices.append(f"{path} is left out: {error}")
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
    text = safe_open.read_file(run.folder / "config.yaml", LARGEST).decode()
    return short(re.sub(r"(?m)^ *signature: .*\n", "", text), _LONGEST_CONFIG)


def differences(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the table of the options in which curves differ."""
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
    """Return for each curve the commands that repeat its runs, and their requirements."""
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
