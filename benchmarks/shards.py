"""What replay shards cost and bring: a batch, its priorities and new steps, with the memory here and in processes.

    python benchmarks/shards.py --output benchmarks/results/shards.md

Nothing is learned and nobody acts. Installs nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from report import circumstances, publish, table

import duetto
from duetto import memory
from duetto.cluster.placing import place, place_shards
from duetto.environments import trees
from duetto.memory import Experience
from duetto.storage.config import versions

ENVS, ROWS = 8, 1500

METHOD = """\
Prioritised memories of {envs} environments that hold {rows} steps each, of what HalfCheetah gives (17 numbers).
*Steps/s* and *MB/s*: the memory is filled, a vector step at a time, and nothing else is done. Then {updates} updates.
*Batch*: milliseconds from its points to the batch, in which each shard is asked once; median and 99th percentile.
*Updates/s*: new steps of all environments stored, a batch, and its priorities on their way, as the training loop does
it; nothing is learned between. The actor that steps the environments is idle."""


class Still(gymnasium.Env):
    """Gives a cluster a reason to be there."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)


def step(random: np.random.Generator) -> Callable[[], Experience]:
    """Steps of all environments, one after another, in episodes that do not end."""
    last = random.normal(size=(ENVS, 17)).astype(np.float32)

    def made() -> Experience:
        nonlocal last
        obs, last = last, random.normal(size=(ENVS, 17)).astype(np.float32)
        action, never = np.zeros((ENVS, 6), np.float32), np.zeros(ENVS, bool)
        extras = {f"carry/{name}": np.zeros((ENVS, 1, 256), np.float32) for name in ("h", "c")}
        return Experience(np.arange(ENVS), obs, action, np.zeros(ENVS, np.float32), last, never, never, extras)

    return made


def measured(kept: Any, updates: int) -> list[str]:
    """A row's cells."""
    random = np.random.default_rng(0)
    steps, batches, whole = step(random), [], []
    began, volume = time.perf_counter(), 0
    for _ in range(ROWS):
        experience = steps()
        kept.add(experience)
        volume += sum(part.nbytes for value in experience for _, part in trees.parts(value))
    len(kept)
    filling = time.perf_counter() - began
    for _ in range(updates):
        experience = steps()
        began = time.perf_counter()
        kept.add(experience)
        len(kept)
        drawing = time.perf_counter()
        sample = kept.sample()
        batches.append(time.perf_counter() - drawing)
        shape = sample.batch.mask.shape if hasattr(sample.batch, "mask") else sample.index.shape
        kept.feedback(sample, random.random(shape))
        whole.append(time.perf_counter() - began)
    middle, late = np.percentile(batches, [50, 99]) * 1000
    stored = [f"{ROWS * ENVS / filling:,.0f}", f"{volume / filling / 1e6:,.1f}"]
    return [*stored, f"{middle:.2f}", f"{late:.2f}", f"{updates / sum(whole):,.0f}"]


def rows(spec: Any, counts: list[int], updates: int) -> list[list[str]]:
    """A table's rows: here, then each number of shards."""
    found = []
    for count in (0, *counts):
        cluster = duetto.Cluster(actors=1, pace="exact")
        how = {"num_envs": ENVS, "worker_timeout": 60.0, "kwargs": {}}
        stepper = place(Still, how, lambda c=cluster, n=count: c.connect(1 + n), 1, [])
        shards = place_shards(stepper, count, False) if count else None
        elsewhere = shards and memory.Elsewhere(shards, lambda: None)
        spaces = (stepper.observation_space, stepper.action_space)
        kept = memory.build(spec, *spaces, ENVS, np.random.default_rng(0), elsewhere=elsewhere)
        took = measured(kept, updates)
        if shards is not None:
            shards.close()
        stepper.close()
        found.append([f"{count} shards" if count else "here", *took])
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "ray"))})
    text = ["# Replay shards", about, METHOD.format(envs=ENVS, rows=ROWS, updates=options.updates)]
    common: dict[str, Any] = {"prioritized": True, "replay_capacity": ENVS * ROWS, "learning_starts": 0}
    kinds = {
        "256 transitions": duetto.TD3(batch_size=256, **common),
        "64 sequences of 40 + 80 steps": duetto.SAC(
            recurrent="lstm", burn_in=40, unroll=80, overlap=80, batch_size=64, **common
        ),
    }
    for name, algorithm in kinds.items():
        header = [name, "steps/s", "MB/s", "batch, ms: median", "99 %", "updates/s"]
        text.append(table(header, rows(algorithm.memory(), options.shards, options.updates)))
    publish("\n\n".join(text), options.output)


if __name__ == "__main__":
    main()
