"""Minutes of training until an evaluation first has a mean return, for several agents side by side.

    python benchmarks/time_to.py benchmarks/results/speed/to-5000.csv --output benchmarks/results/time-to-5000.md

Steps to the level are those of committed learning runs, ours and the peers', whose machine was busy with other work; a
step's seconds are those that `speed.py` has measured for the same settings, turn and turn about, without evaluations.
Their product is what a run takes on a machine that does nothing else. Steps before learning starts are not counted.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path
from statistics import median
from typing import NamedTuple

from report import publish, table

RESULTS = Path(__file__).parent / "results"


class Agent(NamedTuple):
    label: str
    contender: str
    task: str
    learning: str  # its runs, without the seed
    learning_starts: int


AGENTS = [
    Agent("Duetto CrossQ, critics 512-512", "duetto-jax", "crossq", "learning/crossq-halfcheetah-100k", 5_000),
    Agent("SBX CrossQ, critics 512-512", "sbx", "crossq", "learning-peers/sbx-crossq-halfcheetah", 5_000),
    Agent("Duetto SAC", "duetto-jax", "sac", "learning/sac-halfcheetah", 10_000),
    Agent("SBX SAC", "sbx", "sac", "learning-peers/sbx-sac-halfcheetah", 10_000),
    Agent("Duetto TD3", "duetto-jax", "td3-256", "learning/td3-halfcheetah", 25_000),
]


def steps_to(runs: str, level: float) -> list[int | None]:
    """Of each seed: the first evaluation whose mean return is at least `level`."""
    found = []
    for path in sorted((RESULTS / runs).parent.glob(f"{Path(runs).name}-s*/evaluations.csv")):
        rows = csv.DictReader(path.read_text("utf-8").splitlines())
        found.append(next((int(row["step"]) for row in rows if float(row["mean_return"]) >= level), None))
    return found


def rates(path: Path, agent: Agent) -> list[float]:
    """Steps per second of each round, with the better number of threads."""
    rows = [row for row in csv.DictReader(path.read_text("utf-8").splitlines()) if row["precision"] == "float32"]
    own = [row for row in rows if (row["contender"], row["task"]) == (agent.contender, agent.task)]
    by_threads: dict[str, list[float]] = {}
    for row in own:
        by_threads.setdefault(row["threads"], []).append(float(row["steps_per_second"]))
    return max(by_threads.values(), key=median, default=[])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speed", type=Path, help="the CSV of speed.py")
    parser.add_argument("--level", type=float, default=5_000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for agent in AGENTS:
        steps, rate = steps_to(agent.learning, options.level), rates(options.speed, agent)
        if not (steps and rate):
            continue
        minutes = [(count - agent.learning_starts) / median(rate) / 60 for count in steps if count is not None]
        counts = ", ".join("not reached" if count is None else f"{count:,}" for count in steps)
        shown = ", ".join(f"{one:.1f}" for one in minutes)
        spread = f"{median(rate):.0f} ({min(rate):.0f} to {max(rate):.0f})"
        rows.append([agent.label, counts, f"{agent.learning_starts:,}", spread, shown])
    header = ["agent", "steps to it, by seed", "of these without updates", "steps/s", "minutes, by seed"]
    page = os.path.relpath(options.speed.with_suffix(".md"), options.output.parent if options.output else ".")
    about = (
        f"# HalfCheetah-v5: minutes until an evaluation of ten episodes has a mean return of {options.level:,.0f}\n\n"
        "Evaluations every 5,000 steps. Steps to the level are from learning runs on a busy machine; steps/s were "
        f"measured turn and turn about (`{page}`, where machine and versions "
        "stand). Minutes are steps with updates, times seconds a step: without evaluations and compilation."
    )
    publish(f"{about}\n\n{table(header, rows)}", options.output)


if __name__ == "__main__":
    main()
