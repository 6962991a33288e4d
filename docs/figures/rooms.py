"""Figures of the pages on architecture, resume and speed, drawn from the sources and tables."""

from __future__ import annotations

import csv
import re
import tomllib
from functools import cache
from pathlib import Path
from statistics import median

from drawing import Drawing, Plot

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "duetto"


# ---------------------------------------------------------------------------------------------------- the house
@cache
def floors() -> tuple[tuple[str, ...], ...]:
    """Return the packages from top to bottom, as in import-linter's configuration."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if "layers" in contract)
    return tuple(tuple(room.strip().removeprefix("duetto.") for room in layer.split("|")) for layer in layers)


def files(room: str) -> list[Path]:
    """Return the Python files of a package."""
    folder = SOURCE / room.replace(".", "/")
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the packages that each package imports, at the top of a file or inside a function."""
    rooms = [room for floor in floors() for room in floor]
    found = {}
    for room in rooms:
        text = "\n".join(path.read_text("utf-8") for path in files(room))
        named = re.findall(r"^\s*(?:from|import) duetto\.([\w.]+)", text, re.MULTILINE)
        for inside, listed in re.findall(r"^\s*from duetto(\.tools)? import ([\w, ]+)", text, re.MULTILINE):
            above = f"{inside[1:]}." if inside else ""
            named += [above + name.split(" as ")[0].strip() for name in listed.split(",")]
        found[room] = frozenset(
            other for other in rooms for name in named if other != room and f"{name}.".startswith(f"{other}.")
        )
    return found


KNOWN = {
    "networks": "PyTorch, JAX",
    "learners": "PyTorch, JAX",
    "environments": "Gymnasium",
    "demonstrations": "Minari",
    "cluster": "Ray",
}


def house() -> str:
    """Draw one row per layer. A layer imports only lower layers."""
    d = Drawing(
        720,
        40 + 46 * len(floors()),
        "Packages in layers: imports go down only, and each framework is imported in few packages",
    )
    for row, floor in enumerate(floors()):
        y, width = 36 + 46 * row, 600 / len(floor)
        for column, room in enumerate(floor):
            x = 30 + width * (column + 0.5)
            ink = (
                "ink-target" if room in ("algorithms", "functional") else "ink-critic" if room in KNOWN else "ink-state"
            )
            d.box(x, y, width - 10, 36, "", ink)
            d.text(x, y + (0 if room in KNOWN else 4), room, f"{ink} strong", size=12.5)
            if room in KNOWN:
                d.text(x, y + 13, KNOWN[room], f"{ink}", size=10)
    d.arrow([(664, 24), (664, 36 + 46 * (len(floors()) - 1) + 12)])
    d.text(676, 60, "may", "faint", "start", size=11.5)
    d.text(676, 75, "import", "faint", "start", size=11.5)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- resuming
def checkpoint() -> str:
    """Draw the contents of a checkpoint."""
    d = Drawing(740, 240, "A checkpoint contains everything that determines how a run continues")
    parts = (
        ("learner", "weights, optimizers", "ink-critic"),
        ("replay buffer", "steps, priorities", "ink-reward"),
        ("environments", "running episodes", "ink-state"),
        ("random numbers", "one generator each", "ink-noise"),
        ("statistics, logs", "and callbacks", "ink-actor"),
    )
    for i, (words, more, ink) in enumerate(parts):
        d.box(82 + 144 * i, 50, 134, 50, words, ink, more=more)
        d.arrow([(82 + 144 * i, 77), (82 + 144 * i, 116)], ink)
    d.box(370, 140, 710, 42, "checkpoint: written under a new name, synced, then renamed", "ink-target")
    d.arrow([(370, 163), (370, 196)], "ink-target")
    d.text(370, 218, "resume: the same next step, bit for bit", "strong", size=13)
    return d.svg()


# ---------------------------------------------------------------------------------------------------- one machine
@cache
def speeds(machine: str) -> dict[tuple[str, str, int], float]:
    """Median steps per second of each task, contender and number of threads on a processor, in float32."""
    found: dict[tuple[str, str, int], list[float]] = {}
    with (ROOT / "benchmarks" / "results" / "speed.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["machine"] == machine and row["precision"] == "float32":
                key = row["task"], row["contender"], int(row["threads"])
                found.setdefault(key, []).append(float(row["steps_per_second"]))
    return {key: median(values) for key, values in found.items()}


def side_by_side() -> str:
    """PPO on HalfCheetah with one environment and with eight."""
    d = Drawing(640, 210, "Steps per second of PPO with one and eight environments, on JAX and PyTorch")
    plot = Plot(d, 190, 16, 380, 150, (0.0, 20_000.0), (-0.6, 3.6))
    d.line([(plot.left, plot.bottom), (plot.right, plot.bottom)], "axis")
    for tick in (0, 5_000, 10_000, 15_000, 20_000):
        x, y = plot.at(tick, -0.6)
        d.line([(x, y), (x, y + 4)], "axis")
        d.text(x, y + 18, f"{tick:,}", "faint", size=11.5)
    rows = [(name, count) for name in ("jax", "torch") for count in (1, 8)]
    for row, (name, count) in enumerate(rows):
        value = speeds("AMD EPYC, Zen 5")[f"ppo-halfcheetah-{count}", f"duetto-{name}", 1]
        x, y = plot.at(value, 3 - row)
        ink = "ink-critic" if name == "jax" else "ink-actor"
        words = f"{'JAX' if name == 'jax' else 'PyTorch'}, {count} environment{'s' * (count > 1)}"
        d.text(plot.left - 12, y + 4, words, "", "end", size=12.5)
        d.add("rect", f"box {ink}", x=plot.left, y=y - 11, width=x - plot.left, height=22, rx=2)
        d.text(x + 8, y + 4, f"{value:,.0f}", f"{ink} strong", "start", size=12)
    d.text(380, 204, "steps per second, one thread", "faint", size=11.5)
    return d.svg()
