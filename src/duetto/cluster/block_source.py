"""Experience from actors in blocks: the code that the modes `sync` and `async` share.

    actor      | block k ............ |  its rows, and the actor's state after it
    trainer    | accept: once, in its order | hand out, one vector step after another | ...

A block is several vector steps of one actor. The source accepts a block when it receives it, and hands out the vector
steps to the trainer later. A checkpoint has each actor's state after its last accepted block, and the accepted vector
steps that were not handed out yet. A resumed run repeats the blocks that actors were making. So saving waits for no
actor.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np

from duetto.algorithms.base import Algorithm
from duetto.buffers import Experience
from duetto.buffers.base import cut, side_by_side
from duetto.cluster.actor import Block, Order, Weights
from duetto.cluster.actor_pool import INFINITY, Reply, Request
from duetto.cluster.remote_engine import RemoteEngine
from duetto.environments import Episode, VecEnv
from duetto.environments.errors import EnvironmentFault
from duetto.functional.state_schema import ANY, OptionalOf
from duetto.learners import Learner
from duetto.training.collector import Source
from duetto.training.normalizer import Normalizer, RewardScaler


class ReadyStep(NamedTuple):
    """A vector step that is ready for the trainer; it joins the steps of one or several actors."""

    experience: Experience
    episodes: list[Episode]  # episodes that this step ended
    lost: np.ndarray  # (N,) bool, the environments whose episodes were cut off before this step
    updates: int  # `Weights.updates` of the oldest weights that made this step


class BlockSource(Source, ABC):
    """Collects blocks of steps from actors.

    Attributes:
        length: Number of vector steps of a block.
    """

    STATE: ClassVar[dict[str, Any]] = {
        "rewards": OptionalOf(RewardScaler.STATE),
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
        self._shares = [actor.share for actor in self._pool.actors]
        self._accepted = [0] * len(self._shares)  # number of blocks from each actor, since this process started
        self._asked: set[int] = set()  # actors that are making a block
        # For each actor: blocks that `_open` has not joined yet, and which episodes were cut off before the block.
        self._held: list[deque[tuple[Block, np.ndarray]]] = [deque() for _ in self._shares]
        self._ready: deque[ReadyStep] = deque()
        self._rows = 0  # rows of experience that are held or ready
        self._found_ready = False  # whether the loaded checkpoint has steps that were not handed out
        self._lost: np.ndarray | None = None  # (N,) bool, whether an episode is cut off before its actor's next block
        self._weights: Weights | None = None
        self._reference: Any = None  # the transport's reference to the weights

    @abstractmethod
    def _fill(self, step: int, total_steps: int) -> None:
        """Put at least one vector step into `_ready`, and ask actors for blocks."""

    def collect(self, step: int, total_steps: int) -> tuple[Experience, list[Episode]]:
        """Return the next vector step, and the episodes that ended with it."""
        try:
            self._fill(step, total_steps)
        except EnvironmentFault as fault:
            raise fault.located(self._stepper.name, self._stepper.steps) from fault.__cause__
        ready = self._ready.popleft()
        self._rows -= len(ready.experience.env)
        self._engine.lags.append(self._learner.updates - ready.updates)
        self._stepper.steps += 1
        self._stepper.aborted = ready.lost if ready.lost.any() else None
        return ready.experience, ready.episodes

    # ------------------------------------------------------------------------------------------- blocks
    def _publish(self) -> None:
        """Send the actors the newest parameters and statistics as a new version."""
        parameters = self._learner.parameters()
        acting = {name: parameters[name] for name in self._learner.algorithm.acting_networks}
        rewarded = self.rewards and self.rewards.moments._asdict()
        largest = self.rewards.largest if self.rewards else 0.0
        version = 0 if self._weights is None else self._weights.version + 1
        statistics = (self._normalizer.state_dict(), rewarded, largest)
        self._send(Weights(version, self._learner.updates, acting, *statistics))

    def _send(self, weights: Weights) -> None:
        self._weights, self._reference = weights, self._pool.transport.put(weights)

    def _order(self, index: int, step: int, stride: int, total_steps: int) -> None:
        """Ask an actor for its next block, with the newest weights."""
        if self._lost is None:  # loaded steps may belong to episodes that cannot continue
            self._lost = ~self._stepper.restored & self._found_ready
        order = Order(self.length, step, stride, total_steps)
        self._asked.add(index)
        self._pool.post(index, [Request("block", (order,))], self._reference)

    def _receive(self, enough: int, patience: float = INFINITY) -> None:
        """Wait for blocks of `enough` actors, or for `patience` seconds; put received blocks into `_held`."""
        started = time.perf_counter()
        replies = self._pool.wait(list(self._asked), enough, patience)
        self._engine.waited += time.perf_counter() - started
        for index, reply in replies.items():
            self._accept(index, reply)

    def _accept(self, index: int, reply: Reply) -> None:
        [block], share = reply.values, self._shares[index]
        self._asked.remove(index)
        self._accepted[index] += 1
        self._normalizer.learn_of(block.observed)
        if self.rewards is not None and block.rewarded is not None:
            self.rewards.learn_of(block.rewarded)
            self.rewards.largest = max(self.rewards.largest, block.largest)
        assert self._lost is not None
        own = slice(share.start, share.stop)
        lost = self._lost[own] | ([bool(why) for why in reply.lost] or [False] * len(share))
        self._lost[own] = False
        self._held[index].append((block, lost))
        self._rows += sum(block.counts)

    def _open(self) -> None:
        """Join the oldest held blocks, one per actor, into vector steps, and put the steps into `_ready`."""
        opened = {index: held.popleft() for index, held in enumerate(self._held) if held}
        lost = np.zeros((self.length, self._stepper.num_envs), bool)
        for index, (_, own) in opened.items():
            lost[0, self._shares[index].start : self._shares[index].stop] = own
        blocks = [block for block, _ in opened.values()]
        episodes = [list(chain(*ended)) for ended in zip(*(block.episodes for block in blocks), strict=True)]
        updates = min(block.updates for block in blocks)
        steps = side_by_side([block.experience for block in blocks], [block.counts for block in blocks])
        each = cut(steps, np.sum([block.counts for block in blocks], axis=0).tolist())
        parts = zip(each, episodes, lost, strict=True)
        self._ready.extend(ReadyStep(*part, updates) for part in parts)

    # ------------------------------------------------------------------------------------------- checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without the states of the actors (`RemoteEngine.save`)."""
        while any(self._held):
            self._open()
        return {
            "rewards": None if self.rewards is None else self.rewards.state_dict(),
            "ready": {str(number): _saved(step) for number, step in enumerate(self._ready)},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        if self.rewards is not None:
            self.rewards.load_state_dict(state["rewards"])
        self._ready.extend(_restored(state["ready"][str(number)]) for number in range(len(state["ready"])))
        self._rows, self._found_ready = sum(len(ready.experience.env) for ready in self._ready), bool(self._ready)


def _saved(step: ReadyStep) -> dict[str, Any]:
    episodes = [list(episode) for episode in step.episodes]
    return step.experience._asdict() | {"episodes": episodes, "lost": step.lost, "updates": step.updates}


def _restored(saved: dict[str, Any]) -> ReadyStep:
    experience = Experience(*(saved[name] for name in Experience._fields))
    return ReadyStep(experience, [Episode(*one) for one in saved["episodes"]], saved["lost"], saved["updates"])
