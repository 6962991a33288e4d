"""Compute learning curves over several seeds, and draw them with Matplotlib.

Three seeds or more are drawn as the interquartile mean over seeds and its 95 % stratified bootstrap interval (Agarwal
et al., 2021, arXiv:2108.13264; computed by rliable). For one or two seeds, each seed and their mean are drawn.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import DuettoError, UsageError, escaped
from duetto.install_hint import install
from duetto.storage import atomic_io
from duetto.tools.plot.grouping import Group, groups

MIN_SEEDS = 3  # fewest seeds for which an interval is computed
_REPETITIONS = 2_000  # samples of the bootstrap
FORMATS = (".png", ".svg", ".pdf")
_LEGEND_LINE = 80  # characters in a line of the legend
_LINES = ("-", "--", ":", "-.")
_LARGEST = 1e300  # larger values become gaps, since axes cannot show them


@dataclass(frozen=True)
class Curve:
    """One metric over the steps of runs that differ only in their seed."""

    label: str
    environment: str
    steps: np.ndarray  # (T,), up to the last step of the shortest run
    values: np.ndarray  # (seeds, T), interpolated if the seeds were evaluated at different steps
    remark: str  # names the seed that ends the curve early; "" if all end together
    notices: tuple[str, ...]  # a sentence for each file with unreadable lines

    def last(self) -> tuple[float, float | None, float | None]:
        """Return the interquartile mean at the last step, and its confidence interval's bounds (None without one)."""
        middle, interval = interquartile(self.values[:, -1:])
        low, high = (None, None) if interval is None else interval[:, 0].tolist()
        return float(middle[0]), low, high


def curves(runs: Iterable[str | Path], metric: str = "mean_return") -> list[Curve]:
    """Return the curves of the runs in the folders `runs`, grouped as `groups` does."""
    return [curve(group, metric) for group in groups(runs, metric)]


def curve(group: Group, metric: str) -> Curve:
    """Return the curve of a group. Raises UsageError if one of its seeds lacks the metric."""
    series = [member.series(metric) for member in group.members]
    notices = (*group.notices, *(each.notice for each in series if each.notice))
    shortest = min(range(len(series)), key=lambda i: series[i].steps[-1])  # all seeds reach this run's last step
    steps = series[shortest].steps
    steps = steps[steps >= max(each.steps[0] for each in series)]
    if len(steps) == 0:
        raise UsageError(f"{' and '.join(map(str, group.members))} share no steps. Plot them one by one.")
    longer = any(each.steps[-1] > steps[-1] for each in series)
    remark = f", as far as {group.members[shortest].name} is" if longer else ""
    values = np.stack([np.interp(steps, each.steps, each.values) for each in series])
    return Curve(group.label, group.environment, steps, values, remark, tuple(dict.fromkeys(notices)))


def number(value: float) -> str:
    """Format a number: from 1,000 on as a whole number, else with four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


# ---------------------------------------------------------------------------------------------------- intervals
def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of `values` (seeds, ...) over the seeds, without the lowest and the highest quarter.

    The number of seeds in a quarter is rounded down, so for three seeds or fewer this is the plain mean. rliable
    (Agarwal et al., 2021, arXiv:2108.13264) and SciPy's `trim_mean(values, 0.25)` compute the same.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def interquartile(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the interquartile mean (T,) of `values` (seeds, T) over the seeds, and its 95 % interval (2, T).

    With fewer than three seeds, the interval is None. Raises UsageError if rliable is not installed.
    """
    if len(values) < MIN_SEEDS:
        return interquartile_mean(values), None
    try:
        from rliable import library
    except ImportError as error:
        raise UsageError(f"Bands over seeds need rliable. Install: {install('plot')}") from error

    def middle(scores: np.ndarray) -> np.ndarray:  # (seeds, 1 task, T); rliable's own function needs T = 1
        return interquartile_mean(scores[:, 0])

    before = np.random.get_state()
    np.random.seed(0)  # reproducible pictures; passing a generator to rliable causes a warning of its package arch
    try:
        points, intervals = library.get_interval_estimates({"": values[:, None]}, middle, reps=_REPETITIONS)
    finally:
        np.random.set_state(before)
    return points[""], intervals[""]


# ---------------------------------------------------------------------------------------------------- pictures
def plot(runs: Iterable[str | Path], output: str | Path = "curves.png", metric: str = "mean_return") -> Path:
    """Draw learning curves to a file, and return its path.

    Notices on skipped folders and unreadable lines go to stderr.

    Args:
        runs: Folders of runs. Those that differ only in their seed make one curve. Each environment has one panel.
        output: A .png, .svg or .pdf file.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: A folder is missing, or none is a run with the metric; or an extra is not installed.
        DuettoError: A file is damaged so that nothing can be read, or the picture cannot be written.
    """
    return picture(curves(runs, metric), output, metric)


def picture(drawn: Sequence[Curve], output: str | Path, metric: str) -> Path:
    """Draw curves to a file as `plot` does, and return the file's path."""
    path = Path(output)
    if path.suffix.lower() not in FORMATS or path.is_dir():
        raise UsageError(f"{output} is no name for a picture: end it in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    for notice in dict.fromkeys(notice for each in drawn for notice in each.notices):
        print(escaped(notice), file=sys.stderr)
    labels = list(dict.fromkeys(each.label for each in drawn))
    panels = list(dict.fromkeys(each.environment for each in drawn))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = new_figure(5.5 * columns + 1.5 * (columns == 1), rows * height_of(labels))
    for number, environment in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        for each in drawn:
            if each.environment == environment:  # a label has the same style in all panels
                draw(axes, each.label, each.steps, each.values, labels.index(each.label), each.remark)
        finish(axes, environment, metric.replace("_", " "))
    save(figure, path)
    return path


def height_of(labels: Sequence[str]) -> float:
    """Return the height in inches of axes with a legend of these labels below them."""
    return 4.0 + 0.14 * sum(1 + len(label) // _LEGEND_LINE for label in labels)


def new_figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches. Raise UsageError if Matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"Plots need matplotlib. Install: {install('plot')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def draw(
    axes: Any, label: str, steps: np.ndarray, values: np.ndarray, style: int, remark: str = "", band: bool = True
) -> None:
    """Draw a curve: with a band if `band` and there are three seeds or more, else with a line per seed.

    `style` is a number that selects color and line style. Shapes: `steps` (T,), `values` (seeds, T).
    """
    count, color = len(values), f"C{style % 10}"
    look = {"color": color, "linestyle": _LINES[style // 10 % len(_LINES)], "marker": "o" if len(steps) == 1 else ""}
    seeds = f"{count} seed" + "s" * (count > 1)
    values = np.where(np.abs(values) < _LARGEST, values, np.nan)
    middle, interval = interquartile(values) if band else (values.mean(0), None)
    if interval is None:
        for seed in values:
            axes.plot(steps, seed, **look, linewidth=0.8, alpha=0.6)
        axes.plot(steps, middle, **look, linewidth=2, label=_legend(f"{label} ({seeds}{remark})"))
        return
    axes.plot(steps, middle, **look, linewidth=2, label=_legend(f"{label} ({seeds}{remark}, interquartile mean)"))
    axes.fill_between(steps, *interval, color=color, alpha=0.2, linewidth=0)


def finish(axes: Any, title: str, ylabel: str, legend: bool = True) -> None:
    """Add title, labels, grid and legend to the axes, and abbreviate steps (1M for a million)."""
    from matplotlib.ticker import EngFormatter

    axes.set(title=_text(title), xlabel="steps", ylabel=_text(ylabel))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    if legend:  # below the axes, so that a long label does not make them narrower
        below = -0.17 * max(1.0, 4.5 / axes.figure.get_figheight())  # in heights of the axes, below the axis label
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, below), borderaxespad=0.0)


def save(figure: Any, path: Path) -> None:
    """Write a figure. An earlier file stays until the new one is complete."""
    try:
        with atomic_io.replacing(path) as partial:
            figure.savefig(partial, dpi=120, bbox_inches="tight")  # "tight" includes a long legend
    except OSError as error:
        raise DuettoError(f"The picture {path} cannot be written: {error.strerror or error}.") from error


def _legend(label: str) -> str:
    """Wrap the label into lines that fit below the axes."""
    return textwrap.fill(_text(label), _LEGEND_LINE, drop_whitespace=False)


def _text(text: str) -> str:
    """Escape a text for Matplotlib, where "$" starts a formula and a leading "_" hides a legend's entry."""
    text = escaped(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
