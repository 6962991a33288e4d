"""Learning curves of the runs that are committed in benchmarks/results/learning."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from drawing import Drawing, Plot

from duetto.storage import safe_yaml

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
Jobs = tuple[tuple[str, str, str, float], ...]  # job, name, color, vertical shift of the name


@cache
def campaign() -> dict[str, Any]:
    """What `jobs.yaml` says, read once."""
    return safe_yaml.parse((BENCHMARKS / "jobs.yaml").read_text("utf-8"))


def config(run: str) -> dict[str, Any]:
    """A committed run's."""
    return safe_yaml.read_yaml(BENCHMARKS / "results" / "learning" / run / "config.yaml")


def published(job: str, label: str) -> list[tuple[float, float]]:
    """What others report, as the job's list of it has it: steps and returns."""
    return campaign()["jobs"][job]["published"][label]


def evaluations(run: str) -> list[tuple[float, float]]:
    """Step and mean return of each evaluation."""
    with (BENCHMARKS / "results" / "learning" / run / "evaluations.csv").open(encoding="utf-8") as file:
        return [(float(row["step"]), float(row["mean_return"])) for row in csv.DictReader(file)]


def of_seeds(job: str) -> list[list[tuple[float, float]]]:
    """The evaluations of each of a job's seeds, as far as all of them go."""
    folders = sorted((BENCHMARKS / "results" / "learning").glob(f"{job}-s[0-9]*"))
    curves = [evaluations(folder.name) for folder in folders]
    return [curve[: min(len(other) for other in curves)] for curve in curves]


def banded(d: Drawing, plot: Plot, job: str, name: str, ink: str, shift: float = 4, last: float = math.inf) -> None:
    """Draw the mean over the seeds up to the step `last`, with a band from min to max for several seeds."""
    curves = [[at for at in curve if at[0] <= last] for curve in of_seeds(job)]
    steps = [step for step, _ in curves[0]]
    values = [[value for _, value in at] for at in zip(*curves, strict=True)]
    if len(curves) > 1:
        plot.band(steps, [min(at) for at in values], [max(at) for at in values], ink)
    plot.curve(list(zip(steps, map(fmean, values), strict=True)), ink)
    x, y = plot.at(steps[-1], fmean(values[-1]))
    d.text(x + 8, y + shift, name, f"{ink} strong", "start", size=12)


def halfcheetah() -> str:
    """TD3 and DDPG, and the authors' curve."""
    title = "Returns of TD3 and DDPG on HalfCheetah, and those of TD3's authors"
    return _on_halfcheetah(
        title,
        (("td3-halfcheetah", "TD3", "ink-actor", 12), ("ddpg-halfcheetah", "DDPG", "ink-critic", -4)),
        published("td3-halfcheetah", "TD3's authors, 10 seeds, v1"),
    )


def soft() -> str:
    """SAC with two step sizes, and what others have with the smaller."""
    title = "Returns of SAC on HalfCheetah with learning rates 1e-3 and 3e-4"
    job = "sac-halfcheetah-1e-3-bf16"
    return _on_halfcheetah(
        title,
        ((job, "1e-3", "ink-actor", 4), ("sac-halfcheetah", "3e-4", "ink-critic", 4)),
        published(job, "SAC in CrossQ's paper, 10 seeds, v4"),
    )


def flash() -> str:
    """FlashSAC, CrossQ and TD3 in their first 100,000 steps, and what FlashSAC's authors have then."""
    job = "flashsac-halfcheetah-100k"
    runs = (
        (job, "FlashSAC", "ink-noise", 4.0),
        ("crossq-halfcheetah-100k", "CrossQ", "ink-critic", 4.0),
        ("td3-halfcheetah-100k", "TD3", "ink-actor", 4.0),
    )
    authors = campaign()["jobs"][job]["published"]["FlashSAC's authors, 5 seeds, v4"]
    title = "Returns of FlashSAC, CrossQ and TD3 on HalfCheetah"
    return _returns(title, runs, [(100_000, authors)], 100_000, (0, 3_000, 6_000, 9_000), (-500.0, 11_000.0))


def hopper() -> str:
    """TD3 and DDPG with the same networks and settings."""
    title = "Returns of TD3 and DDPG on Hopper with the same settings"
    runs = (
        ("td3-hopper-300k-400-300", "TD3", "ink-actor", 4.0),
        ("ddpg-hopper-300k-400-300", "DDPG", "ink-critic", 4.0),
    )
    return _returns(title, runs, [], 200_000, (0, 1_000, 2_000, 3_000), (-100.0, 3_800.0))


def _on_halfcheetah(title: str, runs: Jobs, crosses: list[tuple[float, float]]) -> str:
    return _returns(title, runs, crosses, 1_000_000, (0, 4_000, 8_000, 12_000), (-500.0, 13_000.0))


def _returns(
    title: str,
    runs: Jobs,
    crosses: list[tuple[float, float]],
    steps: int,
    ticks: tuple[float, ...],
    span: tuple[float, float],
) -> str:
    d = Drawing(680, 330, title)
    plot = Plot(d, 70, 34, 520, 240, (0, steps), span)
    plot.axes([steps * i // 4 for i in range(5)], ticks, "steps", "mean return of ten episodes")
    for job, name, ink, shift in runs:
        banded(d, plot, job, name, ink, shift, steps)
    for step, value in crosses:
        _cross(d, *plot.at(step, value))
    return d.svg()


def pong() -> str:
    """PPO on Pong, and CleanRL's curve."""
    d = Drawing(680, 320, "Scores of PPO on Pong, ours and CleanRL's")
    plot = Plot(d, 60, 34, 540, 230, (0, 10_000_000), (-21.5, 21.5))
    plot.axes(
        (0, 2_000_000, 4_000_000, 6_000_000, 8_000_000, 10_000_000),
        (-21, -10, 0, 10, 21),
        "steps",
        "score, mean of ten games",
    )
    plot.curve(evaluations("ppo-pong-s0"), "ink-actor")
    for step, value in published("ppo-pong", "CleanRL's PPO (37 details, 2022), 3 seeds, training returns"):
        _cross(d, *plot.at(step, value))
    return d.svg()


def _cross(d: Drawing, x: float, y: float) -> None:
    d.line([(x - 4, y - 4), (x + 4, y + 4)])
    d.line([(x - 4, y + 4), (x + 4, y - 4)])


def lander() -> str:
    """DQN on LunarLander."""
    d = Drawing(680, 300, "DQN on LunarLander reaches 200 after 120,000 steps")
    plot = Plot(d, 66, 34, 540, 210, (0, 200_000), (-400.0, 320.0))
    plot.axes((0, 50_000, 100_000, 150_000, 200_000), (-400, -200, 0, 200), "steps", "mean return of ten episodes")
    plot.curve([(0, 200), (200_000, 200)], "quiet dashed")
    plot.curve([(x, max(y, -400)) for x, y in evaluations("dqn-lander-s0")], "ink-critic")
    return d.svg()
