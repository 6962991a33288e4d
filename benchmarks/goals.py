"""Hindsight on a task with goals (`examples/point_reach.py`): how often the goal is reached, with it and without.

    python benchmarks/goals.py run td3 future --seeds 0 1 2     about a minute of one core each
    python benchmarks/goals.py report                           results/goals.md

Each run leaves `results/goals/<algorithm>-<hindsight>-s<seed>.csv`: every 1,000 steps the share of 50 episodes, the
same ones each time and without exploration, whose last step is at the goal.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import duetto

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
RESULTS = HERE / "results" / "goals"

STEPS, EVERY, EPISODES, SEED = 15_000, 1_000, 50, 10_000
OPTIONS: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128, "discount": 0.98, "random_steps": 1_000}
OPTIONS |= {"learning_starts": 1_000, "replay_capacity": 100_000}
NOISE = {"exploration_noise": 0.2}
OWN: dict[str, dict[str, Any]] = {"td3": NOISE, "ddpg": NOISE, "sac": {"temperature": 0.1}}
RUN: dict[str, Any] = {"steps": STEPS, "backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0}


class Success(duetto.Callback):
    """Counts, and keeps, (step, share of episodes that end at the goal)."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float]] = []

    def on_step(self, session: duetto.Session) -> None:
        """At the steps that are due."""
        if session.step % EVERY == 0:
            self.rows.append((session.step, reached(session.policy)))
            print(*self.rows[-1], flush=True)


def reached(policy: Any) -> float:
    """The share of EPISODES that end at the goal, all played side by side."""
    from point_reach import make

    envs = [make() for _ in range(EPISODES)]
    seen = [env.reset(seed=SEED + number)[0] for number, env in enumerate(envs)]
    over, info = False, []
    while not over:
        actions = policy({name: np.stack([obs[name] for obs in seen]) for name in seen[0]})
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        seen, over, info = [step[0] for step in steps], steps[0][3], [step[4] for step in steps]
    return float(np.mean([one["is_success"] for one in info]))


def run(algorithm: str, hindsight: str, seed: int) -> None:
    """One run, and its file."""
    from point_reach import make

    success, began = Success(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = OPTIONS | OWN[algorithm] | RUN | {"hindsight": hindsight, "seed": seed}
        duetto.train(algorithm, make, runs_dir=folder, callbacks=[success], progress=False, **options)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{algorithm}-{hindsight}-s{seed}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "success"])
        rows.writerows(success.rows)
    print(f"{algorithm} {hindsight} seed {seed}: {time.perf_counter() - began:.0f} s")


def report() -> None:
    """A table of all files."""
    runs: dict[tuple[str, str], list[list[tuple[int, float]]]] = {}
    for path in sorted(RESULTS.glob("*.csv")):
        algorithm, hindsight, _ = path.stem.split("-")
        with path.open() as file:
            rows = [(int(row["step"]), float(row["success"])) for row in csv.DictReader(file)]
        runs.setdefault((algorithm, hindsight), []).append(rows)
    lines = [
        "# Goals",
        "",
        f"`examples/point_reach.py`, {STEPS:,} steps, from `benchmarks/goals.py`: the share of {EPISODES} episodes,",
        "without exploration, whose last step is at the goal, one number for each seed.",
        "",
        f"| algorithm | hindsight | seeds | after {STEPS * 2 // 3:,} steps | after {STEPS:,} steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (algorithm, hindsight), seeds in sorted(runs.items()):
        at = [[dict(rows)[step] for rows in seeds] for step in (STEPS * 2 // 3, STEPS)]
        texts = (", ".join(f"{value:.2f}" for value in values) for values in at)
        lines.append(f"| {algorithm} | {hindsight} | {len(seeds)} | {' | '.join(texts)} |")
    (HERE / "results" / "goals.md").write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Parse, and work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="train")
    one.add_argument("algorithm", choices=list(OWN))
    one.add_argument("hindsight", choices=["none", "future", "final", "episode"])
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    commands.add_parser("report", help="the table")
    given = parser.parse_args()
    if given.command == "report":
        report()
        return
    for seed in given.seeds:
        run(given.algorithm, given.hindsight, seed)


if __name__ == "__main__":
    main()
