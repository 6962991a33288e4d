"""How many actors one learner can keep at work: environments that only sleep, at the pace `free` on a Ray cluster.

    python benchmarks/paces.py --output benchmarks/results/paces.md

Every actor has one environment and acts in it by itself, with networks of TD3's size. Installs nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster import Sleeping
from report import circumstances, publish, table

import duetto
from duetto import learners, memory
from duetto.cluster.free import Free
from duetto.cluster.placing import place
from duetto.cluster.player import Block
from duetto.environments import Stepper
from duetto.storage.config import Config, RunOptions, versions
from duetto.training.normalizer import Normalizer

UPDATES = 100  # a second, of the learner that is stood in for: each makes new weights

METHOD = """\
One environment an actor, which sleeps in `step` and gives what HalfCheetah gives (17 numbers); its actor chooses the
actions in NumPy, by TD3's network of 400 and 300, in blocks of {block} steps. Here every step is added to a replay
memory. No gradient is computed: {updates} times a second the weights are new, as from a learner of that speed, and they
travel to every actor that begins a block. Steps are those of all environments together, in {seconds:g} seconds.

*Of one*: the rate, as a share of that of one actor times their number. The rest is where an actor's time went, mean of
all: *sleep* what was asked for, *act* choosing actions and the stepping around the sleep (and waiting for a core),
*credit* between an accepted block and the order of the next one, *transfer* on the way: order, weights and block."""


class Timed(Free):
    """Notes for each actor when a block was accepted, and when the next one was ordered."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.begin_timing()

    def begin_timing(self) -> None:
        """From here on."""
        self.accepted_at: dict[int, float] = {}
        self.credit = self.idle = 0.0
        self.blocks = 0

    def _order(self, index: int, step: int, stride: int, total_steps: int) -> None:
        if (accepted := self.accepted_at.get(index)) is not None:
            self.credit += time.perf_counter() - accepted
        super()._order(index, step, stride, total_steps)

    def _accept(self, index: int, block: Block) -> Block:
        if index in self.accepted_at:
            self.idle += block.idle
            self.blocks += 1
        self.accepted_at[index] = time.perf_counter()
        return super()._accept(index, block)


def row(milliseconds: float, actors: int, block: int, seconds: float, one: float | None) -> tuple[float, list[str]]:
    """Steps/s, and the table's row."""
    algorithm = duetto.TD3(random_steps=0, learning_starts=1)  # type: ignore[attr-defined]
    config = Config(algorithm, "Sleeping", RunOptions(backend="torch", num_envs=actors))
    how: dict[str, Any] = {"num_envs": actors, "kwargs": {"seconds": milliseconds / 1000}, "worker_timeout": 0.0}
    cluster = duetto.Cluster(actors=actors, pace="free")
    stepper = place(Sleeping, how, lambda: cluster.connect(actors), actors, [], config)
    try:
        source, replay = _parts(algorithm, stepper, block)
        stepper.reset(0)
        rate, split = _measured(source, replay, seconds, milliseconds / 1000)
    finally:
        stepper.close()
    share = "-" if one is None else f"{rate / (one * actors):.0%}"
    found = [str(actors), f"{rate:,.0f}", share, *(f"{part:.1%}" for part in split)]
    print(f"{milliseconds:g} ms", found, flush=True)
    return rate, found


def _parts(algorithm: Any, stepper: Stepper, block: int) -> tuple[Timed, Any]:
    spaces = (stepper.observation_space, stepper.action_space)
    learner = learners.build("torch", algorithm, *spaces, threads=1)
    normalizer = Normalizer(spaces[0], *algorithm.observation_scaling())
    source = Timed(stepper.engine.crew, algorithm, block, stepper, learner, normalizer)  # type: ignore[attr-defined, arg-type]
    source.ahead = 2 * block * stepper.num_envs
    random = np.random.default_rng(0)
    replay = memory.build(algorithm.memory(), *spaces, stepper.num_envs, random, lambda obs: np.zeros(len(obs)))
    return source, replay


def _measured(source: Timed, replay: Any, seconds: float, sleep: float) -> tuple[float, list[float]]:
    """Steps/s, and the shares of the actors' time."""
    settled = 4 * source.actors * source.length  # until everybody has begun, and the first ones have credit again
    _collect(source, replay, lambda step: step >= settled)
    source.begin_timing()
    began = time.perf_counter()
    steps = _collect(source, replay, lambda step: time.perf_counter() - began >= seconds)
    rate = steps / (time.perf_counter() - began)
    whole = source.blocks * source.length / rate * source.actors  # seconds of all actors in which these were made
    credit, transfer = source.credit / whole, (source.idle - source.credit) / whole
    asleep = source.blocks * source.length * sleep / whole
    return rate, [asleep, 1 - source.idle / whole - asleep, credit, transfer]


def _collect(source: Timed, replay: Any, enough: Callable[[int], bool]) -> int:
    steps = 0
    while not enough(steps):
        source._learner.updates = int(time.perf_counter() * UPDATES)
        experience, _ = source.collect(steps, 10**9)
        replay.add(experience)
        steps += len(experience.env)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[10, 1])
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "gymnasium", "ray"))})
    method = METHOD.format(block=options.block, updates=UPDATES, seconds=options.seconds)
    text = ["# Actors at the pace free", about, method]
    for milliseconds in options.milliseconds:
        rows, one = [], None
        for actors in options.actors:
            rate, cells = row(milliseconds, actors, options.block, options.seconds, one)
            rows.append(cells)
            one = rate if one is None else one
        header = [f"actors, {milliseconds:g} ms a step", "steps/s", "of one", "sleep", "act", "credit", "transfer"]
        text.append(table(header, rows))
    publish("\n\n".join(text), options.output)


if __name__ == "__main__":
    main()
