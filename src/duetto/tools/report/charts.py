"""Draw the charts of a report as SVG images: the returns, and the metrics of learning.

Lines and text have colors that are readable on a light and on a dark page; the background is the page's.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duetto.errors import DuettoError
from duetto.tools.plot import figure
from duetto.tools.plot.curves import Curve, curve
from duetto.tools.plot.grouping import Group
from duetto.tools.report import metric_docs

MOST_CHARTS = 60  # besides the returns
MOST_POINTS = 300  # of a curve
_HIDDEN = ("train/episodes", "learn/updates", "episodes", "seconds", "mean_length")
_SPREAD = ("std_return", "min_return", "max_return")  # in the table of evaluations
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
    metrics: tuple[str, ...]  # the first is the curve; the others are dotted
    groups: tuple[Group, ...]
    image: str  # a data URL


def returns(groups: Sequence[Group], curves: Sequence[Curve], metric: str) -> list[Chart]:
    """Draw the returns, a chart for each environment, with the bands of `duetto plot`."""
    by_environment: dict[str, list[tuple[Group, list[Curve]]]] = {}
    for group, each in zip(groups, curves, strict=True):
        by_environment.setdefault(group.environment, []).append((group, [each]))
    return [_chart((metric,), drawn, _labels(groups), is_main=True) for drawn in by_environment.values()]


def learning(groups: Sequence[Group], metric: str) -> tuple[list[Chart], int]:
    """Draw every other metric that the seeds of a curve share, and return the number of metrics that are too many."""
    wanted: list[tuple[list[Group], tuple[str, ...]]] = []
    for environment in dict.fromkeys(group.environment for group in groups):
        here = [group for group in groups if group.environment == environment]
        wanted += [(here, metrics) for metrics in _shared(here, metric)]
    charts: list[Chart] = []
    for here, metrics in wanted[:MOST_CHARTS]:
        drawn: list[tuple[Group, list[Curve]]] = []
        for group in here:
            with suppress(DuettoError):  # a seed lacks it
                drawn.append((group, [curve(group, name) for name in metrics]))
        if drawn:
            charts.append(_chart(metrics, drawn, _labels(groups), is_main=False))
    return charts, max(0, len(wanted) - MOST_CHARTS)


def _chart(
    metrics: tuple[str, ...], drawn: Sequence[tuple[Group, list[Curve]]], labels: list[str], is_main: bool
) -> Chart:
    """Draw groups with a curve for each metric; only the main charts have bands and a title of the axis."""
    canvas = figure.new_figure(9.0, figure.height_of(labels)) if is_main else figure.new_figure(5.0, 2.6)
    axes = canvas.add_subplot()
    for group, curves in drawn:
        style = labels.index(group.label)
        first, *others = map(_thinned, curves)
        figure.draw(axes, group.label, first.steps, first.values, style, first.remark, band=is_main)
        for other in others:
            axes.plot(other.steps, other.values.mean(0), f"C{style % 10}:", linewidth=1.3)
    figure.finish(axes, "", metrics[0].replace("_", " ") if is_main else "", legend=is_main or len(drawn) > 1)
    return Chart(drawn[0][0].environment, metrics, tuple(group for group, _ in drawn), _image(canvas))


def _shared(groups: Sequence[Group], metric: str) -> list[tuple[str, ...]]:
    """Return metrics that all seeds of some curve have, in families of mean, min and max; documented ones first."""
    names = dict.fromkeys(
        name
        for group in groups
        for name in group.members[0].names()
        if all(name in member.names() for member in group.members)
    )
    hidden = {name for name in names if name.startswith("time/") or name in (*_HIDDEN, *_SPREAD)} | {metric}
    documented = [name for group in groups for run in group.members[:1] for name in metric_docs.order(run.algorithm)]
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys([*(name for name in documented if name in names), *sorted(names)]):
        if name not in hidden:
            families.setdefault(metric_docs.stem(name), []).append(name)
    return [tuple(sorted(family, key=lambda name: not name.endswith("_mean"))) for family in families.values()]


def _image(canvas: Any) -> str:
    file = io.BytesIO()
    canvas.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def _thinned(curve: Curve) -> Curve:
    """Return the curve with the first point, the last, and evenly spaced ones between."""
    if len(curve.steps) <= MOST_POINTS:
        return curve
    kept = np.unique(np.linspace(0, len(curve.steps) - 1, MOST_POINTS).round().astype(int))
    return replace(curve, steps=curve.steps[kept], values=curve.values[:, kept])


def _labels(groups: Sequence[Group]) -> list[str]:
    """Return the labels: each has the same color in every chart."""
    return list(dict.fromkeys(group.label for group in groups))
