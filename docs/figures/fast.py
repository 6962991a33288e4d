"""How many training steps a second we and others make: medians of `benchmarks/results/`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TABLES = sorted([*RESULTS.glob("speed*.csv"), *RESULTS.glob("speed/*.csv")])
BEHIND = "duetto-jax-behind"  # acts one step behind; measured in these goes
WITH_BEHIND = [RESULTS / "behind-amx.csv", RESULTS / "speed" / "one-update-zen4.csv"]
# Rows that are older than a change of our products; the table beside them has both sides again. By table and precision.
REPEATED = {
    ("one-update-zen4", "float32"): ("duetto-torch", "sb3"),
    ("speed", "float32"): ("duetto-jax", "sbx"),
    ("speed", "bf16"): ("duetto-jax",),
}
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


MACHINES = {
    "AMD EPYC (Zen 3, AVX2)": "AMD EPYC, Zen 3",
    "AMD EPYC (Zen 4, AVX-512 BF16)": "AMD EPYC, Zen 4",
    "AMD EPYC (Zen 5, AVX-512 BF16)": "AMD EPYC, Zen 5",
    "AMD EPYC": "AMD EPYC, Zen 5",  # as earlier tables call it
    "Intel Xeon (AMX)": "Intel Xeon, AMX",
    "Intel Xeon @ 2.50GHz (AVX-512)": "Intel Xeon, 2.5 GHz",
    "Intel Xeon": "another Intel Xeon",
}
BF16 = "bfloat16"  # ours on JAX, beside float32 of the others
# The README's rows: a task, ours, and the other that it is beside; None: the fastest of them all.
ROWS = {
    "TD3": ("td3", "duetto-jax", None),
    "TD3, `--act-behind`": ("td3", "duetto-jax-behind", None),
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
Where = tuple[str, str]  # a task, and the processor that it was measured on, as `MACHINES` calls it


class Round(NamedTuple):
    """A line of a table: what one contender did in one round of one go."""

    where: Where
    go: str
    contender: str
    threads: str
    number: str  # of the round
    rate: float


@cache
def rounds(precision: str = "float32", behind: bool = False) -> list[Round]:
    """All that was measured, or only the goes in which we acted one step behind, too."""
    found = []
    for path in WITH_BEHIND if behind else TABLES:
        machine = _machine(path)
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                again = row["contender"] in REPEATED.get((path.stem, precision), ())
                if row["precision"] == precision and row["steps_per_second"] and not again:
                    rate = float(row["steps_per_second"])
                    turn = (path.stem, row["contender"], row["threads"], row["round"])
                    found.append(Round((row["task"], machine), *turn, rate))
    return found


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
    """Medians of all goes, in float32."""
    return medians(rounds())


def _machine(path: Path) -> str:
    """The processor, which the table beside the raw rows names."""
    machine = re.search(r"^- Machine: (.*?), \d+ cores", path.with_suffix(".md").read_text("utf-8"), re.MULTILINE)
    assert machine is not None, path
    return MACHINES[re.sub(r"\(R\)| Processor", "", machine[1])]


def fastest(where: Where, ours: bool) -> str:
    """Of our two backends, or of all others."""
    measured = rates()[where]
    names = [name for name in measured if name.startswith("duetto") == ours and name in LABELS]
    return max(names, key=lambda name: measured[name])


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
    """The README's table: how many times another's steps a second ours are, in bold from 1.1 on, and both medians."""
    columns = list(dict.fromkeys(MACHINES.values()))
    rows = []
    for label, (task, own, other) in ROWS.items():
        cells = [_compared((task, machine), own, other) for machine in columns]
        rows.append([label, *cells])
    return ["", *columns], rows


def _compared(where: Where, own: str, other: str | None) -> str:
    """The median over rounds in which both took turns: the hours of a machine differ by more than libraries do."""
    others = [one for one in rounds(behind=own == BEHIND) if one.where == where]
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
    shown, plain = f"{ratio:.2f}", ""
    if own == BEHIND:
        plain = f"; without it {median(_turns(others, 'duetto-jax').values()):,.0f}"
    return f"{f'**{shown}**' if float(shown) >= 1.1 else shown} ({own_rate:,.0f} : {their_rate:,.0f}{plain})"


def _turns(of: Iterable[Round], contender: str) -> dict[tuple[str, str], float]:
    """A contender's rates by go and round, at its better number of threads."""
    own = [one for one in of if one.contender == contender]
    if not own:
        return {}
    best = max({one.threads for one in own}, key=lambda few: median(one.rate for one in own if one.threads == few))
    return {(one.go, one.number): one.rate for one in own if one.threads == best}
