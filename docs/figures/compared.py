"""The tables beside published numbers, from the committed runs and `benchmarks/jobs.yaml` alone."""

from __future__ import annotations

import csv
import re
from statistics import fmean

from learned import BENCHMARKS, campaign, config, evaluations

LEARNING = BENCHMARKS / "results" / "learning"
Table = tuple[list[str], list[list[str]]]

# Jobs with numbers of others to stand beside, in the words of the page.
BESIDE = {
    "td3-halfcheetah": "TD3, HalfCheetah-v5",
    "ddpg-halfcheetah": "DDPG, HalfCheetah-v5",
    "sac-halfcheetah-1e-3-bf16": "SAC with learning rate 1e-3, bfloat16, HalfCheetah-v5",
    "sac-halfcheetah": "SAC with its author's learning rate, 3e-4, HalfCheetah-v5",
    "crossq-halfcheetah-100k": "CrossQ with critics of 512-512, HalfCheetah-v5",
    "td3-halfcheetah-100k": "TD3, HalfCheetah-v5",
    "td3-halfcheetah-100k-bf16": "TD3, bfloat16, HalfCheetah-v5",
    "td3-halfcheetah-paper-100k": "TD3 with the paper's networks, HalfCheetah-v5",
    "td3-halfcheetah-paper-100k-bf16": "TD3 with the paper's networks, bfloat16 on PyTorch, HalfCheetah-v5",
    "td3-halfcheetah-simba-100k": "TD3 with SimBa's networks, bfloat16, HalfCheetah-v5",
    "sac-halfcheetah-simba-100k": "SAC with SimBa's networks, bfloat16, HalfCheetah-v5",
    "ppo-halfcheetah": "PPO, HalfCheetah-v5",
    "td3-hopper": "TD3, Hopper-v5",
    "td3-hopper-bf16": "TD3, bfloat16, Hopper-v5",
    "td3-walker2d-di-engine-bf16": "TD3, bfloat16, Walker2d-v5",
    "td3-walker2d": "TD3 with its author's learning rate, Walker2d-v5",
    "td3-ant-bf16": "TD3, bfloat16, Ant-v5",
    "td3-ant-bullet": "TD3, AntBulletEnv-v0",
    "ppo-pong": "PPO, bfloat16, Pong without sticky actions",
    "ppo-breakout": "PPO, bfloat16, Breakout without sticky actions",
    "td3-pendulum": "TD3, Pendulum-v1",
    "ddpg-pendulum": "DDPG, Pendulum-v1",
}

# Task: the jobs with a memory of the episode, and those without.
MEMORY = {
    "MemoryS9, R2D2 and DQN": ("r2d2-memory", "dqn-memory"),
    "MemoryS9 with a view of 5 x 5, R2D2 and DQN": ("r2d2-memory-view-5", "dqn-memory-view-5"),
    "MemoryS13 with a view of 5 x 5, R2D2 and DQN": ("r2d2-memory-13-view-5", "dqn-memory-13-view-5"),
    "MemoryS9 with a view of 5 x 5, recurrent PPO": ("ppo-memory-view-5", ""),
    "Pendulum-v1 without velocities, TD3": ("td3-masked-pendulum-jax", "td3-masked-pendulum-feedforward"),
    "Pendulum-v1 without velocities, TD3, PyTorch": ("td3-masked-pendulum-torch", ""),
    "Pendulum-v1 without velocities, DDPG": ("ddpg-masked-pendulum-jax", "ddpg-masked-pendulum-feedforward"),
    "Pendulum-v1 without velocities, DDPG, PyTorch": ("ddpg-masked-pendulum-torch", ""),
    "Pendulum-v1 without velocities, SAC": ("sac-masked-pendulum-jax", "sac-masked-pendulum-feedforward"),
    "CartPole-v1 without velocities, PPO": ("ppo-masked-cartpole-jax", "ppo-masked-cartpole-feedforward"),
    "CartPole-v1 without velocities, PPO, PyTorch": ("ppo-masked-cartpole-torch", ""),
}

# TD3 on Hopper-v5 in bfloat16 with DI-engine's settings, and with one of them taken back.
CHANGES = {
    "td3-hopper-bf16": "DI-engine's",
    "td3-hopper-300k-slower": "learning rates of 3e-4 instead of 1e-3",
    "td3-hopper-300k-targets-with-actor": "targets move with the actor, not at every update",
    "td3-hopper-300k-1000-random": "1,000 random steps instead of 25,000",
    "td3-hopper-300k-400-300": "layers of 400 and 300 instead of 256 and 256",
}

# Task of MiniGrid: how its jobs' names begin.
EXPLORATION = {
    "KeyCorridorS3R3": "keycorridor",
    "KeyCorridorS4R3": "keycorridor-s4",
    "ObstructedMaze-2Dlhb": "obstructed",
    "MultiRoom-N6": "multiroom",
    "DoorKey-16x16": "doorkey-16",
}


def beside() -> Table:
    """Ours, and what others report at the same number of steps or the last one before it."""
    return ["run", "ours", "reported"], [_beside(job, words) for job, words in BESIDE.items() if seeds(job)]


def memory() -> Table:
    """Each seed's last episodes, with a memory and without."""
    rows = [[task, *map(_ends, jobs)] for task, jobs in MEMORY.items() if seeds(jobs[0])]
    return ["task", "with memory", "without"], rows


def changes() -> Table:
    """The last ten evaluations, up to step 300,000, of every seed; jobs that have not come so far are left out."""
    rows = []
    for job, words in CHANGES.items():
        curves = {run: curve for run in seeds(job) if (curve := evaluations(run))[-1][0] >= 300_000}
        ends = {run: fmean([value for at, value in curve if at <= 300_000][-10:]) for run, curve in curves.items()}
        if ends:
            each = [f"{_number(end)} †" if run in campaign()["rounded"] else _number(end) for run, end in ends.items()]
            rows.append([words, ", ".join(each), _number(fmean(ends.values()))])
    return ["settings", "each seed", "mean"], rows


def exploration() -> Table:
    """Each seed's successes, of four algorithms; a cell says its steps where they are not those of its row."""
    kinds = ("r2d3", "r2d2", "bc", "dqfd")
    rows = []
    for task, name in EXPLORATION.items():
        jobs = [f"{name}-{kind}" for kind in kinds]
        if seeds(jobs[0]):
            steps = planned(jobs[0])
            rows.append([task, f"{steps:,}", *(_ends(job) + _other_steps(job, steps) for job in jobs)])
    names = ["R2D3", "R2D2, no demonstrations", "behaviour cloning", "DQfD, no memory of the episode"]
    return ["MiniGrid's", "steps", *names], rows


def seeds(job: str) -> list[str]:
    """The names of a job's committed runs."""
    folders = (folder.name for folder in LEARNING.glob(f"{job}-s*"))
    return sorted(name for name in folders if re.fullmatch(rf"{re.escape(job)}-s\d+", name))


def final(run: str) -> list[float]:
    """Returns of the episodes that were played once a run was over."""
    path = LEARNING / run / "final.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [float(row["return"]) for row in csv.DictReader(file)]


def planned(job: str) -> int:
    """The steps that a job's runs were to make."""
    return config(seeds(job)[0])["run"]["steps"]


def _beside(job: str, words: str) -> list[str]:
    every = [evaluations(run) for run in seeds(job)]
    curves = [curve for curve in every if curve[-1][0] >= planned(job)] or every
    shortest = min(map(len, curves))
    made = int(curves[0][shortest - 1][0])
    of_planned = "" if made >= planned(job) else f"stopped at {made:,} of "
    last = [curve[shortest - 1][1] for curve in curves]
    best = fmean(max(value for _, value in curve) for curve in curves)
    ours = [_span(last), f"best {_number(best)}"]
    if more := [fmean(one) for one in map(final, seeds(job)) if one]:
        ours.append(f"{_span(more)} in {len(final(seeds(job)[0]))} more episodes")
    if (level := campaign()["jobs"][job].get("level")) is not None:
        means = [(curves[0][i][0], fmean(curve[i][1] for curve in curves)) for i in range(shortest)]
        first = next((step for step, value in means if value >= level), None)
        ours.append(f"{_number(level)} never" if first is None else f"{_number(level)} first at {first:,.0f}")
    many = f", {len(curves)} seeds" if len(curves) > 1 else ""
    if len(curves) < len(every):
        many += f" ({len(every) - len(curves)} more begun)"
    run = f"{words}, {of_planned}{planned(job):,} steps{many}"
    return [run, "; ".join(ours), _reported(job, made)]


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
    """Of each seed: successes where a job counts them, otherwise the last episodes' mean return."""
    found = [one for one in map(final, seeds(job)) if one] if job else []
    if not found:
        return "–" if not job else "not run"
    if campaign()["jobs"][job].get("success"):
        return ", ".join(f"{sum(value > 0 for value in one) / len(one):.3f}" for one in found)
    return ", ".join(_number(fmean(one)) for one in found)


def _other_steps(job: str, steps: int) -> str:
    """The steps that a job's runs were to make, in brackets; nothing where they are `steps`, or none has run."""
    return f" ({planned(job):,} steps)" if seeds(job) and planned(job) != steps else ""


def _span(values: list[float]) -> str:
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(fmean(values))} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 100 else 1}f}".replace("-", "−")
