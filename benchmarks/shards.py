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
from duetto import learners, memory
from duetto.cluster.free import Free
from duetto.cluster.host import GREETING, Host, Reply, Request
from duetto.cluster.placing import place, place_shards
from duetto.environments import trees
from duetto.memory import Experience, parts
from duetto.storage.config import Config, RunOptions, versions
from duetto.training.normalizer import Normalizer

ENVS, ROWS = 8, 1500

METHOD = """\
Prioritised memories of {envs} environments that hold {rows} steps each, of what HalfCheetah gives (17 numbers).
*Steps/s* and *MB/s*: the memory is filled, a vector step at a time, and nothing else is done. Then {updates} updates.
*Batch*: milliseconds from its points to the batch, in which each shard is asked once; median and 99th percentile.
*Updates/s*: new steps of all environments stored, a batch, and its priorities on their way, as the training loop does
it; nothing is learned between. The actor that steps the environments is idle.

Then {actors} actors of {each} environments each, at the pace `free`, in blocks of {block} vector steps. Each makes its
first block really; from then on that is its answer to every order, at once. *Through the run's process*: its blocks
come there, and rows go on to the shards a vector step at a time. *From actors*: they go to the shards from where they
are. *CPU, ms*: of the run's process for a thousand steps. *KB a step*: what of steps came there, and went out again."""

ACTORS, EACH, BLOCK = 2, 4, 16


class Still(gymnasium.Env):
    """Gives a cluster a reason to be there."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)


class Pictures(Still):
    """Stacks of four frames."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self.observation_space.sample(), 0.0, False, False, {}


class Vectors(Pictures):
    """Numbers."""

    observation_space, action_space = Still.observation_space, Still.action_space


class Replaying(Host):
    """An actor that makes one block."""

    block: Any = None

    def do(self, number: int, requests: list[Request], past: Any = None, *more: Any) -> Reply:
        """See Host."""
        if number == GREETING or requests[-1].method != "block":
            return super().do(number, requests, past, *more)
        order, weights = requests[-1].arguments[0], more[0]
        if self.block is None:
            self.block = super().do(number, requests, past, *more).values[0]
        block = self.block._replace(number=order.number, version=weights.version, updates=weights.updates)
        return Reply(number, [block])


class Counted:
    """A transport whose actors replay; how much passes through this process.

    Attributes:
        volume: Bytes of steps.
    """

    def __init__(self, inner: Any) -> None:
        self._inner, self.volume = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def start(self, kind: Any, *arguments: Any, gpus: int = 0) -> Any:
        """See Transport."""
        return self._inner.start(Replaying if kind is Host else kind, *arguments, gpus=gpus)

    def call(self, worker: Any, *message: Any, leaves: bool = False) -> Any:
        """See Transport."""
        self.volume += _bytes(message)
        return self._inner.call(worker, *message, leaves=leaves)

    def wait(self, calls: Any, timeout: float, enough: int | None = None) -> Any:
        """See Transport."""
        answers = self._inner.wait(calls, timeout, enough)
        self.volume += sum(_bytes(answer.value) for answer in answers.values())
        return answers


def _bytes(value: Any) -> int:
    """Of all steps in it."""
    if isinstance(value, Experience):
        return parts.size(value)
    return sum(map(_bytes, value)) if isinstance(value, tuple | list) else 0


def handed(environment: Any, algorithm: Any, count: int, leave: bool, seconds: float) -> list[str]:
    """A row's cells of the way from actors to a memory in so many shards; 0: here."""
    cluster = duetto.Cluster(actors=ACTORS, pace="free", replay_shards=count)
    transport = Counted(cluster.connect(ACTORS + count))
    config = Config(algorithm, "Played-v0", RunOptions(num_envs=ACTORS * EACH, backend="torch", evaluate_every=0))
    how = {"num_envs": ACTORS * EACH, "worker_timeout": 60.0, "kwargs": {}}
    stepper = place(environment, how, lambda: transport, ACTORS, [], config)
    shards = place_shards(config, stepper, count, True) if count else None
    spaces = (stepper.observation_space, stepper.action_space)
    random = np.random.default_rng(0)
    elsewhere = shards and memory.Elsewhere(shards, lambda: None)
    kept: Any = memory.build(algorithm.memory(), *spaces, ACTORS * EACH, random, elsewhere=elsewhere)
    learner = learners.build("torch", algorithm, *spaces, threads=1)
    normalizer = Normalizer(spaces[0], *algorithm.observation_scaling())
    source = Free(stepper.engine.crew, algorithm, BLOCK, stepper, learner, normalizer)
    source.ahead, source.leave = 2 * BLOCK * ACTORS * EACH, leave
    stepper.reset(0)
    began, used, made, warm = 0.0, 0.0, 0, False
    while not warm or time.perf_counter() - began < seconds:
        experience, _ = source.collect(made, 10**9)
        kept.take(experience)
        made += len(experience.env)
        if not warm and made > 4 * BLOCK * ACTORS * EACH:
            len(kept)
            began, used, made, transport.volume, warm = time.perf_counter(), time.process_time(), 0, 0, True
    len(kept)
    took, used = time.perf_counter() - began, time.process_time() - used
    if shards is not None:
        shards.close()
    stepper.close()
    return [f"{made / took:,.0f}", f"{used / made * 1e6:,.1f}", f"{transport.volume / made / 1e3:,.1f}"]


def ways(environment: Any, algorithm: Any, counts: list[int], seconds: float) -> list[list[str]]:
    """A table's rows: here, then each number of shards by both ways."""
    found = [["here", *handed(environment, algorithm, 0, False, seconds)]]
    print(found[-1], flush=True)
    for count in counts:
        for leave, name in ((False, "through the run's process"), (True, "from actors")):
            found.append([f"{count} shards, {name}", *handed(environment, algorithm, count, leave, seconds)])
            print(found[-1], flush=True)
    return found


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


def rows(algorithm: Any, counts: list[int], updates: int) -> list[list[str]]:
    """A table's rows: here, then each number of shards."""
    found = []
    for count in (0, *counts):
        cluster = duetto.Cluster(actors=1, pace="exact")
        config = Config(algorithm, "Still-v0", RunOptions())
        how = {"num_envs": ENVS, "worker_timeout": 60.0, "kwargs": {}}
        stepper = place(Still, how, lambda c=cluster, n=count: c.connect(1 + n), 1, [])
        shards = place_shards(config, stepper, count, False) if count else None
        elsewhere = shards and memory.Elsewhere(shards, lambda: None)
        spaces = (stepper.observation_space, stepper.action_space)
        kept = memory.build(algorithm.memory(), *spaces, ENVS, np.random.default_rng(0), elsewhere=elsewhere)
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
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "ray"))})
    numbers = {"envs": ENVS, "rows": ROWS, "updates": options.updates, "actors": ACTORS, "each": EACH, "block": BLOCK}
    text = ["# Replay shards", about, METHOD.format(**numbers)]
    common: dict[str, Any] = {"prioritized": True, "replay_capacity": ENVS * ROWS, "learning_starts": 0}
    kinds = {
        "256 transitions": duetto.TD3(batch_size=256, **common),
        "64 sequences of 40 + 80 steps": duetto.SAC(
            recurrent="lstm", burn_in=40, unroll=80, overlap=80, batch_size=64, **common
        ),
    }
    for name, algorithm in kinds.items():
        header = [name, "steps/s", "MB/s", "batch, ms: median", "99 %", "updates/s"]
        text.append(table(header, rows(algorithm, options.shards, options.updates)))
    played = {
        "vectors of 17 numbers": (Vectors, duetto.TD3(replay_capacity=200_000, learning_starts=10**9, random_steps=0)),
        "stacks of four frames": (Pictures, duetto.DQN(replay_capacity=8 * 400, learning_starts=10**9, random_steps=0)),
    }
    for name, (environment, algorithm) in played.items():
        header = [name, "steps/s", "CPU, ms", "KB a step"]
        text.append(table(header, ways(environment, algorithm, options.shards, options.seconds)))
    publish("\n\n".join(text), options.output)


if __name__ == "__main__":
    main()
