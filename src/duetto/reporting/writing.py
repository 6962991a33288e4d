"""Writing a report on folders of runs and tables of results to one file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from duetto.display import files
from duetto.display.curves import groups
from duetto.errors import few
from duetto.reporting import charts, sections
from duetto.reporting.page import page, plotly

_MADE_BY = "Made by Duetto"  # as each report says


def report(
    runs: Iterable[str | Path],
    output: str | Path = "report.html",
    metric: str = "mean_return",
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write one self-contained page about `runs`: results, curves, what learning looked like, how to repeat it.

    It fetches nothing. Seeds of the same options make one curve, as in `duetto.plot`; three or more have an
    interquartile mean and a 95 % bootstrap interval. Notices on damage are on the page, and go to stderr.

    Args:
        runs: Folders of runs, and tables that `duetto.table` or others wrote (.csv).
        output: An .html.
        metric: The number that is drawn: a column of `evaluations.csv`, or a number of `metrics.jsonl`.
        tell: Gets a few words now and then on the progress.

    Returns:
        The file.

    Raises:
        UsageError: None of the folders is a run with that number, or one is not there; a table is of another schema
            or lacks that number; an extra is not installed; or `output` is a file that is no report.
        DuettoError: Nothing of a file can be read, or the page cannot be written.
    """
    path = files.check_name(output, ".html", "a report")
    files.check_free(path, lambda file: _MADE_BY.encode() in file.read_bytes(), "report")
    plotly()
    with np.errstate(over="ignore", invalid="ignore"):  # numbers of any size; those that are none are gaps
        html, notices = _html(runs, metric, tell)
    for notice in notices:
        print(notice, file=sys.stderr)
    files.publish(path, html)
    return path


def _html(runs: Iterable[str | Path], metric: str, tell: Callable[[str], None]) -> tuple[str, list[str]]:
    """The page's HTML, and notices on what was found damaged."""
    found = groups(runs, metric)
    drawn = []
    for group in found:
        tell(f"the curve of {group.label} in {group.environment}")
        drawn.append(charts.draw(group, metric))
    above = charts.returns(drawn, metric)
    below, left_out = charts.learning(found, metric, tell)
    films, filmless = sections.videos(found)
    notices = list(dict.fromkeys([*(n for one in drawn for n in one.curve.notices), *left_out, *filmless]))
    parts = [
        ("notices", "", sections.notices(notices)),
        ("results", "Results", sections.overview(drawn, metric)),
        ("curves", "Curves", sections.returns(above, drawn, sections.legend(found, above), metric)),
        ("evaluations", "Evaluations", sections.evaluations(found, metric)),
        ("learning", "Learning", sections.learning(below, len(above), sections.legend(found, below))),
        ("videos", "Videos", films),
        ("configuration", "Configuration", sections.configuration(found)),
        ("repeat", "How to repeat it", sections.repeating(found)),
        ("versions", "Versions", sections.versions(found)),
    ]
    labels = list(dict.fromkeys(sections.short(group.label, 40) for group in found))
    environments = list(dict.fromkeys(sections.short(group.environment, 40) for group in found))
    title = f"{few(labels, most=3)} on {few(environments, most=3)}"
    seeds = sum(len(group.members) for group in found)
    about = f"{len(found)} curve{'s' * (len(found) > 1)} of {seeds} run{'s' * (seeds > 1)}"
    footer = (
        f"{_MADE_BY} {version('duetto')}; curves by plotly {version('plotly')}. Nothing in it comes from a network."
    )
    return page(title, about, parts, [chart.data for chart in (*above, *below)], footer), notices
