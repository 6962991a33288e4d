"""Tables of results and published numbers, from the committed runs and `benchmarks/jobs.yaml`."""

from __future__ import annotations

import csv
import re
from statistics import fmean

from learned import BENCHMARKS, campaign, config, evaluations

LEARNING = BENCHMARKS / "results" / "learning"
Table = tuple[list[str], list[list[str]]]

# Jobs with published numbers, and their names in the table.
PUBLISHED = {
    "td3-halfcheetah": "TD3, HalfCheetah-v5",
    "td3-halfcheetah-100k": "TD3, HalfCheetah-v5",
    "td3-hopper-paper": "TD3, bfloat16, Hopper-v5",
    "td3-walker2d-paper": "TD3, bfloat16, Walker2d-v5",
    "td3-ant-bf16": "TD3, bfloat16, Ant-v5",
    "td3-ant-bullet": "TD3, AntBulletEnv-v0",
    "td3-pendulum": "TD3, Pendulum-v1",
    "ddpg-halfcheetah": "DDPG, HalfCheetah-v5",
    "ddpg-pendulum": "DDPG, Pendulum-v1",
    "sac-halfcheetah-1e-3-bf16": "SAC, learning rate 1e-3, bfloat16, HalfCheetah-v5",
    "crossq-halfcheetah-100k": "CrossQ, critics of 512-512, HalfCheetah-v5",
    "flashsac-halfcheetah-100k": "FlashSAC, bfloat16, HalfCheetah-v5",
    "ppo-halfcheetah": "PPO, HalfCheetah-v5",
    "ppo-pong": "PPO, bfloat16, Pong without sticky actions",
    "ppo-breakout": "PPO, bfloat16, Breakout without sticky actions",
}

# Task: the jobs with recurrence and without.
MEMORY = {
    "MemoryS9, R2D2 and DQN": ("r2d2-memory", "dqn-memory"),
    "MemoryS9 with a view of 5 x 5, R2D2 and DQN": ("r2d2-memory-view-5", "dqn-memory-view-5"),
    "MemoryS13 with a view of 5 x 5, R2D2 and DQN": ("r2d2-memory-13-view-5", "dqn-memory-13-view-5"),
    "MemoryS9 with a view of 5 x 5, recurrent PPO": ("ppo-memory-view-5", ""),
    "Pendulum-v1 without velocities, TD3": ("td3-masked-pendulum-jax", "td3-masked-pendulum-feedforward"),
    "Pendulum-v1 without velocities, DDPG": ("ddpg-masked-pendulum-jax", "ddpg-masked-pendulum-feedforward"),
    "Pendulum-v1 without velocities, SAC": ("sac-masked-pendulum-jax", "sac-masked-pendulum-feedforward"),
    "CartPole-v1 without velocities, PPO": ("ppo-masked-cartpole-jax", "ppo-masked-cartpole-feedforward"),
}

# Task of MiniGrid: the prefix of its jobs.
EXPLORATION = {
    "KeyCorridorS3R3": "keycorridor",
    "KeyCorridorS4R3": "keycorridor-s4",
    "ObstructedMaze-2Dlhb": "obstructed",
    "MultiRoom-N6": "multiroom",
    "DoorKey-16x16": "doorkey-16",
}


def published() -> Table:
    """Our results, and those that others report at the same number of steps or the last one before it."""
    rows = [_published(job, name) for job, name in PUBLISHED.items() if seeds(job)]
    return ["run", "Duetto", "published"], rows


def memory() -> Table:
    """Return the last episodes of each seed, with recurrence and without."""
    rows = [[task, *map(_ends, jobs)] for task, jobs in MEMORY.items() if seeds(jobs[0])]
    return ["task", "with LSTM", "without"], rows


def exploration() -> Table:
    """Return the success rate of each seed for four algorithms. A cell names its steps if its row has others."""
    kinds = ("r2d3", "r2d2", "bc", "dqfd")
    rows = []
    for task, name in EXPLORATION.items():
        jobs = [f"{name}-{kind}" for kind in kinds]
        if seeds(jobs[0]):
            steps = planned(jobs[0])
            rows.append([task, f"{steps:,}", *(_ends(job) + _other_steps(job, steps) for job in jobs)])
    names = ["R2D3", "R2D2, no demonstrations", "behavior cloning", "DQfD, no recurrence"]
    return ["MiniGrid's", "steps", *names], rows


def seeds(job: str) -> list[str]:
    """Return the names of a job's committed runs."""
    folders = (folder.name for folder in LEARNING.glob(f"{job}-s*"))
    return sorted(name for name in folders if re.fullmatch(rf"{re.escape(job)}-s\d+", name))


def final(run: str) -> list[float]:
    """Return the returns of the episodes after the end of a run."""
    path = LEARNING / run / "final.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [float(row["return"]) for row in csv.DictReader(file)]


def planned(job: str) -> int:
    """Return the planned steps of a job."""
    return config(seeds(job)[0])["run"]["steps"]


def _published(job: str, name: str) -> list[str]:
    curves = [evaluations(run) for run in seeds(job)]
    ours = _span([curve[-1][1] for curve in curves])
    more = [returns for returns in map(final, seeds(job)) if len(returns) > 10]
    if more:
        ours += f"; {_span([fmean(returns) for returns in more])} in {len(more[0])} more episodes"
    many = f", {len(curves)} seeds" if len(curves) > 1 else ""
    return [f"{name}, {planned(job):,} steps{many}", ours, _reported(job, int(curves[0][-1][0]))]


def _reported(job: str, made: int) -> str:
    found = []
    for label, value in campaign()["jobs"][job].get("published", {}).items():
        number, at = value, ""
        if isinstance(value, list):
            step, number = max([point for point in value if point[0] <= made] or value[:1])
            at = "" if step == made else f" at {step:,}"
        found.append(f"{_number(number)}{at}: {label}")
    return "; ".join(found)


def _ends(job: str) -> str:
    """Return the success rate of each seed if the job counts successes, otherwise the mean return."""
    found = [one for one in map(final, seeds(job)) if one] if job else []
    if not found:
        return "–" if not job else "not run"
    if campaign()["jobs"][job].get("success"):
        return ", ".join(f"{sum(value > 0 for value in one) / len(one):.3f}" for one in found)
    return ", ".join(_number(fmean(one)) for one in found)


def _other_steps(job: str, steps: int) -> str:
    """Return a job's planned steps in brackets, or nothing if they equal `steps`."""
    return f" ({planned(job):,} steps)" if seeds(job) and planned(job) != steps else ""


def _span(values: list[float]) -> str:
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(fmean(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 100 else 1}f}".replace("-", "−")
