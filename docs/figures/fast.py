"""How many training steps a second we and others make: medians of `benchmarks/results/`."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TABLES = sorted([*RESULTS.glob("speed*.csv"), *RESULTS.glob("speed/*.csv")])
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
    "ppo-cartpole": "PPO, eight CartPole-v1",
    "ppo-cartpole-8-seeds": "PPO, eight CartPole-v1, steps of eight seeds at once (the others: of one)",
    "ppo-breakout": "PPO, Breakout",
}


README = {
    "td3": "TD3",
    "sac": "SAC",
    "crossq": "CrossQ",
    "ppo-halfcheetah-8": "PPO, eight",
    "ppo-breakout": "PPO, Breakout",
}
COLUMNS = {
    "Duetto: JAX": ("duetto-jax",),
    "PyTorch": ("duetto-torch",),
    "SBX": ("sbx",),
    "SB3": ("sb3",),
    "skrl": ("skrl-torch", "skrl-jax"),
    "Tianshou": ("tianshou",),
}
Where = tuple[str, str]  # a task, and the processor that it was measured on


@cache
def rates(precision: str = "float32") -> dict[Where, dict[str, float]]:
    """Of each task on each processor, each contender's median over the rounds, at its better number of threads."""
    found: dict[tuple[Where, str, str], list[float]] = {}
    for path in TABLES:
        machine = _machine(path)
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["precision"] == precision and row["steps_per_second"]:
                    key = (row["task"], machine), row["contender"], row["threads"]
                    found.setdefault(key, []).append(float(row["steps_per_second"]))
    best: dict[Where, dict[str, float]] = {}
    for (where, contender, _), values in found.items():
        of_task = best.setdefault(where, {})
        of_task[contender] = max(of_task.get(contender, 0.0), median(values))
    order = list(TASKS)
    return dict(sorted(best.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def _machine(path: Path) -> str:
    """The processor, as the table beside the raw rows names it."""
    machine = re.search(r"^- Machine: (.*?), \d+ cores", path.with_suffix(".md").read_text("utf-8"), re.MULTILINE)
    assert machine is not None, path
    return re.sub(r"\(R\)| Processor", "", machine[1])


def fastest(where: Where, ours: bool) -> str:
    """Of our two backends, or of all others."""
    measured = rates()[where]
    return max((name for name in measured if name.startswith("duetto") == ours), key=lambda name: measured[name])


def summary() -> tuple[list[str], list[list[str]]]:
    """A table: both of our backends, the fastest of the others, and how many times that ours is."""
    rows = []
    for (task, machine), measured in rates().items():
        peer, best = (fastest((task, machine), ours=ours) for ours in (False, True))
        own = [f"{measured[name]:,.0f}" if name in measured else "–" for name in ("duetto-jax", "duetto-torch")]
        ratio = f"{measured[best] / measured[peer]:.2f}"
        rows.append([TASKS[task], *own, f"{LABELS[peer]}: {measured[peer]:,.0f}", ratio, machine])
    return [
        "task",
        "Duetto, JAX",
        "Duetto, PyTorch",
        "the fastest of the others",
        "our best, times that",
        "machine",
    ], rows


def beside() -> tuple[list[str], list[list[str]]]:
    """The README's table: steps per second, in bold what is within 5 % of its row's fastest; the faster of skrl's; and
    how many times the fastest of the others our faster one is.
    """
    rows = []
    for (task, machine), measured in rates().items():
        if task in README:
            rate = [max(measured.get(name, 0.0) for name in names) for names in COLUMNS.values()]
            said = [f"**{one:,.0f}**" if one > 0.95 * max(rate) else f"{one:,.0f}" if one else "–" for one in rate]
            ours, others = max(rate[:2]), max(rate[2:])
            rows.append([f"{README[task]}, {machine}", *said, f"{ours / others:.2f}"])
    return ["", *COLUMNS, "ours : the best other"], rows
