"""How many training steps a second we and others make: medians of `benchmarks/results/speed.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "speed.csv"
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
MACHINES = ("AMD EPYC, Zen 3", "AMD EPYC, Zen 4", "AMD EPYC, Zen 5", "Intel Xeon, AMX", "Intel Xeon, 2.5 GHz")
BF16 = "bfloat16"  # ours on JAX; the others use float32
# Rows of the short table: a task, our contender, and the library it is compared with (None: the fastest).
ROWS = {
    "TD3": ("td3", "duetto-jax", None),
    "TD3, `--precision bf16`": ("td3", BF16, None),
    "DDPG": ("ddpg", "duetto-jax", None),
    "SAC": ("sac", "duetto-jax", None),
    "SAC, `--precision bf16`": ("sac", BF16, None),
    "CrossQ": ("crossq", "duetto-jax", None),
    "PPO, eight HalfCheetahs": ("ppo-halfcheetah-8", "duetto-jax", None),
    "PPO, Breakout, on PyTorch": ("ppo-breakout", "duetto-torch", None),
    "TD3, PyTorch : SB3": ("td3", "duetto-torch", "sb3"),
    "SAC, PyTorch : SB3": ("sac", "duetto-torch", "sb3"),
}
Where = tuple[str, str]  # a task, and the processor that it was measured on, one of MACHINES


class Round(NamedTuple):
    """What one contender did in one round of one series of measurements."""

    where: Where
    series: str
    contender: str
    threads: str
    number: str  # of the round
    rate: float


@cache
def rounds(precision: str = "float32") -> list[Round]:
    """Everything that was measured in this precision."""
    with TABLE.open(encoding="utf-8") as file:
        return [
            Round(
                (row["task"], row["machine"]),
                row["series"],
                row["contender"],
                row["threads"],
                row["round"],
                float(row["steps_per_second"]),
            )
            for row in csv.DictReader(file)
            if row["precision"] == precision
        ]


def medians(of: Iterable[Round]) -> dict[Where, dict[str, float]]:
    """Of each task on each processor, each contender's median over its rounds, at its better number of threads."""
    found: dict[tuple[Where, str, str], list[float]] = {}
    for one in of:
        found.setdefault((one.where, one.contender, one.threads), []).append(one.rate)
    best: dict[Where, dict[str, float]] = {}
    for (where, contender, _), values in found.items():
        of_task = best.setdefault(where, {})
        of_task[contender] = max(of_task.get(contender, 0.0), median(values))
    order = list(TASKS)
    return dict(sorted(best.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


@cache
def rates() -> dict[Where, dict[str, float]]:
    """Medians of all series, in float32."""
    return medians(rounds())


def fastest(where: Where, ours: bool) -> str:
    """Of our two backends, or of all others."""
    measured = rates()[where]
    names = [name for name in measured if name.startswith("duetto") == ours and name in LABELS]
    return max(names, key=lambda name: measured[name])


def summary() -> tuple[list[str], list[list[str]]]:
    """Return a table of steps per second of each library, and the ratio of Duetto to the fastest other one."""
    rows = []
    for (task, machine), measured in rates().items():
        peer, best = (fastest((task, machine), ours=ours) for ours in (False, True))
        cells = [f"{measured[name]:,.0f}" if name in measured else "–" for name in LABELS]
        rows.append([TASKS[task], machine, *cells, f"{measured[best] / measured[peer]:.2f}"])
    return ["task", "processor", *LABELS.values(), "our best : fastest other"], rows


def ratios() -> tuple[list[str], list[list[str]]]:
    """Return the table of ratios of steps per second (bold from 1.1 on) with both medians."""
    rows = []
    for label, (task, own, other) in ROWS.items():
        cells = [_compared((task, machine), own, other) for machine in MACHINES]
        rows.append([label, *cells])
    return ["", *MACHINES], rows


def _compared(where: Where, own: str, other: str | None) -> str:
    """The median over rounds in which both took turns: the hours of a machine differ by more than libraries do."""
    others = [one for one in rounds() if one.where == where]
    ours = others if own != BF16 else [one for one in rounds("bf16") if one.where == where]
    mine = _turns(ours, own if own != BF16 else "duetto-jax")
    peers = {one.contender for one in others if not one.contender.startswith("duetto") and one.contender in LABELS}
    found = []
    for peer in [other] if other else sorted(peers):
        theirs = _turns(others, peer)
        if both := mine.keys() & theirs.keys():
            ratios = [mine[turn] / theirs[turn] for turn in both]
            found.append((median(ratios), *(median(side[turn] for turn in both) for side in (mine, theirs))))
    if not found:
        return "–"
    ratio, own_rate, their_rate = min(found)
    shown = f"{ratio:.2f}"
    return f"{f'**{shown}**' if float(shown) >= 1.1 else shown} ({own_rate:,.0f} : {their_rate:,.0f})"


def _turns(of: Iterable[Round], contender: str) -> dict[tuple[str, str], float]:
    """A contender's rates by series and round, at its better number of threads."""
    own = [one for one in of if one.contender == contender]
    if not own:
        return {}
    best = max({one.threads for one in own}, key=lambda few: median(one.rate for one in own if one.threads == few))
    return {(one.series, one.number): one.rate for one in own if one.threads == best}
