"""Figures of committed training runs, beside what was published for the same task.

    python benchmarks/curves.py                    draws every figure in `FIGURES` into results/learning

A thin line is one seed; a thick one is the mean of several. Published points are named with their source and protocol.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "learning"


@dataclass(frozen=True)
class Reference:
    label: str
    points: tuple[tuple[float, float], ...]  # (steps, mean return); a single one is drawn as a mark


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    runs: dict[str, str]  # label to the pattern of its runs' folders
    references: tuple[Reference, ...] = field(default=())


ICLR_PONG = ((0.5e6, -19.2), (1e6, -11.8), (1.5e6, 1.3), (2e6, 9.8), (3e6, 17.1), (3.26e6, 18.0), (4e6, 18.9))
FIGURES = (
    Figure(
        "ppo-pong",
        "PPO, Pong without sticky actions: ten whole games, sampled actions",
        {"Duetto, bfloat16": "ppo-pong-s*"},
        (Reference("CleanRL's PPO (37 details, 2022): training returns, 3 seeds", ICLR_PONG),),
    ),
    Figure(
        "ppo-halfcheetah",
        "PPO, HalfCheetah-v5: ten episodes without exploration",
        {"Duetto": "ppo-HalfCheetah-v5-s*"},
        (
            Reference("Tianshou, v3, 10 seeds, best evaluation of each", ((1e6, 5783.9),)),
            Reference("CleanRL, v4, 3 seeds, training returns", ((1e6, 1443.0),)),
        ),
    ),
)


def evaluations(folder: Path) -> tuple[list[float], list[float]]:
    """Steps and mean returns of a run."""
    with (folder / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [float(row["step"]) for row in rows], [float(row["mean_return"]) for row in rows]


def draw(figure: Figure) -> Path | None:
    """Draw one figure; None where no run of it is there."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    drawn = [_curve(axes, label, pattern) for label, pattern in figure.runs.items()]
    for number, reference in enumerate(figure.references):
        x, y = zip(*reference.points, strict=True)
        axes.plot(x, y, color=f"C{number + 3}", linestyle="--", marker="o", markersize=4, label=reference.label)
    axes.set(title=figure.title, xlabel="steps", ylabel="mean return")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = RESULTS / f"{figure.name}.png"
    if any(drawn):
        canvas.savefig(path, dpi=120)
    plt.close(canvas)
    return path if any(drawn) else None


def _curve(axes: Any, label: str, pattern: str) -> bool:
    curves = [evaluations(folder) for folder in sorted(RESULTS.glob(pattern))]
    for steps, returns in curves:
        axes.plot(steps, returns, color="C0", linewidth=0.8, alpha=0.6 if len(curves) > 1 else 1.0)
    if curves:
        shortest = min(len(steps) for steps, _ in curves)
        mean = [sum(returns[i] for _, returns in curves) / len(curves) for i in range(shortest)]
        seeds = f"{len(curves)} seed" + ("s" if len(curves) > 1 else "")
        axes.plot(curves[0][0][:shortest], mean, color="C0", linewidth=2.2, label=f"{label}, {seeds}")
    return bool(curves)


if __name__ == "__main__":
    for one in FIGURES:
        print(draw(one) or f"{one.name}: no run in {RESULTS}")
