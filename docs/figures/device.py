"""Figure of the page on device environments: learning in the compiled loop and in the host's, from committed runs."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean

from drawing import Drawing, Plot

DATA = Path(__file__).parents[2] / "benchmarks" / "results" / "device-learning.csv"
LOOPS = (("device", "compiled loop", "ink-critic"), ("host", "host loop", "ink-target"))


def curves(task: str, loop: str) -> list[tuple[int, list[float]]]:
    """Each evaluation's step and the returns of its five seeds."""
    points: dict[int, list[float]] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["task"], row["loop"]) == (task, loop):
                points.setdefault(int(row["step"]), []).append(float(row["mean_return"]))
    return sorted(points.items())


def learning() -> str:
    """Mean and range of the seeds, of two tasks."""
    d = Drawing(780, 270, "Mean returns of five seeds in the compiled loop and in the host loop, and their range")
    left = Plot(d, 60, 40, 280, 170, (0, 101_000), (0, 500))
    right = Plot(d, 440, 40, 280, 170, (0, 5_000), (-1_700, 0))
    left.axes((0, 50_000, 100_000), (0, 250, 500), "steps", "")
    right.axes((0, 2_500, 5_000), (-1_600, -800, 0), "steps", "")
    for plot, task, title in ((left, "ppo-cartpole", "PPO, CartPole"), (right, "sac-pendulum", "SAC, Pendulum")):
        d.text(plot.left, 22, title, "strong", "start", size=12.5)
        for i, (loop, words, ink) in enumerate(LOOPS):
            points = curves(task, loop)
            steps = [step for step, _ in points]
            plot.band(steps, [min(of) for _, of in points], [max(of) for _, of in points], ink)
            plot.curve([(step, fmean(of)) for step, of in points], ink)
            d.text(plot.left + 275, 165 + 18 * i, words, f"{ink} strong", "end", size=12)
    return d.svg()
