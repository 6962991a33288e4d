"""Learning curves as a picture.

Three seeds or more make a band: the interquartile mean over seeds and its 95 % stratified bootstrap interval (Agarwal
et al., 2021, arXiv:2108.13264; by rliable). With fewer, every seed is drawn, and their mean.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duetto.display import files
from duetto.display.curves import Curve, curves
from duetto.errors import DuettoError, UsageError, escaped
from duetto.extras import install

FORMATS = (".png", ".svg", ".pdf")
_REPETITIONS = 2_000  # of the bootstrap
INSIDE = 6  # entries of a legend that do not yet hide the curves; more stand beside them and need 3 inches or more
_LINES = ("-", "--", ":", "-.")


def plot(runs: Iterable[str | Path], output: str | Path = "curves.png", metric: str = "mean_return") -> Path:
    """Draw the learning curves of `runs`, folders of runs and tables of results, and return the picture's path.

    Notices on folders that are left out, and on lines that cannot be read, go to stderr.

    Args:
        runs: One curve for all seeds of the same algorithm and options, one panel for each environment. A table that
            `duetto.table` or others wrote (.csv) has one for each of its experiments.
        output: A .png, .svg or .pdf.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss".

    Raises:
        UsageError: None of the folders is a run with that number, or one is not there; or an extra is not installed.
        DuettoError: Nothing of a file can be read, or the picture cannot be written.
    """
    return picture(curves(runs, metric), output, metric)


def picture(found: Sequence[Curve], output: str | Path, metric: str) -> Path:
    """Draw curves; see `plot`."""
    path = Path(output)
    if path.suffix.lower() not in FORMATS or path.is_dir():
        raise UsageError(f"{output} is no name for a picture: end it in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    for notice in dict.fromkeys(notice for curve in found for notice in curve.notices):
        print(notice, file=sys.stderr)
    labels = list(dict.fromkeys(curve.label for curve in found))
    panels = list(dict.fromkeys(curve.environment for curve in found))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    width = 5.5 if len(labels) <= INSIDE else 8.5  # with room for the legend
    figure = new_figure(width=width * columns + 1.5 * (columns == 1), height=4.2 * rows)
    for number, environment in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        for curve in (one for one in found if one.environment == environment):
            style = labels.index(curve.label)  # the same in all panels
            draw(axes, curve.label, curve.steps, curve.values, style, curve.remark)
        finish(axes, environment, metric.replace("_", " "))
    save(figure, path)
    return path


def new_figure(width: float, height: float) -> Any:
    """Make a figure of this size in inches, without a window. UsageError if Matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"Plots need matplotlib. Install: {install('plot')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def draw(axes: Any, label: str, steps: np.ndarray, values: np.ndarray, style: int, remark: str = "") -> None:
    """Draw the `style`-th curve with its seeds or its band; `steps` (T,), `values` (seeds, T)."""
    count, colour = len(values), f"C{style % 10}"
    look = {"color": colour, "linestyle": _LINES[style // 10 % len(_LINES)], "marker": "o" if len(steps) == 1 else ""}
    seeds = f"{count} seed" + "s" * (count > 1)
    if count < 3:
        for one in values:
            axes.plot(steps, one, **look, linewidth=0.8, alpha=0.6)
        axes.plot(steps, values.mean(0), **look, linewidth=2, label=_text(f"{label} ({seeds}{remark})"))
        return
    middle, (low, high) = interquartile(values)
    axes.plot(steps, middle, **look, linewidth=2, label=_text(f"{label} ({seeds}{remark}, interquartile mean)"))
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean over seeds (...) of (seeds, ...), without a quarter of the values, rounded down, at either end.

    It is that of rliable (Agarwal et al., 2021, arXiv:2108.13264), which is SciPy's `trim_mean(values, 0.25)`: of three
    seeds or fewer it is their mean.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def interquartile(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interquartile mean over seeds (T,) of (seeds, T), and its 95 % stratified bootstrap interval (2, T)."""
    library = statistics()

    def middle(scores: np.ndarray) -> np.ndarray:  # (seeds, 1 task, T); of all T at once, which rliable's own is not
        return interquartile_mean(scores[:, 0])

    before = np.random.get_state()
    np.random.seed(0)  # the same runs, the same picture; to hand rliable a generator of its own, arch warns against
    try:
        points, intervals = library.get_interval_estimates({"": values[:, None]}, middle, reps=_REPETITIONS)
    finally:
        np.random.set_state(before)
    return points[""], intervals[""]


def statistics() -> Any:
    """Import rliable's library. UsageError if it is not installed."""
    try:
        from rliable import library
    except ImportError as error:
        raise UsageError(f"Bands over seeds need rliable. Install: {install('plot')}") from error
    return library


def finish(axes: Any, title: str, ylabel: str) -> None:
    """Add title, labels, grid and legend to the axes; a million steps is written 1M."""
    from matplotlib.ticker import EngFormatter

    axes.set(title=_text(title), xlabel="steps", ylabel=_text(ylabel))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    outside = len(axes.get_legend_handles_labels()[0]) > INSIDE
    axes.legend(fontsize=7, **({"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if outside else {}))


def save(figure: Any, path: Path) -> None:
    """Write a figure; an earlier file stays until the new one is complete. See `files.beside`."""
    try:
        with files.beside(path) as partial:
            figure.savefig(partial, dpi=120)
    except OSError as error:
        raise DuettoError(f"The picture {path} cannot be written: {error.strerror or error}.") from error


def _text(text: str) -> str:
    """The text so that Matplotlib shows it as it is: no formulas between dollars, and a leading "_" in a legend."""
    text = escaped(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
