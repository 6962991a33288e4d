"""Compare training several seeds at once with training the same seeds one after the other.

    python benchmarks/many_seeds.py --output benchmarks/results/many-seeds.md

Each command runs in a fresh process, as a user types it: `duetto train ... --seeds 0-7`, and `--seed 0`, `--seed 1` ...
The table has the times of whole commands, with imports and compilation, and of training alone, from the runs' logs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from contenders import listing
from report import circumstances, keep, publish, table

METHOD = """\
Each cell is a fresh process, `duetto train ... --seeds 0-{last}` or the same with `--seed 0` to `--seed {last}` one
after the other, without evaluations, on the CPU. *Command*: from start to end, imports and compilation included (JAX's
programs are in its cache on disk for both). *Training*: from each run's first line of metrics, at step 1,000, to its
last, so without imports and compilation. *Times*: seconds one after the other by seconds at once, median (least to
greatest) over {rounds} rounds."""


HEAD = ["", "backend", "command, s", "at once, s", "times", "training, s", "at once, s", "times"]


@dataclass(frozen=True)
class Job:
    name: str
    arguments: str  # of duetto train

    def command(self, folder: Path, *more: str) -> list[str]:
        """Return the command, for this Python interpreter."""
        whole = f"{self.arguments} --evaluate-every 0 --quiet --device cpu --runs-dir {folder}"
        return [sys.executable, "-m", "duetto", "train", *whole.split(), *more]


JOBS = (
    Job("PPO, CartPole-v1, preset classic", "ppo CartPole-v1 --steps 30000"),
    Job("TD3, Pendulum-v1, 64-64", "td3 Pendulum-v1 --steps 3000 --hidden 64 64 --random-steps 500"),
    Job("TD3, Pendulum-v1, 400-300", "td3 Pendulum-v1 --steps 2000 --random-steps 500"),
    Job("SAC, Pendulum-v1, 64-64", "sac Pendulum-v1 --steps 5000 --hidden 64 64 --random-steps 500"),
    Job("DQN, CartPole-v1", "dqn CartPole-v1 --steps 20000"),
)


def measured(job: Job, seeds: int, backend: str, at_once: bool) -> tuple[float, float]:
    """Return two durations in seconds: of the whole commands, and of the training in them."""
    with tempfile.TemporaryDirectory() as folder:
        which = [("--seeds", f"0-{seeds - 1}")] if at_once else [("--seed", str(seed)) for seed in range(seeds)]
        started = perf_counter()
        for one in which:
            subprocess.run(job.command(Path(folder), *one, "--backend", backend), check=True)
        whole = perf_counter() - started
        each = [_training(path) for path in Path(folder).glob("*/metrics.jsonl")]
        return whole, max(each) if at_once else sum(each)


def _training(path: Path) -> float:
    """Return the seconds of a run from its first line of metrics to its last."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[-1]["time/seconds"] - lines[0]["time/seconds"]


def main() -> None:
    """Measure, and publish the table after each row, so that an interruption loses none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", nargs="+", default=["jax", "torch"])
    parser.add_argument("--only", default="", help="only jobs whose names start with this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    chosen = [job for job in JOBS if job.name.startswith(options.only)]
    if not chosen:
        parser.error(f"no job's name starts with {options.only!r}. They are: {'; '.join(job.name for job in JOBS)}")
    rows, raw, about = [], [], circumstances({"Versions": listing()["packages"]})
    text = METHOD.format(last=options.seeds - 1, rounds=options.rounds)
    for job in chosen:
        for backend in options.backend:
            found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            for number in range(options.rounds):
                for at_once in (True, False) if number % 2 else (False, True):
                    found[at_once].append(measured(job, options.seeds, backend, at_once))
                    seconds = [round(one, 2) for one in found[at_once][-1]]
                    raw.append([job.name, backend, number + 1, "at once" if at_once else "one by one", *seconds])
                    keep(["job", "backend", "round", "seeds", "command_s", "training_s"], raw, options.output)
            rows.append([job.name, backend, *_cells(found)])
            publish(f"# Many seeds\n\n{about}\n\n{text}\n\n{table(HEAD, rows)}\n", options.output)


def _cells(found: dict[bool, list[tuple[float, float]]]) -> list[str]:
    cells: list[str] = []
    for kind in (0, 1):
        after, at_once = ([seconds[kind] for seconds in found[side]] for side in (False, True))
        times = sorted(one / other for one, other in zip(after, at_once, strict=True))
        cells += [f"{median(after):.1f}", f"{median(at_once):.1f}"]
        cells.append(f"{median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})")
    return cells


if __name__ == "__main__":
    main()
