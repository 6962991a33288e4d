"""Write a report on folders of runs to one file.

A stranger's text stays text: the template escapes it, and the page's policy allows only the page's two scripts.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import UsageError, escaped, few
from duetto.install_hint import install
from duetto.storage import atomic_io
from duetto.tools.plot.grouping import groups
from duetto.tools.report import charts, sections

_MADE_BY = "Made by Duetto"  # in each report


def report(
    runs: Iterable[str | Path],
    output: str | Path = "report.html",
    metric: str = "mean_return",
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write one self-contained page about `runs`: results, curves, metrics of learning, how to repeat it.

    It needs no network. Seeds of the same options make one curve, as in `duetto.plot`; three or more have an
    interquartile mean and a 95 % bootstrap interval. Notices on damage are on the page and on stderr.

    Args:
        runs: Folders of runs.
        output: An .html.
        metric: The metric of the curves: a column of `evaluations.csv`, or a number of `metrics.jsonl`.
        tell: Gets a few words now and then on the progress.

    Returns:
        The file.

    Raises:
        UsageError: None of the folders is a run with that metric, or one is missing; an extra is not installed; or
            `output` is a file that is no report.
        DuettoError: Nothing of a file can be read, or the page cannot be written.
    """
    path = atomic_io.check_suffix(output, ".html", "a report")
    atomic_io.check_replaceable(path, lambda file: _MADE_BY.encode() in file.read_bytes(), "report")
    script = plotly()
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are gaps
        context = _context(runs, metric, tell)
        page = _render(script, context)
    for notice in context["notices"]:
        print(notice, file=sys.stderr)
    atomic_io.write_output(path, page)
    return path


def plotly() -> str:
    """Return plotly's JavaScript, from its Python package. Raises UsageError if an extra's package is missing."""
    try:
        import jinja2  # noqa: F401
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(f"Reports need plotly and Jinja2. Install: {install('report')}") from error
    return get_plotlyjs()


def _context(runs: Iterable[str | Path], metric: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the template's variables."""
    grouped = groups(runs, metric)
    drawn = []
    for group in grouped:
        tell(f"the curve of {group.label} in {group.environment}")
        drawn.append(charts.draw(group, metric))
    returns = charts.returns(drawn, metric)
    learning, left_out = charts.learning(grouped, metric, tell)
    videos, missing = sections.videos(grouped)
    labels, environments = (
        list(dict.fromkeys(sections.short(name, 40) for name in names))
        for names in ([group.label for group in grouped], [group.environment for group in grouped])
    )
    seeds = sum(len(group.members) for group in grouped)
    return {
        "title": f"{few(labels, most=3)} on {few(environments, most=3)}",
        "about": f"{len(grouped)} curve{'s' * (len(grouped) > 1)} of {seeds} run{'s' * (seeds > 1)}",
        "metric": sections.short(metric).replace("_", " "),
        "notices": list(
            dict.fromkeys([*(notice for each in drawn for notice in each.curve.notices), *left_out, *missing])
        ),
        "banded": charts.BANDED,
        "few_seeds": any(len(group.members) < charts.BANDED for group in grouped),
        "drawn": drawn,
        "returns": returns,
        "evaluations": sections.evaluations(grouped, metric),
        "learning": learning,
        "figures": [chart.figure for chart in (*returns, *learning)],
        "videos": videos,
        "differences": sections.differences(grouped),
        "repeating": sections.repeating(grouped),
        "versions": sections.versions(grouped),
        "footer": f"{_MADE_BY} {version('duetto')}; curves by plotly {version('plotly')}. It needs no network.",
    }


def _render(plotly: str, context: dict[str, Any]) -> str:
    """Fill in the template. Each variable is text, escaped for HTML, without control and bidirectional characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def finalize(value: object) -> object:
        return escaped(str(value)) if not isinstance(value, Markup) else value

    def code(words: str) -> Markup:
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))

    def checksum(script: str) -> Markup:
        return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")

    loader = PackageLoader("duetto.tools.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=finalize)
    environment.filters |= {"code": code, "checksum": checksum, "docs": sections.docs, "short": sections.short}
    environment.filters |= {"config_text": sections.config_text, "number": sections.number, "steps": sections.steps}
    script = plotly.replace("\r\n", "\n").replace("\r", "\n")  # as a browser reads it, for the checksum
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return environment.get_template("report.html").render(context, plotly=Markup(script))
