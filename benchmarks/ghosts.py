"""The ceiling of a cluster's coordinator: recorded blocks of many actors, played back as fast as they are accepted.

    python benchmarks/ghosts.py --output benchmarks/results/ghosts.md

Every actor makes one real block; then it gives that again and again. Installs nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from report import circumstances, publish, table

import duetto
from duetto import learners, memory
from duetto.algorithms import Algorithm
from duetto.cluster.blocks import Distant
from duetto.cluster.crew import Crew
from duetto.cluster.free import Free
from duetto.cluster.host import GREETING, Host, Reply, Request
from duetto.cluster.player import Block, Role
from duetto.cluster.spread import Spread
from duetto.cluster.transport import Answer
from duetto.environments import recipes, trees
from duetto.environments.shares import shares
from duetto.storage.config import versions
from duetto.training.normalizer import Normalizer

METHOD = """\
{actors} actors with one environment each, at the pace `free`, in blocks of {block} steps. Each makes its first block
really; from then on that block, with an episode's end behind it, is its answer to every order, at once. *In this
process*: the answer is handed over. *Through Ray*: one process plays all the actors, and every block travels from there
through Ray's object store. What is measured is the coordinator: ordering, accepting, cutting into steps, and adding
each to the memory that the algorithm learns from; nobody learns, and no weights are new. *MB/s*: of what is added."""

JOBS: dict[str, tuple[str, Callable[[], Algorithm]]] = {
    "HalfCheetah steps, TD3": (
        "HalfCheetah-v5",
        lambda: duetto.TD3(random_steps=0, learning_starts=1, replay_capacity=200_000),  # type: ignore[attr-defined]
    ),
    "Atari sequences of 80, R2D2 with an LSTM of 512": (
        "ALE/Pong-v5",
        lambda: duetto.R2D2(  # type: ignore[attr-defined]
            random_steps=0, learning_starts=1, replay_capacity=64_000, recurrent_size=512, burn_in=40, unroll=40
        ),
    ),
}


class Players:
    """All actors in one process: a real block of each, and then that one."""

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._blocks: dict[int, Any] = {}

    def begin(self, index: int, *arguments: Any) -> None:
        """One more actor."""
        self._hosts[index] = Host(*arguments)

    def do(self, index: int, number: int, requests: list[Request], past: Any = None, *more: Any) -> Reply:
        """See Host."""
        if number == GREETING or requests[-1].method != "block" or index not in self._blocks:
            reply = self._hosts[index].do(number, requests, past, *more)
            if number != GREETING and requests[-1].method == "block" and reply.error is None:
                self._blocks[index] = _ended(reply.values[0])
                return reply._replace(values=[self._blocks[index]])
            return reply
        order, weights = requests[-1].arguments[0], more[0]
        block = self._blocks[index]._replace(number=order.number, version=weights.version, updates=weights.updates)
        return Reply(number, [block])


def _ended(block: Block) -> Block:
    """Its episode ends with it, so that it may come again."""
    cut = block.experience.truncated.copy()
    cut[-1] = True
    return block._replace(experience=block.experience._replace(truncated=cut))


class Playback:
    """See Transport: answers are there at once, or come through Ray from one process."""

    def __init__(self, through_ray: bool) -> None:
        self._ray = duetto.Cluster(actors=1).connect(1) if through_ray else None
        self._players: Any = self._ray.start(Players) if self._ray else Players()
        self._answers: dict[int, Answer] = {}
        self._count = 0

    def start(self, kind: Any, recipe: Any, share: range, role: Any = None) -> int:
        """See Transport."""
        self._count += 1
        arguments = (self._count, recipe, share, role)
        if self._ray:
            self._players.begin.remote(*arguments)
        else:
            self._players.begin(*arguments)
        return self._count

    def call(self, worker: int, *message: Any, leaves: bool = False) -> Any:
        """See Transport; nobody leaves anything."""
        if self._ray:
            return self._ray.call(self._players, worker, *message)
        self._count += 1
        self._answers[self._count] = Answer(self._players.do(worker, *message))
        return self._count

    def wait(self, calls: Sequence[Any], timeout: float, enough: int | None = None) -> dict[Any, Answer]:
        """See Transport."""
        if self._ray:
            return self._ray.wait(calls, timeout, enough)
        return {call: self._answers.pop(call) for call in calls}

    def put(self, value: Any) -> Any:
        """See Transport."""
        return self._ray.put(value) if self._ray else value

    def kill(self, worker: int) -> None:
        """See Transport."""

    def clock(self) -> float:
        """See Transport."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """See Transport."""
        time.sleep(seconds)

    def close(self) -> None:
        """See Transport."""
        if self._ray:
            self._ray.close()


def measure(name: str, through_ray: bool, actors: int, block: int, seconds: float) -> list[str]:
    """A table's row."""
    environment, make = JOBS[name]
    algorithm = make()
    role = cloudpickle.dumps(Role(algorithm, "torch", "float32", actors))
    crew = Crew(Playback(through_ray), recipes.pack(environment, {}), shares(actors, actors), 0.0, [], role)
    stepper = Distant(Spread(crew), environment)
    spaces = (stepper.observation_space, stepper.action_space)
    normalizer = Normalizer(spaces[0], *algorithm.observation_scaling())
    learner = learners.build("torch", algorithm, *spaces, threads=1)
    source = Free(crew, algorithm, block, stepper, learner, normalizer)
    source.ahead = 2 * block * actors
    random = np.random.default_rng(0)
    replay: Any = memory.build(
        algorithm.memory(), *spaces, actors, random, lambda obs: np.zeros(len(obs)), stacked=stepper.stacked
    )
    stepper.reset(0)
    steps = volume = 0
    began, warm = time.perf_counter(), False
    while not warm or time.perf_counter() - began < seconds:
        experience, _ = source.collect(steps, 10**9)
        replay.add(experience)
        steps += len(experience.env)
        volume += sum(part.nbytes for value in experience for _, part in trees.parts(value))
        if not warm and steps > 4 * block * actors:
            began, warm, steps, volume = time.perf_counter(), True, 0, 0
    took = time.perf_counter() - began
    stepper.close()
    how = "through Ray" if through_ray else "in this process"
    row = [f"{name}, {how}", f"{steps / took:,.0f}", f"{volume / took / 1e6:,.1f}", f"{volume / steps / 1e3:,.1f}"]
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "gymnasium", "ray", "ale-py"))})
    text = ["# A coordinator's ceiling", about, METHOD.format(actors=options.actors, block=options.block)]
    rows = [
        measure(name, ray, options.actors, options.block, options.seconds) for name in JOBS for ray in (False, True)
    ]
    text.append(table(["what is played", "steps/s", "MB/s", "KB a step"], rows))
    publish("\n\n".join(text), options.output)


if __name__ == "__main__":
    main()
