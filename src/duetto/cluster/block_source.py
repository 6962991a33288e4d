"""Experience from actors, block by block. The weights of each block are fixed, so no number depends on timing.

    learner   version 0 |           | learn from 0: version 1 | learn from 1: version 2 | learn from 2 ...
    actor 0             | block 0   | block 1, version 0      | block 2, version 1      |
    actor 1             | block 0 . | block 1, version 0 .... | block 2, version 1      |
                                      ^ all wait for the slowest, and for the learner

Version k is what was learned from blocks 0 to k - 1, and actors act in block k with version k - 1 (in block 0 with
version 0): so the actors make the next block while the learner learns from this one. A vector step is that of all
actors, in their order. The numbers are the same for a given number of actors and length of blocks.

A checkpoint is a cut: each actor's state after its last accepted block, and the vector steps of accepted blocks that
were not handed out yet. Blocks in flight are not in it, and are made again. So saving waits for no actor.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.buffers import Experience
from duetto.buffers.experience import concatenated, cut, joined, rows, side_by_side
from duetto.cluster.actor import ROWS, Block, Order, Weights
from duetto.cluster.actor_pool import lost_environments
from duetto.cluster.actor_server import Reply, Request
from duetto.cluster.remote_engine import RemoteEngine
from duetto.environments import Episode, VecEnv
from duetto.environments.errors import EnvironmentFault
from duetto.errors import CheckpointError
from duetto.functional.state_schema import ANY, ARRAY, INTEGER, DictOf, ListOf, OptionalOf
from duetto.learners import Learner
from duetto.training.normalizer import Normalizer, RewardScaler

MOMENTS: dict[str, Any] = {"mean": ARRAY, "variance": ARRAY, "count": float}
WEIGHTS: dict[str, Any] = {
    "version": int,
    "updates": int,
    "parameters": DictOf(DictOf(ARRAY)),
    "observed": DictOf(MOMENTS),
    "rewarded": OptionalOf(MOMENTS),
    "largest": float,
}


class ReadyStep(NamedTuple):
    """A vector step that can be handed out, of all actors."""

    experience: Experience
    episodes: list[Episode]  # that ended with it
    lost: np.ndarray  # (N,) bool, the environments whose episodes broke off before it
    updates: int  # made before the weights that it was made with


class BlockSource:
    """Collects blocks of steps from actors.

    Attributes:
        length: Vector steps of a block.
    """

    STATE: ClassVar[dict[str, Any]] = {
        "rows": dict.fromkeys(ROWS, ANY),
        "random": DictOf(ANY),
        "steps": ListOf(int),
        "seed": int,
        "rewards": OptionalOf(RewardScaler.STATE),
        "blocks": int,
        "version": INTEGER,
        "weights": OptionalOf(WEIGHTS),
        "ready": ANY,
    }

    def __init__(
        self, algorithm: Algorithm, stepper: VecEnv, learner: Learner, normalizer: Normalizer, length: int
    ) -> None:
        assert isinstance(stepper.engine, RemoteEngine)
        self._engine, self._pool, self._stepper = stepper.engine, stepper.engine.pool, stepper
        self._learner, self._normalizer = learner, normalizer
        self.length: int = length
        scaling, discount = algorithm.reward_scaling(), algorithm.memory().discount
        self.rewards: RewardScaler | None = scaling and RewardScaler(0, discount, *scaling)
        self._blocks = 0  # accepted ones of each actor
        self._asked = False  # the actors make blocks
        self._ready: deque[ReadyStep] = deque()
        self._found_ready = False  # steps in the checkpoint that the run was resumed from
        self._lost: np.ndarray | None = None  # (N,) bool, environments whose episodes broke off before their next block
        self._weights: Weights | None = None
        self._version = -1  # the newest, in this process or before
        self._reference: Any = None  # to the weights
        self._lag, self._idle = 0, 0.0
        self._engine.source_numbers = self.numbers

    def collect(self, step: int, total_steps: int) -> tuple[Experience, list[Episode]]:
        """Return the next vector step, and the episodes that ended with it."""
        if not self._ready:
            try:
                self._receive(step, total_steps)
            except EnvironmentFault as fault:
                raise fault.told(self._stepper.name, self._stepper.steps) from fault.__cause__
        ready = self._ready.popleft()
        self._lag = self._learner.updates - ready.updates
        self._stepper.steps += 1
        self._stepper.aborted = ready.lost if ready.lost.any() else None
        return ready.experience, ready.episodes

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """The actors know."""

    # ------------------------------------------------------------------------------------------- blocks
    def _receive(self, step: int, total_steps: int) -> None:
        """Wait for the blocks that are made, send the actors the newest weights, and order the next ones."""
        if not self._asked:  # at the start of a run or of a process that resumes it
            if self._weights is None:
                self._publish()
            self._order(step, total_steps)
        began = time.perf_counter()
        replies = self._pool.wait(range(len(self._pool.actors)))
        self._engine.waited += time.perf_counter() - began
        self._asked = False
        self._accept(replies)
        self._publish()
        self._order(step + sum(len(ready.experience.env) for ready in self._ready), total_steps)

    def _publish(self) -> None:
        """Send the actors the newest parameters and statistics as a new version."""
        parameters = self._learner.parameters()
        acting = {name: parameters[name] for name in self._learner.algorithm.acting_networks}
        rewarded = self.rewards and self.rewards.moments._asdict()
        largest = self.rewards.largest if self.rewards else 0.0
        self._version += 1
        statistics = (self._normalizer.state_dict(), rewarded, largest)
        self._send(Weights(self._version, self._learner.updates, acting, *statistics))

    def _send(self, weights: Weights) -> None:
        self._weights, self._reference = weights, self._pool.transport.put(weights)

    def _order(self, step: int, total_steps: int) -> None:
        """Ask every actor for its next block, with the newest weights."""
        if self._lost is None:  # steps that a resume found ready are of the episodes before it
            self._lost = ~self._stepper.restored & self._found_ready
        order = Order(self._blocks, self.length, step, self._stepper.num_envs, total_steps)
        for actor in self._pool.actors:
            self._pool.post(actor.index, [Request("block", (order,))], self._reference)
        self._asked = True

    def _accept(self, replies: dict[int, Reply]) -> None:
        """Lay the actors' blocks side by side, so that their vector steps can be handed out."""
        assert self._lost is not None
        blocks: list[Block] = []
        for index, reply in replies.items():
            [block], share = reply.values, self._pool.actors[index].share
            if block.number != self._blocks:
                raise RuntimeError(f"block {block.number} of actor {index} came instead of {self._blocks}")
            self._normalizer.learn_of(block.observed)
            if self.rewards is not None and block.rewarded is not None:
                self.rewards.learn_of(block.rewarded)
                self.rewards.largest = max(self.rewards.largest, block.largest)
            self._idle += block.idle
            self._lost[share.start : share.stop] |= lost_environments(reply, share)
            blocks.append(block)
        self._blocks += 1
        lost = np.zeros((self.length, self._stepper.num_envs), bool)
        lost[0], self._lost = self._lost, np.zeros_like(self._lost)
        counts = [block.counts for block in blocks]
        steps = cut(side_by_side([block.experience for block in blocks], counts), np.sum(counts, axis=0).tolist())
        episodes = [list(chain(*ended)) for ended in zip(*(block.episodes for block in blocks), strict=True)]
        self._ready.extend(ReadyStep(*part, blocks[0].updates) for part in zip(steps, episodes, lost, strict=True))

    def numbers(self) -> dict[str, float]:
        """Return for the log how many updates old the actors' weights were, and how long actors waited."""
        return {"time/actors_waited": round(self._idle, 3), "time/lag_updates": self._lag}

    # ------------------------------------------------------------------------------------------- checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return what a cut has besides the environments, with the weights that blocks in flight are made with."""
        states = [actor.state for actor in self._pool.actors]
        return {
            "rows": concatenated([state["rows"] for state in states]),
            "random": {str(index): state["random"] for index, state in enumerate(states)},
            "steps": [state["steps"] for state in states],
            "seed": states[0]["seed"],
            "rewards": None if self.rewards is None else self.rewards.state_dict(),
            "blocks": self._blocks,
            "version": self._version,
            "weights": self._weights and self._weights._asdict(),
            "ready": _packed(list(self._ready)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`; the actors follow with their environments (`RemoteEngine.load`)."""
        if not len(state["random"]) == len(state["steps"]) == len(self._pool.actors):
            raise CheckpointError(f"The checkpoint is of {len(state['steps'])} actors, not {len(self._pool.actors)}.")
        self._engine.acting = [
            {
                "rows": rows(state["rows"], slice(actor.share.start, actor.share.stop)),
                "random": state["random"][str(actor.index)],
                "steps": state["steps"][actor.index],
                "seed": state["seed"] + actor.share.start,
            }
            for actor in self._pool.actors
        ]
        self._version, self._blocks = state["version"], state["blocks"]
        if self.rewards is not None:
            self.rewards.load_state_dict(state["rewards"])
        try:
            self._ready.extend(_unpacked(state["ready"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"The checkpoint's steps that were not learned from are not valid ({error!r})."
            ) from error
        self._found_ready = bool(self._ready)
        if state["weights"] is not None:
            self._send(Weights(**{name: state["weights"][name] for name in Weights._fields}))


def _packed(ready: list[ReadyStep]) -> dict[str, Any] | None:
    """Return ready vector steps as part of a saved state; None if there are none."""
    if not ready:
        return None
    steps = [step.experience for step in ready]
    return joined(steps)._asdict() | {
        "counts": [len(step.env) for step in steps],
        "episodes": [[list(episode) for episode in step.episodes] for step in ready],
        "lost": np.stack([step.lost for step in ready]),
        "updates": [step.updates for step in ready],
    }


def _unpacked(packed: dict[str, Any] | None) -> list[ReadyStep]:
    """Undo `_packed`."""
    if packed is None:
        return []
    steps = cut(Experience(*(packed[name] for name in Experience._fields)), packed["counts"])
    episodes = [[Episode(*one) for one in ended] for ended in packed["episodes"]]
    return [ReadyStep(*parts) for parts in zip(steps, episodes, packed["lost"], packed["updates"], strict=True)]
