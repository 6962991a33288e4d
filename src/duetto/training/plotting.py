"""Learning curves of runs, from what their folders hold; no framework and no environment is needed.

Runs that differ in nothing but their seed make one curve: three or more the interquartile mean over seeds with its 95 %
stratified bootstrap interval (Agarwal et al., 2021, arXiv:2108.13264; by rliable), fewer every seed and their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from duetto.errors import DuettoError, UsageError
from duetto.training.records import Csv, JsonLines

FORMATS = (".png", ".svg", ".pdf")
_UNSEEN = {"seed", "threads", "evaluate_every", "evaluation_episodes", "checkpoint_every", "log_every"}
_REPETITIONS = 2_000  # of the bootstrap
_NAMED = 3  # differences that a label spells out; with more it takes the folder's name


@dataclass(frozen=True)
class Curve:
    """One number over the steps of runs that differ in their seed alone."""

    label: str
    environment: str
    steps: np.ndarray  # (T,), those of the first seed, to where the shortest ends
    values: np.ndarray  # (seeds, T), interpolated where another seed was looked at in other steps


def plot(runs: Sequence[str | Path], output: str | Path = "curves.png", metric: str = "mean_return") -> Path:
    """Draw the learning curves of `runs`, folders of runs, and return the picture's path.

    Args:
        runs: One curve for each algorithm and choice of options, one panel for each environment.
        output: A .png, .svg or .pdf.
        metric: A column of `evaluations.csv`, or a number of `metrics.jsonl` such as "learn/critic_loss".
    """
    path = Path(output)
    if path.suffix.lower() not in FORMATS or path.is_dir():
        raise UsageError(f"{output} is no name for a picture: end it in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    found = curves(runs, metric)
    panels = list(dict.fromkeys(curve.environment for curve in found))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = new_figure(width=5.5 * columns + 1.5 * (columns == 1), height=4.2 * rows)
    for number, environment in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        for colour, curve in enumerate(one for one in found if one.environment == environment):
            draw(axes, curve.label, curve.steps, curve.values, f"C{colour}")
        finish(axes, environment, metric.replace("_", " "))
    save(figure, path)
    return path


# ---------------------------------------------------------------------------------------------------- the numbers
def curves(runs: Sequence[str | Path], metric: str = "mean_return") -> list[Curve]:
    """What `plot` draws, in the order of `runs`."""
    folders = list(dict.fromkeys(Path(run) for run in runs))
    if not folders:
        raise UsageError("No run is named. Give one folder or more: duetto plot runs/td3-*")
    configs = {folder: _config(folder) for folder in folders}
    groups: list[list[Path]] = []
    for folder in folders:
        alike = (group for group in groups if _settings(configs[group[0]]) == _settings(configs[folder]))
        group = next(alike, None)
        groups.append([folder]) if group is None else group.append(folder)
    names = _labels([group[0] for group in groups], configs)
    return [
        Curve(name, _environment(configs[group[0]]), *_joined([_series(folder, metric) for folder in group]))
        for name, group in zip(names, groups, strict=True)
    ]


def _config(folder: Path) -> dict[str, Any]:
    """Raw, since a network of the user's own need not be at hand to plot its run."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {path.name}.")
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
        _settings(values)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, yaml.YAMLError) as error:
        raise DuettoError(f"{path} cannot be read ({error!r}): was it changed by hand?") from error
    return values


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """What a run learns with: all options but those that only say how often it is looked at, and the seed."""
    run = {name: value for name, value in config["run"].items() if name not in _UNSEEN}
    environment = {"environment": config["environment"]["id"]} | config["environment"]["options"]
    return config["algorithm"] | run | environment


def _environment(config: dict[str, Any]) -> str:
    return config["environment"]["id"]


def _labels(folders: list[Path], configs: dict[Path, dict[str, Any]]) -> list[str]:
    """The algorithm, and in what it differs from the other curves of the same algorithm and environment."""
    settings = {folder: _settings(configs[folder]) for folder in folders}

    def rivals(folder: Path) -> list[dict[str, Any]]:
        kind = ("name", "environment")
        return [one for one in settings.values() if all(one[key] == settings[folder][key] for key in kind)]

    def label(folder: Path) -> str:
        ours = settings[folder]
        differing = [key for key in ours if any(one.get(key) != ours[key] for one in rivals(folder))]
        if len(differing) > _NAMED or (not differing and len(rivals(folder)) > 1):
            return folder.name
        return ", ".join([ours["name"], *(f"{key} {ours[key]}" for key in differing)])

    return [label(folder) for folder in folders]


def _series(folder: Path, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values (T,) of one run."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, read in (("evaluations.csv", Csv.read), ("metrics.jsonl", JsonLines.read)):
        path = folder / name
        rows[name] = read(path) if path.exists() else []
        points = [(float(row["step"]), float(row[metric])) for row in rows[name] if row.get(metric) not in (None, "")]
        if points:
            steps, values = np.array(points).T
            return steps, values
    known = sorted({key for lines in rows.values() for line in lines for key in line} - {"step"})
    if not known:
        raise UsageError(f"{folder} has no evaluations and no metrics yet. Leave it out.")
    raise UsageError(f"{folder} has no {metric!r}. It has: {', '.join(known)}.")


def _joined(series: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    steps = series[0][0]
    steps = steps[steps <= min(each[-1] for each, _ in series)]
    return steps, np.stack([np.interp(steps, *each) for each in series])


def interquartile(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interquartile mean over seeds (T,) of (seeds, T), and its 95 % stratified bootstrap interval (2, T)."""
    try:
        from rliable import library, metrics
    except ImportError as error:
        raise UsageError("Bands over seeds need rliable: pip install 'duetto[plot]'.") from error

    def middle(scores: np.ndarray) -> np.ndarray:  # (seeds, 1 task, T)
        return np.array([metrics.aggregate_iqm(scores[..., t]) for t in range(scores.shape[-1])])

    before = np.random.get_state()
    np.random.seed(0)  # rliable draws from NumPy's global generator; the same runs are to give the same picture
    try:
        points, intervals = library.get_interval_estimates({"": values[:, None]}, middle, reps=_REPETITIONS)
    finally:
        np.random.set_state(before)
    return points[""], intervals[""]


# ---------------------------------------------------------------------------------------------------- the picture
def new_figure(width: float, height: float) -> Any:
    """A figure of so many inches that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("Plots need matplotlib: pip install 'duetto[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def draw(axes: Any, label: str, steps: np.ndarray, values: np.ndarray, colour: str, remark: str = "") -> None:
    """One curve with its seeds or its band; `values` (seeds, T)."""
    count = len(values)
    seeds = f"{count} seed" + "s" * (count > 1) + remark
    if count < 3:
        for one in values:
            axes.plot(steps, one, color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(steps, values.mean(0), color=colour, linewidth=2, label=f"{label} ({seeds})")
        return
    middle, (low, high) = interquartile(values)
    axes.plot(steps, middle, color=colour, linewidth=2, label=f"{label} ({seeds}, interquartile mean)")
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def finish(axes: Any, title: str, ylabel: str) -> None:
    """Names, grid and legend; a million steps is 1M."""
    from matplotlib.ticker import EngFormatter

    axes.set(title=title, xlabel="steps", ylabel=ylabel)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def save(figure: Any, path: Path) -> None:
    """Write a figure; what was there before stays until it is complete."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            figure.savefig(partial, dpi=120)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise DuettoError(f"The picture {path} cannot be written: {error.strerror or error}.") from error
