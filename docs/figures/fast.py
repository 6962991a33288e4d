"""How many training steps a second we and others make: medians of `benchmarks/results/speed*.csv`."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
LABELS = {
    "duetto-jax": "Duetto, JAX",
    "duetto-torch": "Duetto, PyTorch",
    "sbx": "SBX",
    "sb3": "Stable-Baselines3",
    "skrl-torch": "skrl, PyTorch",
    "skrl-jax": "skrl, JAX",
    "tianshou": "Tianshou",
}
TASKS = {
    "td3": "TD3, HalfCheetah-v5",
    "td3-256": "TD3 with layers of 256, HalfCheetah-v5",
    "ddpg": "DDPG, HalfCheetah-v5",
    "sac": "SAC, HalfCheetah-v5",
    "crossq": "CrossQ, HalfCheetah-v5",
    "ppo-halfcheetah-1": "PPO, one HalfCheetah-v5",
    "ppo-halfcheetah-8": "PPO, eight HalfCheetah-v5",
    "ppo-breakout": "PPO, Breakout",
}


@cache
def rates(precision: str = "float32") -> dict[str, dict[str, float]]:
    """Of each task, each contender's median over the rounds, at its better number of threads."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for path in sorted(RESULTS.glob("speed*.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["precision"] == precision and row["steps_per_second"]:
                    key = row["task"], row["contender"], row["threads"]
                    found.setdefault(key, []).append(float(row["steps_per_second"]))
    best: dict[str, dict[str, float]] = {}
    for (task, contender, _), values in found.items():
        of_task = best.setdefault(task, {})
        of_task[contender] = max(of_task.get(contender, 0.0), median(values))
    return best


@cache
def machines() -> dict[str, str]:
    """The processor that each task was measured on."""
    found: dict[str, str] = {}
    for path in sorted(RESULTS.glob("speed*.csv")):
        machine = re.search(r"^- Machine: (.*?),", path.with_suffix(".md").read_text("utf-8"), re.MULTILINE)
        assert machine is not None
        with path.open(encoding="utf-8") as file:
            found |= dict.fromkeys((row["task"] for row in csv.DictReader(file)), machine[1].replace("(R)", ""))
    return found


def fastest(task: str, ours: bool) -> str:
    """Of our two backends, or of all others."""
    measured = rates()[task]
    return max((name for name in measured if name.startswith("duetto") == ours), key=lambda name: measured[name])


def summary() -> tuple[list[str], list[list[str]]]:
    """A table: for each task both of our backends, the fastest of the others, and how many times that ours is."""
    order = list(TASKS)
    rows = []
    for task in sorted(rates(), key=lambda task: order.index(task) if task in order else len(order)):
        measured, peer, best = rates()[task], fastest(task, ours=False), fastest(task, ours=True)
        own = [f"{measured[name]:,.0f}" if name in measured else "–" for name in ("duetto-jax", "duetto-torch")]
        rows.append(
            [
                TASKS.get(task, task),
                *own,
                f"{LABELS[peer]}: {measured[peer]:,.0f}",
                f"{measured[best] / measured[peer]:.2f}",
                machines()[task],
            ]
        )
    return [
        "task",
        "Duetto, JAX",
        "Duetto, PyTorch",
        "the fastest of the others",
        "our best, times that",
        "machine",
    ], rows
