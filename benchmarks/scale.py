"""Where a run of hundreds of actors breaks first: the coordinator of the pace `free`, on a modelled cluster.

    python benchmarks/scale.py --output benchmarks/results/scale.md

Ordering, credits, accepting and handing out are the library's own code; time is a virtual clock's. What things take
is measured elsewhere, or published, and stands in the tables. Installs nothing.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from report import circumstances, publish, table

import duetto
from duetto.cluster.blocks import Distant
from duetto.cluster.crew import Crew
from duetto.cluster.free import Free
from duetto.cluster.host import GREETING, Host, Reply, Request
from duetto.cluster.player import Block, Role
from duetto.cluster.spread import Spread
from duetto.cluster.transport import Answer
from duetto.environments import recipes
from duetto.environments.shares import shares
from duetto.memory import Experience
from duetto.memory.schedule import Schedule
from duetto.storage.config import versions
from duetto.training.normalizer import Normalizer

METHOD = """\
The coordinator of the pace `free` is the library's own code: it gives credit, orders blocks, accepts them and hands
them out, and updates are owed by `memory.Schedule`. Around it is a model on a virtual clock: actors that need their
time for a step; a way to the learner's machine and one from it, each with a bandwidth, on which blocks and weights
wait for each other; a coordinator that needs its time for each step that passes through it; a learner that needs its
time for each update, one after the other with the coordinator's. Every actor has a machine's way to itself, and
fetches new weights with every block. No memory is simulated, and nobody dies.

*Learner*: the share of the time in which it computes updates. *Coordinator*: the share that steps take there.
*Waits*: the rest, for actors. *Lag*: updates that the weights of a step are old, in the mean of the last 1,000."""


@dataclass(frozen=True)
class Load:
    """What is asked for, and what it is asked of."""

    name: str
    actors: int
    rate: float  # steps/s of an actor by itself
    step_bytes: float  # on the way to the learner
    weight_bytes: float
    block: int  # steps
    coordinator: float  # seconds for a step
    update: float  # seconds
    steps_per_update: int
    bandwidth: float = 12.5e9 / 10  # bytes/s each way: 10 Gbit/s
    ahead: int = 0  # steps; 0: two blocks of each actor


class Space(gymnasium.Env):
    """Nothing happens in it: only its form is looked at."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Modelled:
    """A transport, see there: actors, and the way to them."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.now = 0.0
        self._way_in = self._way_out = 0.0  # when each is free
        self._free = [0.0] * load.actors
        self._versions = [-1] * load.actors
        self._coming: list[tuple[float, int, Any]] = []  # blocks that will have been made
        self._there: dict[int, Answer] = {}
        self._count = 0
        self._started = 0
        self._one: Host | None = None  # who answers what all have in common

    def start(self, kind: Any, recipe: Any, share: range, role: Any = None) -> int:
        """See Transport."""
        if self._one is None:
            self._one = Host(recipe, range(1), role)
            self._one.do(1, [Request("describe")], [])
        self._started += 1
        return self._started - 1

    def call(
        self, worker: int, number: int, requests: list[Request], past: Any = None, *more: Any, leaves: bool = False
    ) -> int:
        """See Transport; nobody leaves anything."""
        self._count += 1
        if number == GREETING or requests[-1].method != "block":
            assert self._one is not None
            values = [] if number == GREETING else [self._one._do(request) for request in requests]
            self._there[self._count] = Answer(Reply(number, values))
            return self._count
        order, weights = requests[-1].arguments[0], more[0]
        ready = self.now
        if weights.version > self._versions[worker]:
            self._versions[worker] = weights.version
            self._way_out = ready = max(self._way_out, self.now) + self._load.weight_bytes / self._load.bandwidth
        made = max(ready, self._free[worker]) + order.steps / self._load.rate
        self._free[worker] = made
        reply = Reply(number, [_block(worker, order, weights)])
        heapq.heappush(self._coming, (made, self._count, Answer(reply)))
        return self._count

    def wait(self, calls: Sequence[int], timeout: float, enough: int | None = None) -> dict[int, Answer]:
        """See Transport."""
        enough, limit = enough or len(calls), self.now + timeout
        while (self._coming and sum(call in self._there for call in calls) < enough) or self._due():
            made, call, answer = self._coming[0]
            arrives = max(self._way_in, made) + self._load.block * self._load.step_bytes / self._load.bandwidth
            if arrives > limit:
                self.now = limit
                break
            heapq.heappop(self._coming)
            self._way_in, self.now = arrives, max(self.now, arrives)
            self._there[call] = answer
        return {call: self._there.pop(call) for call in calls if call in self._there}

    def _due(self) -> bool:
        return bool(self._coming) and self._coming[0][0] <= self.now and self._way_in <= self.now

    def put(self, value: Any) -> Any:
        """See Transport."""
        return value

    def kill(self, worker: int) -> None:
        """See Transport."""

    def clock(self) -> float:
        """See Transport."""
        return self.now

    def pause(self, seconds: float) -> None:
        """See Transport."""
        self.now += seconds

    def close(self) -> None:
        """See Transport."""


def _block(worker: int, order: Any, weights: Any) -> Block:
    """Of which only the form matters."""
    rows, none = order.steps, np.zeros(order.steps, bool)
    env, obs = np.full(rows, worker), np.zeros((rows, 1), np.float32)
    experience = Experience(env, obs, np.zeros(rows, np.int64), np.zeros(rows, np.float32), obs, none, none)
    state = {"stepper": {"environments": None}, "collector": {}}
    own = (experience, [1] * rows, [[] for _ in range(rows)], {}, None, state, 0.0)
    return Block(order.number, weights.version, weights.updates, *own)


def simulate(load: Load, seconds: float) -> list[str]:
    """A table's row, after as long again to settle."""
    algorithm = duetto.DQN(prioritized=False, random_steps=0, learning_starts=0)  # type: ignore[attr-defined]
    transport = Modelled(load)
    recipe = recipes.pack(Space, {})
    role = cloudpickle.dumps(Role(algorithm, "torch", "float32", load.actors))
    crew = Crew(transport, recipe, shares(load.actors, load.actors), 0.0, [], role)
    stepper = Distant(Spread(crew), "Space")
    learner: Any = SimpleNamespace(updates=0, algorithm=algorithm, parameters=lambda: {"q": {}})
    normalizer = Normalizer(stepper.observation_space, "off")
    source = Free(crew, algorithm, load.block, stepper, learner, normalizer)
    source.ahead = load.ahead or 2 * load.block * load.actors
    schedule = Schedule(0, load.steps_per_update, 1)
    stepper.reset(0)
    source._behind = [{}] * load.actors
    steps, learned, passed, began, warm = 0, 0.0, 0.0, 0.0, False
    while transport.now - began < seconds or not warm:
        if not warm and transport.now >= seconds:
            began, warm, steps, learned, passed = transport.now, True, 0, 0.0, 0.0
        experience, _ = source.collect(steps, 10**12)
        rows = len(experience.env)
        steps += rows
        passed += rows * load.coordinator
        transport.pause(rows * load.coordinator)
        schedule.advance(rows, episode_ended=False)
        while schedule.take():
            learner.updates += 1
            learned += load.update
            transport.pause(load.update)
    took = transport.now - began
    row = [
        load.name,
        f"{load.actors:,}",
        f"{steps / took:,.0f}",
        f"{steps / took / load.steps_per_update:,.1f}",
        f"{learned / took:.0%}",
        f"{passed / took:.0%}",
        f"{max(0.0, 1 - (learned + passed) / took):.0%}",
        f"{source.numbers()['time/lag_updates_mean']:,.1f}",
    ]
    print(row, flush=True)
    return row


MB = 1e6
# Published: R2D2 256 actors x 260 steps/s against 5 updates/s of 64 x 80; Ape-X 360 actors, 50,000 frames/s = 12,500
# steps/s against 19 updates/s of 512. Measured here (results/ghosts.md): what a step takes of the coordinator.
R2D2 = Load("R2D2", 256, 260, 64.7e3, 17.4 * MB, 400, 1 / 2442, 0.2, 13_200)
APEX = Load("Ape-X", 360, 35, 56.5e3, 7.5 * MB, 100, 1 / 2442, 0.0526, 658)


def loads() -> list[Load]:
    """One thing changed after the other."""
    found = []
    for first in (R2D2, APEX):
        now = first
        found.append(replace(now, name=f"{now.name}: as it is on this machine"))
        now = replace(now, coordinator=1 / 12_262)
        found.append(replace(now, name=f"{first.name}: blocks come without Ray's cost"))
        now = replace(now, coordinator=1 / 124_977)
        found.append(replace(now, name=f"{first.name}: frames go to shards, past the coordinator"))
        now = replace(now, step_bytes=first.step_bytes / 8)
        found.append(replace(now, name=f"{first.name}: and each frame travels once"))
        now = replace(now, bandwidth=now.bandwidth * 10)
        found.append(replace(now, name=f"{first.name}: and 100 Gbit/s"))
        found.append(replace(now, name=f"{first.name}: the same, 1,024 actors", actors=1024))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the virtual clock")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    about = circumstances({"Versions": versions(("python", "duetto", "numpy", "ray"))})
    rows = [simulate(load, options.seconds) for load in loads()]
    header = ["load", "actors", "steps/s", "updates/s", "learner", "coordinator", "waits", "lag"]
    publish("\n\n".join(["# The model of a large run", about, METHOD, table(header, rows)]), options.output)


if __name__ == "__main__":
    main()
