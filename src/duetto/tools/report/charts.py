"""Plotly figures of a report: returns with confidence bands, and the metrics of learning over seeds.

Returns have the band of `duetto plot`: for three seeds or more the interquartile mean and its 95 % bootstrap interval.
The metrics of learning have the mean over seeds, and a band from the smallest seed to the largest.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duetto.errors import DuettoError, UsageError, escaped
from duetto.tools.plot.curves import Curve, curve, interquartile, interquartile_mean
from duetto.tools.plot.grouping import Group
from duetto.tools.report import metric_docs

BANDED = 3  # seeds that an interval needs
LONGEST = 200  # characters of a name
MOST_CHARTS = 60  # besides the returns
_MOST_POINTS = {"return": 1_000, "learning": 300}  # per curve
_DIGITS = 6
_HIDDEN = ("train/episodes", "learn/updates", "episodes", "seconds", "mean_length")
_SPREAD = ("std_return", "min_return", "max_return")  # in the table of evaluations

# Readable on a light and on a dark page.
_COLORS = ("#3b82f6", "#e0661a", "#2e9e4f", "#9a6cf0", "#d0559c", "#a8821b", "#1a97ad", "#e5484d", "#808a95", "#6f9e1f")
_DASHES = ("solid", "dash", "dashdot", "longdash")
_CLEAR, _GRID = "rgba(0,0,0,0)", "rgba(128,128,128,0.3)"
_AXIS = {"gridcolor": _GRID, "linecolor": _GRID, "zeroline": False, "automargin": True}
_LAYOUT = {
    "template": {},
    "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
    "paper_bgcolor": _CLEAR,
    "plot_bgcolor": _CLEAR,
    "hovermode": "x unified",
    "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02},
    "xaxis": _AXIS | {"title": {"text": "steps"}, "tickformat": "~s", "hoverformat": ",~r"},
}


@dataclass(frozen=True)
class Drawn:
    """A curve of the returns, with its interval if it has one."""

    group: Group
    curve: Curve
    middle: np.ndarray  # (T,): the interquartile mean, or the mean of fewer seeds
    interval: np.ndarray | None  # (2, T)
    maximum: float  # over all points, also those that are not drawn


@dataclass(frozen=True)
class Chart:
    """The curves in one pair of axes."""

    environment: str
    metrics: tuple[str, ...]  # the first is the curve; the others are dotted
    groups: tuple[Group, ...]
    figure: dict[str, Any] = field(repr=False)


def draw(group: Group, metric: str) -> Drawn:
    """Compute the curve of a group and its band. The bootstrap of a band takes seconds."""
    whole = curve(group, metric)
    maximum = float(interquartile_mean(whole.values).max())
    thin = _thinned(whole, _MOST_POINTS["return"])
    if len(thin.values) < BANDED:
        return Drawn(group, thin, thin.values.mean(0), None, maximum)
    return Drawn(group, thin, *interquartile(thin.values), maximum)


def returns(drawn: Sequence[Drawn], metric: str) -> list[Chart]:
    """Make the charts of the returns, one for each environment."""
    numbers = _numbers([each.group for each in drawn])
    charts = []
    for environment in dict.fromkeys(each.group.environment for each in drawn):
        here = [each for each in drawn if each.group.environment == environment]
        traces = []
        for each in here:
            names = [member.name for member in each.group.members]
            seeds = list(zip(names, each.curve.values, strict=True))
            traces += _traces(each.curve, numbers[each.group.label], each.middle, each.interval, seeds=seeds)
        figure = _figure(traces, metric.replace("_", " "))
        charts.append(Chart(environment, (metric,), tuple(each.group for each in here), figure))
    return charts


def learning(
    groups: Sequence[Group], metric: str, tell: Callable[[str], None] = lambda _: None
) -> tuple[list[Chart], list[str]]:
    """Make a chart for every other metric that the seeds of a curve share; and notices on missing ones."""
    numbers = _numbers(groups)
    panels: dict[str, list[Group]] = {}
    for group in groups:
        panels.setdefault(group.environment, []).append(group)
    wanted = [(where, here, metrics) for where, here in panels.items() for metrics in _shared(here, metric)]
    charts: list[Chart] = []
    notices: dict[str, None] = {}
    for position, (environment, here, metrics) in enumerate(wanted):
        if len(charts) == MOST_CHARTS:
            notices[f"{len(wanted) - position:,} more numbers of the runs are not shown."] = None
            break
        tell(f"{environment}: {metrics[0]}")
        shown: list[Group] = []
        traces: list[dict[str, Any]] = []
        for group in here:
            if not all(metrics[0] in member.names() for member in group.members):
                continue
            try:
                first, *others = (_thinned(curve(group, name), _MOST_POINTS["learning"]) for name in metrics)
            except UsageError:  # the metric has a name but no value yet
                continue
            except DuettoError as error:
                notices[str(error)] = None
                continue
            band = np.stack([first.values.min(0), first.values.max(0)]) if len(first.values) > 1 else None
            parts = list(zip(metrics[1:], others, strict=True))
            traces += _traces(first, numbers[group.label], first.values.mean(0), band, parts=parts)
            shown.append(group)
        if shown:
            charts.append(Chart(environment, metrics, tuple(shown), _figure(traces, "")))
    return charts, list(notices)


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


# ---------------------------------------------------------------------------------------------------- plotly
def _traces(
    curve: Curve,
    number: int,
    middle: np.ndarray,
    band: np.ndarray | None,
    seeds: Sequence[tuple[str, np.ndarray]] = (),
    parts: Sequence[tuple[str, Curve]] = (),
) -> list[dict[str, Any]]:
    """Return the traces of one curve: its band, its seeds, its dotted parts, and the curve on top."""
    color = _COLORS[number % len(_COLORS)]
    dashes = _DASHES[number // len(_COLORS) % len(_DASHES)]

    def line(
        name: str, values: np.ndarray, width: float, x: np.ndarray = curve.steps, dash: str = dashes
    ) -> dict[str, Any]:
        steps = [int(step) if step.is_integer() else step for step in x.tolist()]
        return {
            "type": "scatter",
            "name": plain_text(name),
            "mode": "lines" if len(steps) > 1 or not width else "markers",
            "x": steps,
            "y": _plain(values),
            "legendgroup": str(number),
            "showlegend": False,
            "line": {"color": color, "width": width, "dash": dash},
            "marker": {"color": color},
            "hovertemplate": "%{y:.5g}",
        }

    count = len(curve.values)
    name = f"{curve.label} ({count} seed{'s' * (count > 1)}{curve.remark})"
    below: list[dict[str, Any]] = []
    top: dict[str, Any] = {"showlegend": True}
    if band is not None:
        edges = [line(name, edge, 0) | {"hoverinfo": "skip"} for edge in band]
        below += [edges[0], edges[1] | {"fill": "tonexty", "fillcolor": f"{color}33"}]
        top["customdata"] = list(zip(*map(_plain, band), strict=True))
        top["hovertemplate"] = "%{y:.5g} [%{customdata[0]:.5g}, %{customdata[1]:.5g}]"
    if count > 1:
        shown = {"visible": band is None, "meta": "seed", "opacity": 0.55}
        below += [line(seed, values, 1) | shown for seed, values in seeds]
    below += [line(part, other.values.mean(0), 1.3, other.steps, "dot") for part, other in parts]
    return [*below, line(name, middle, 2.2) | top]


def _figure(traces: list[dict[str, Any]], title: str) -> dict[str, Any]:
    """Return plotly's figure as a dict, with a button that shows seeds hidden behind a band."""
    from plotly.graph_objects import Figure

    axis: dict[str, Any] = _AXIS | {"title": {"text": plain_text(title)}, "tickformat": "~g"}
    values = {value for trace in traces for value in trace["y"] if value is not None}
    if len(values) == 1 and 0 < abs(constant := values.pop()) < 1e300:  # plotly's own range is constant ± 1
        axis["range"] = sorted([0.5 * constant, 1.5 * constant])
    layout = _LAYOUT | {"yaxis": axis, "showlegend": sum(trace["showlegend"] for trace in traces) > 1}
    if hidden := [i for i, trace in enumerate(traces) if trace.get("visible") is False]:
        toggle = {"args": [{"visible": True}, hidden], "args2": [{"visible": False}, hidden]}
        button = {"label": "every seed", "method": "restyle"} | toggle
        place = {"x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top", "bgcolor": _GRID, "bordercolor": _GRID}
        layout["updatemenus"] = [{"type": "buttons", "showactive": False, "buttons": [button]} | place]
    return Figure(traces, layout).to_dict()


def _plain(values: np.ndarray) -> list[float | None]:
    """Round values to visible digits; None if not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def plain_text(words: str) -> str:
    """Escape a text so that plotly shows it unchanged: plotly renders some tags, links among them."""
    return html.escape(escaped(words if len(words) <= LONGEST else f"{words[:LONGEST]}…"), quote=False)


def _thinned(curve: Curve, most: int) -> Curve:
    """Return the curve with at most `most` points: the first, the last, and evenly spaced ones between."""
    if len(curve.steps) <= most:
        return curve
    kept = np.unique(np.linspace(0, len(curve.steps) - 1, most).round().astype(int))
    return Curve(curve.label, curve.environment, curve.steps[kept], curve.values[:, kept], curve.remark, curve.notices)


def _numbers(groups: Sequence[Group]) -> dict[str, int]:
    """Number the labels: a label has the same color in every chart."""
    return {label: number for number, label in enumerate(dict.fromkeys(group.label for group in groups))}
