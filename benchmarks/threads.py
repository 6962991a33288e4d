"""PyTorch's threads and OpenMP's waiting, for TD3's update: what the learner's defaults are chosen from.

    python benchmarks/threads.py --output benchmarks/results/threads.md

Updates/s of the PyTorch learner in fresh processes, alone and beside a process that keeps one core busy. An idle
OpenMP thread either spins (active), which starts the next product sooner, or sleeps (passive), which leaves the core to
others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from contenders import listing
from report import circumstances, publish, table

OBSERVATION, ACTION, BATCH = 17, 6, 256  # HalfCheetah
WARM_UPDATES = 100
POLICIES = ("unset", "active", "passive")

Cell = tuple[int, str, bool]  # threads, policy, busy


def updates_per_second(threads: int, seconds: float) -> float:
    import torch  # before the learner, which sets a policy where there is none

    from duetto import TD3
    from duetto.algorithms.base import Batch
    from duetto.learners import build
    from duetto.networks.spaces import Box

    assert torch.__version__
    observation = Box((OBSERVATION,), "float32", (-np.inf,) * OBSERVATION, (np.inf,) * OBSERVATION)
    action = Box((ACTION,), "float32", (-1.0,) * ACTION, (1.0,) * ACTION)
    learner = build("torch", TD3(), observation, action, device="cpu", threads=threads)
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    ones = np.ones(BATCH, np.float32)
    batch = Batch(
        obs=normal(BATCH, OBSERVATION),
        action=np.tanh(normal(BATCH, ACTION)),
        reward=normal(BATCH),
        discount=ones * np.float32(0.99),
        next_obs=normal(BATCH, OBSERVATION),
        weight=ones,
    )
    for _ in range(WARM_UPDATES):
        learner.update(batch)
    count, began = 0, perf_counter()
    while perf_counter() - began < seconds:
        learner.update(batch)
        count += 1
    return count / (perf_counter() - began)


def measure(threads: int, policy: str, busy: bool, seconds: float) -> float:
    environment = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")}
    if policy != "unset":
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, __file__, "--call", str(threads), "--seconds", str(seconds)]
    with neighbour() if busy else _nobody():
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def neighbour() -> Iterator[None]:
    """Another process, which keeps one core busy."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


@contextmanager
def _nobody() -> Iterator[None]:
    yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--call", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        print(json.dumps(updates_per_second(options.call, options.seconds)))
        return
    head = circumstances({"Versions": listing()["packages"]})
    cells = [(threads, policy, busy) for threads in options.threads for policy in POLICIES for busy in (False, True)]
    results: dict[Cell, list[float]] = {cell: [] for cell in cells}
    for number in range(options.rounds):
        for cell in cells if number % 2 == 0 else reversed(cells):
            results[cell].append(measure(*cell, options.seconds))
            print(f"round {number + 1}  {cell}  {results[cell][-1]:.0f} updates/s", file=sys.stderr, flush=True)
    rows = [
        [f"{threads}, {policy}", *(_cell(results[threads, policy, busy]) for busy in (False, True))]
        for threads in options.threads
        for policy in POLICIES
    ]
    intro = f"TD3's update in PyTorch, updates/s: median (least to greatest) of {options.rounds} rounds."
    grid = table(["threads, OMP_WAIT_POLICY", "alone", "beside a busy process"], rows)
    publish(f"# PyTorch's threads\n\n{head}\n\n{intro}\n\n{grid}", options.output)


def _cell(values: list[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


if __name__ == "__main__":
    main()
