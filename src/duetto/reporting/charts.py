"""The numbers that the page's script draws: curves with bands, as JSON holds them.

Returns have the band of `duetto plot`: for three seeds or more the interquartile mean and its 95 % bootstrap interval.
The learner's metrics have a plainer one: the mean, and the range from the least seed to the greatest.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duetto.display.curves import Curve, Group, curve
from duetto.display.plotting import interquartile, interquartile_mean
from duetto.errors import DuettoError, UsageError, escaped
from duetto.reporting import meanings

BANDED = 3  # seeds from which on there is an interval
LONGEST = 200  # characters of a name
MOST_CHARTS = 60  # beyond the returns
_MOST_POINTS = {"return": 1_000, "learning": 300}  # of a curve; more cannot be told apart
_DIGITS = 6
_UNSHOWN = ("train/episodes", "learn/updates", "episodes", "seconds", "mean_length")
_SPREAD = ("std_return", "min_return", "max_return")  # in the table of evaluations


@dataclass(frozen=True)
class Drawn:
    """A curve of the returns, with its interval if it has one."""

    group: Group
    curve: Curve
    middle: np.ndarray  # (T,): the interquartile mean, or the mean of fewer seeds
    interval: np.ndarray | None  # (2, T)
    greatest: float  # of all that was looked at, more than what is drawn

    @property
    def last(self) -> float:
        """The curve's last value."""
        return float(self.middle[-1])


@dataclass(frozen=True)
class Chart:
    """The curves in one pair of axes."""

    environment: str
    metrics: tuple[str, ...]  # the first is the curve; the others are dotted beside it
    groups: tuple[Group, ...]
    data: dict[str, Any] = field(repr=False)


def draw(group: Group, metric: str) -> Drawn:
    """Compute the curve of a group, and its band, which takes seconds if there is one."""
    whole = curve(group, metric)
    greatest = float(interquartile_mean(whole.values).max())
    thin = _thinned(whole, _MOST_POINTS["return"])
    if len(thin.values) < BANDED:
        return Drawn(group, thin, thin.values.mean(0), None, greatest)
    return Drawn(group, thin, *interquartile(thin.values), greatest)


def returns(drawn: Sequence[Drawn], metric: str) -> list[Chart]:
    """Charts of the returns, one for each environment."""
    colours = _colours([one.group for one in drawn])
    charts = []
    for environment in dict.fromkeys(one.group.environment for one in drawn):
        here = [one for one in drawn if one.group.environment == environment]
        curves = [_returned(one, colours[one.group.label]) for one in here]
        data = {"y": plain_text(metric.replace("_", " ")), "curves": curves}
        charts.append(Chart(environment, (metric,), tuple(one.group for one in here), data))
    return charts


def learning(
    groups: Sequence[Group], metric: str, tell: Callable[[str], None] = lambda _: None
) -> tuple[list[Chart], list[str]]:
    """Charts of every other number that the seeds of a curve share, by environment; and notices on what is left out."""
    colours = _colours(groups)
    places = {group.environment: [one for one in groups if one.environment == group.environment] for group in groups}
    wanted = [(where, here, metrics) for where, here in places.items() for metrics in _shared(here, metric)]
    charts: list[Chart] = []
    notices: dict[str, None] = {}
    for number, (environment, here, metrics) in enumerate(wanted):
        if len(charts) == MOST_CHARTS:
            notices[f"{len(wanted) - number:,} more numbers of the runs are not shown."] = None
            break
        tell(f"{environment}: {metrics[0]}")
        if (chart := _chart(environment, here, metrics, colours, notices)) is not None:
            charts.append(chart)
    return charts, list(notices)


# ---------------------------------------------------------------------------------------------------- which numbers
def _shared(groups: Sequence[Group], metric: str) -> list[tuple[str, ...]]:
    """Numbers that all seeds of some curve have, in families of mean, min and max; those with a meaning come first."""
    names = dict.fromkeys(
        name
        for group in groups
        for name in group.members[0].names()
        if all(name in member.names() for member in group.members)
    )
    left = {name for name in names if name.startswith("time/") or name in (*_UNSHOWN, *_SPREAD)}
    if metric in ("mean_return", "avg_return"):
        left |= {"mean_return", "avg_return"}
    written = [name for group in groups for run in group.runs[:1] for name in meanings.order(run.algorithm)]
    known = [name for name in dict.fromkeys(written) if name in names]
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys([*known, *sorted(names)]):
        if name not in left | {metric}:
            families.setdefault(meanings.stem(name), []).append(name)
    return [tuple(sorted(family, key=lambda name: not name.endswith("_mean"))) for family in families.values()]


def _chart(
    environment: str,
    groups: Sequence[Group],
    metrics: tuple[str, ...],
    colours: dict[str, int],
    notices: dict[str, None],
) -> Chart | None:
    shown: list[Group] = []
    curves: list[dict[str, Any]] = []
    for group in groups:
        if not all(metrics[0] in member.names() for member in group.members):
            continue
        try:
            curves.append(_learned(group, metrics, colours[group.label]))
        except UsageError:  # it has the name, and no number yet
            continue
        except DuettoError as error:
            notices[str(error)] = None
            continue
        shown.append(group)
    if not shown:
        return None
    return Chart(environment, metrics, tuple(shown), {"y": "", "curves": curves})


# ---------------------------------------------------------------------------------------------------- as JSON
def _returned(drawn: Drawn, colour: int) -> dict[str, Any]:
    seeds = [
        [plain_text(member.name), _plain(values)]
        for member, values in zip(drawn.group.members, drawn.curve.values, strict=True)
    ]
    return _data(drawn.curve, colour, drawn.middle, drawn.interval) | {"seeds": seeds}


def _learned(group: Group, metrics: tuple[str, ...], colour: int) -> dict[str, Any]:
    first, *others = (_thinned(curve(group, metric), _MOST_POINTS["learning"]) for metric in metrics)
    band = np.stack([first.values.min(0), first.values.max(0)]) if len(first.values) > 1 else None
    parts = [
        [plain_text(metric), _steps(other.steps), _plain(other.values.mean(0))]
        for metric, other in zip(metrics[1:], others, strict=True)
    ]
    return _data(first, colour, first.values.mean(0), band) | {"parts": parts}


def _data(curve: Curve, colour: int, middle: np.ndarray, band: np.ndarray | None) -> dict[str, Any]:
    count = len(curve.values)
    name = plain_text(f"{curve.label} ({count} seed{'s' * (count > 1)}{curve.remark})")
    found: dict[str, Any] = {"name": name, "colour": colour, "x": _steps(curve.steps), "y": _plain(middle)}
    return found if band is None else found | {"low": _plain(band[0]), "high": _plain(band[1])}


def _plain(values: np.ndarray) -> list[float | None]:
    """Values as JSON has them, with as many digits as can be seen; None if not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _steps(steps: np.ndarray) -> list[float]:
    return [int(step) if step.is_integer() else step for step in steps.tolist()]


def plain_text(words: str) -> str:
    """Escape a text so that plotly shows it unchanged: it takes some tags for markup, links among them."""
    return html.escape(escaped(words if len(words) <= LONGEST else f"{words[:LONGEST]}…"), quote=False)


def _thinned(curve: Curve, most: int) -> Curve:
    """The curve with at most `most` points: the first, the last, and evenly spaced ones between."""
    if len(curve.steps) <= most:
        return curve
    kept = np.unique(np.linspace(0, len(curve.steps) - 1, most).round().astype(int))
    return Curve(curve.label, curve.environment, curve.steps[kept], curve.values[:, kept], curve.remark, curve.notices)


def _colours(groups: Sequence[Group]) -> dict[str, int]:
    """The number of each label's colour, the same in every chart."""
    return {label: number for number, label in enumerate(dict.fromkeys(group.label for group in groups))}
