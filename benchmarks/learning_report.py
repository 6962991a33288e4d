"""The report of the learning runs: one table of them all, and figures with bands, from the committed CSVs alone.

Curves and bands are those of `duetto plot`. Four numbers stand side by side, since published tables
mix them: the greatest mean over seeds, the mean of each seed's greatest, the last evaluation, the mean of the last ten.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from learning import RESULTS, Job, rounded
from report import table

from duetto.display.plotting import INSIDE, finish, interquartile, new_figure, save
from duetto.display.plotting import draw as draw_curve
from duetto.storage import yaml_files

FEWEST = 3  # seeds that make an interval
ROUNDED = (
    "†: in bfloat16, made before 25 November 2026. Until then what leaves a network was rounded to bfloat16, too (near "
    "300 only even numbers were left); now it is float32. What that did to these runs was not measured."
)


@dataclass(frozen=True)
class Results:
    """What is committed of one job. A curve ends where its shortest seed ends."""

    job: Job
    seeds: tuple[int, ...]
    steps: np.ndarray  # (T,)
    returns: np.ndarray  # (seeds, T), means over an evaluation's episodes
    seconds: np.ndarray  # (seeds, T), since the run began, without what lies between a stop and its resume
    planned: int
    final: dict[int, np.ndarray]  # seed to the returns of its last evaluation's episodes
    commits: tuple[str, ...]
    processors: tuple[str, ...]  # of those that know theirs
    begun: dict[int, int]  # further seeds, which are not complete though others are: to their steps

    @property
    def complete(self) -> bool:
        return int(self.steps[-1]) >= self.planned


def load(job: Job) -> Results | None:
    """The results of a job, or None."""
    folders = {seed: RESULTS / job.run_name(seed) for seed in range(1_000)}
    folders = {seed: folder for seed, folder in folders.items() if (folder / "evaluations.csv").exists()}
    if not folders:
        return None
    tables = {
        seed: _columns(folder / "evaluations.csv", "step", "mean_return", "seconds") for seed, folder in folders.items()
    }
    configs = {seed: yaml_files.read_yaml(folder / "config.yaml") for seed, folder in folders.items()}
    begun = {seed: int(steps[-1]) for seed, (steps, *_) in tables.items() if steps[-1] < configs[seed]["run"]["steps"]}
    if len(begun) == len(folders):  # as far as all have come
        begun = {}
    folders = {seed: folder for seed, folder in folders.items() if seed not in begun}
    curves, configs = [tables[seed] for seed in folders], [configs[seed] for seed in folders]
    shortest = min(len(steps) for steps, *_ in curves)
    return Results(
        job=job,
        seeds=tuple(folders),
        steps=curves[0][0][:shortest],
        returns=np.stack([returns[:shortest] for _, returns, _ in curves]),
        seconds=np.stack([seconds[:shortest] for *_, seconds in curves]),
        planned=configs[0]["run"]["steps"],
        final={
            seed: _columns(folder / "final.csv", "return")[0]
            for seed, folder in folders.items()
            if (folder / "final.csv").exists()
        },
        commits=tuple(sorted({config["versions"]["git"] for config in configs})),
        processors=tuple(sorted({c["versions"]["processor"] for c in configs if "processor" in c["versions"]})),
        begun=begun,
    )


def _columns(path: Path, *names: str) -> list[np.ndarray]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [np.array([float(row[name]) for row in rows]) for name in names]


# ---------------------------------------------------------------------------------------------------- the tables
def report(jobs: list[Job], figures: dict[str, dict[str, Any]]) -> None:
    """Write `results/learning.md` and every figure of which there are runs."""
    found = {job.name: results for job in jobs if (results := load(job))}
    drawn = [name for name, figure in figures.items() if draw(name, figure, found)]
    text = "\n\n".join(
        [
            "# Learning results",
            "Made by `python benchmarks/learning.py report` from the CSVs in `learning/`; `jobs.yaml` has commands. "
            "Ten episodes per evaluation, or as many as the preset says, in environments of their own. A run whose "
            "steps end before those planned is not finished; it counts only where no other seed of its job is.",
            ROUNDED,
            table(
                (
                    "run",
                    "seeds",
                    "steps",
                    "best of the mean",
                    "mean of the bests",
                    "last",
                    "mean of last ten",
                    "commit",
                ),
                [_row(results) for results in found.values()],
            ),
            "## Steps to a level, and last evaluations of more episodes",
            "The level is first reached by an evaluation of the mean over seeds, by the median seed, by each seed.",
            table(
                ("run", "level", "mean of seeds", "median seed", "each seed", "final episodes", "mean", "successes"),
                [_more(results) for results in found.values() if results.job.level is not None or results.final],
            ),
            "## Interquartile means",
            "Of three seeds or more, with the 95 % stratified bootstrap interval (Agarwal et al., 2021): of the last "
            "evaluation, or of the one with more episodes where there is one.",
            table(
                ("run", "seeds", "interquartile mean", "95 % interval"),
                [_middle(results) for results in found.values() if len(results.seeds) >= FEWEST],
            ),
            "## What it costs",
            "Times of the median seed, evaluations included, to its end and to the level; steps/s are those of the "
            "whole. Runs had two cores or one, and often other work beside them, so they are upper bounds. The "
            "processor is named where the run recorded it; earlier ones had an AMD EPYC (Zen 5) or an Intel Xeon.",
            table(
                ("run", "steps", "time", "steps/s", "level", "time to it", "processor"),
                [_cost(results) for results in found.values()],
            ),
            "## Beside published numbers",
            "Ours is the mean of the last evaluation, or of the one with more episodes. Protocols differ (versions of "
            "environments, seeds, which of the four numbers); the labels say how.",
            table(("run", "ours", "published"), [_beside(r) for r in found.values() if r.job.published]),
            *[f"![{figures[name]['title']}](learning/{name}.png)" for name in drawn],
        ]
    )
    path = RESULTS.parent / "learning.md"
    path.write_text(text + "\n", "utf-8")
    print(path, *[RESULTS / f"{name}.png" for name in drawn], sep="\n")


def _row(results: Results) -> tuple[str, ...]:
    returns = results.returns
    made = f"{int(results.steps[-1]):,}" + ("" if results.complete else f" of {results.planned:,}")
    numbers = (returns.mean(0).max(), returns.max(1).mean(), returns[:, -1].mean(), returns[:, -10:].mean())
    mark = " †" if rounded().intersection(map(results.job.run_name, results.seeds)) else ""
    return (
        results.job.name + mark,
        ", ".join(map(str, results.seeds)) + "".join(f" ({seed} is at {at:,})" for seed, at in results.begun.items()),
        made,
        *(_number(number) for number in numbers),
        ", ".join(results.commits),
    )


def _more(results: Results) -> tuple[str, ...]:
    level, final = results.job.level, list(results.final.values())
    reached = ("", "", "", "")
    if level is not None:
        each = [_first(results.steps, curve, level) for curve in results.returns]
        together = _first(results.steps, results.returns.mean(0), level)
        reached = (f"{level:,}", *map(_steps, (together, float(np.median(each)))), ", ".join(map(_steps, each)))
    return (
        results.job.name,
        *reached,
        " + ".join(str(len(one)) for one in final),
        ", ".join(_number(one.mean()) for one in final),
        ", ".join(f"{(one > 0).mean():.3f}" for one in final) if results.job.success else "",
    )


def _middle(results: Results) -> tuple[str, ...]:
    last = [one.mean() for one in results.final.values()]
    scores = np.array(last if len(last) == len(results.seeds) else results.returns[:, -1])
    [point], [[low], [high]] = interquartile(scores[:, None])
    return results.job.name, str(len(scores)), _number(point), f"{_number(low)} to {_number(high)}"


def _cost(results: Results) -> tuple[str, ...]:
    level, hours = results.job.level, results.seconds / 3600
    whole, reached = float(np.median(hours[:, -1])), ""
    if level is not None:
        each = [_first(own, curve, level) for own, curve in zip(hours, results.returns, strict=True)]
        reached = _time(float(np.median(each)))
    steps = int(results.steps[-1])
    speed = f"{steps / whole / 3600:,.0f}"
    where = ", ".join(name.partition(" (")[0] for name in results.processors)
    of_level = "" if level is None else f"{level:,}"
    return results.job.name, f"{steps:,}", _time(whole), speed, of_level, reached, where


def _time(hours: float) -> str:
    if not np.isfinite(hours):
        return "never"
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min" if hours >= 0.1 else f"{60 * hours:.1f} min"


def _first(steps: np.ndarray, curve: np.ndarray, level: float) -> float:
    above = np.flatnonzero(curve >= level)
    return float(steps[above[0]]) if len(above) else np.inf


def _steps(steps: float) -> str:
    return f"{steps:,.0f}" if np.isfinite(steps) else "never"


def _beside(results: Results) -> tuple[str, str, str]:
    points = {
        label: value[-1][1] if isinstance(value, list) else value for label, value in results.job.published.items()
    }
    last = [one.mean() for one in results.final.values()] or list(results.returns[:, -1])
    ours = f"{_number(float(np.mean(last)))} ({len(last)} seeds)".replace("(1 seeds)", "(1 seed)")
    if not results.complete:
        ours += f", at {int(results.steps[-1]):,} steps"
    return results.job.name, ours, "; ".join(f"{_number(value)}: {label}" for label, value in points.items())


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1_000 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}"


# ---------------------------------------------------------------------------------------------------- the figures
def draw(name: str, figure: dict[str, Any], found: dict[str, Results]) -> bool:
    """Draw one figure; whether there was anything to draw."""
    there = {label: found[job] for label, job in figure["jobs"].items() if job in found}
    if not there:
        return False
    published = _published(there)
    canvas = new_figure(width=7 if len(there) + len(published) <= INSIDE else 11.5, height=4.2)
    axes = canvas.subplots()
    styles = {label: number for number, label in enumerate(figure["jobs"])}
    for label, results in there.items():
        remark = "" if results.complete else ", not finished"
        draw_curve(axes, label, results.steps, results.returns, styles[label], remark)
    for number, (label, value) in enumerate(published):
        colour = f"C{len(styles) + number}"
        if isinstance(value, list):
            axes.plot(*zip(*value, strict=True), color=colour, linestyle="--", marker="o", markersize=3, label=label)
        else:
            axes.axhline(value, color=colour, linestyle=":", linewidth=1.2, label=label)
    finish(axes, figure["title"], "mean return")
    save(canvas, RESULTS / f"{name}.png")
    return True


def _published(there: dict[str, Results]) -> list[tuple[str, Any]]:
    """Each published number once; of a figure with several jobs, under the labels of those that it belongs to."""
    labels: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str], Any] = {}
    for label, results in there.items():
        for source, value in results.job.published.items():
            labels.setdefault((source, repr(value)), []).append(label)
            values[source, repr(value)] = value
    of_all = {key for key, owners in labels.items() if len(owners) == len(there)}
    return [(key[0] if key in of_all else f"{' and '.join(labels[key])}: {key[0]}", values[key]) for key in values]
