"""A replay buffer whose shards, in other processes, each store some of the environments.

This process has the random generator and the update schedule. It lays the priorities (p^α) of all items end to end on a
line and draws points on it. The shards find the items at these points:

    line             |   shard 0   | shard 1 |      shard 2      |      a shard is as long as the sum of its priorities
    points                ^  ^         ^        ^     ^   ^

With uniform draws, batches equal those of a single buffer bit by bit, as points are integers. With priorities, batches
from one shard are equal as well. With several shards, they differ only if sums of priorities round differently.

New steps and new priorities are queued. A message to a shard contains all requests in its queue:

    this process   | steps 0 | steps 1 | a batch is due: send the queue   | points  | learn, errors | steps 2 |
    a shard        |         |         | store 0, store 1, return counts  | look up |               |         |

States and segments have the form of a single buffer, so checkpoints do not depend on the number of shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.buffers.base import Experience, ResolvedItems, rows, scattered, without_prefix
from duetto.buffers.episode_storage import EpisodeStorage, Segment
from duetto.buffers.her import HindsightGoals
from duetto.buffers.replay import Replay, ReplayMemory
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.sequences import SequenceReplay
from duetto.networks.spaces import Space

WAITING = 16  # send all queues when one has this many requests


class ReplayFactory(NamedTuple):
    """Makes replay buffers of transitions or sequences, in this process or in shards."""

    spec: ReplaySpec | SequenceSpec
    observation: Space
    action: Space
    rows: int  # steps in the ring of each environment
    stacked: int  # frames in each stacked image

    def make(self, num_envs: int, random: np.random.Generator, goals: HindsightGoals | None = None) -> Replay:
        """Make a buffer of `num_envs` environments. Raise UsageError if it does not fit into memory."""
        spec, observation, action, rows, stacked = self
        storage = EpisodeStorage(observation, action, num_envs, rows, stacked)
        if isinstance(spec, SequenceSpec):
            return SequenceReplay(spec, storage, random)
        return Replay(spec, storage, random, goals)


class ShardStatus(NamedTuple):
    """The step counts and the priority sums of a shard after a request."""

    written: np.ndarray  # (environments of the shard,) int64
    line: PriorityLine


class Shard:
    """The replay buffer of some environments, `share`. Within the shard, these environments are numbered from 0.

    `ShardedReplay` draws the random numbers, counts the batches and computes the weights of all shards.
    """

    def __init__(self, factory: ReplayFactory, share: range) -> None:
        self._memory = factory.make(len(share), np.random.default_rng(0))

    def status(self) -> ShardStatus:
        """Return the step counts and the priority sums."""
        return ShardStatus(self._memory.written, self._memory.line)

    def execute(self, method: str, *arguments: Any) -> Any:
        """Call a method of the buffer. Return its result, or the status if it returns None."""
        result = getattr(self._memory, method)(*arguments)
        return self.status() if result is None else result


ShardRequest = tuple[str, tuple[Any, ...]]  # the arguments of `Shard.execute`


class Shards(Protocol):
    """The interface to shards in any process.

    Attributes:
        shares: The environments of each shard: consecutive ranges that cover all environments.
    """

    shares: Sequence[range]

    def start(self, factory: ReplayFactory) -> list[ShardStatus]:
        """Start new, empty shards and return their status."""
        ...

    def execute(self, requests: Mapping[int, Sequence[ShardRequest]]) -> dict[int, list[Any]]:
        """Send shards their requests, and return their answers. The keys of both dicts are shard numbers.

        The shards work in parallel.

        Raises:
            ShardLostError: A shard was lost. The run must be resumed from its last checkpoint.
        """
        ...

    def close(self) -> None:
        """Stop the shards."""
        ...


class ShardedReplay(ReplayMemory):
    """A `Replay` or `SequenceReplay` that is distributed over shards."""

    def __init__(self, factory: ReplayFactory, num_envs: int, random: np.random.Generator, shards: Shards) -> None:
        """Called by `buffers.build`. Only this buffer may draw from `random`."""
        super().__init__(factory.spec, num_envs, factory.rows, factory.stacked, random)
        self._shards, self._shares = shards, shards.shares
        self._firsts = np.array([share.start for share in self._shares])
        self._waiting: dict[int, list[ShardRequest]] = {}  # requests not sent yet
        self._sizes |= {"shards": len(self._shares)}
        self._status = self._shards.start(factory)

    @property
    @override
    def written(self) -> np.ndarray:
        self._settle()
        return np.concatenate([status.written for status in self._status])

    # ------------------------------------------------------------------------------------------------ filling
    @override
    def store(self, experience: Experience) -> None:
        for index, which in self._of_each(experience.env):
            own = rows(experience, which)
            self._ask(index, "store", own._replace(env=own.env - self._firsts[index]))

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the running episodes of all environments, or only of those that `envs` (N,) bool selects."""
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop])

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    @override
    def line(self) -> PriorityLine:
        """The number of items in all shards, and the sum and the minimum of their p^α."""
        self._settle()
        items, length, least = zip(*(status.line for status in self._status), strict=True)
        return PriorityLine(sum(items), np.cumsum(length)[-1], min(least))

    @override
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at the points (B,) of the line. Each shard finds the items on its section of the line."""
        length = [status.line.length for status in self._status]
        ends = np.cumsum(length)
        # Rounding may put a point at the end of the line. The last shard that has items gets it.
        shard = np.minimum(ends.searchsorted(point, side="right"), np.flatnonzero(length)[-1])
        starts = np.append(ends.dtype.type(0), ends[:-1])
        places = {index: np.flatnonzero(shard == index) for index in np.unique(shard).tolist()}
        for index, own in places.items():
            self._ask(index, "resolve", point[own] - starts[index])
        answers = self._settle()
        found = [
            answers[index]._replace(index=answers[index].index + self._firsts[index] * self.rows) for index in places
        ]
        return scattered(found, list(places.values()))

    @override
    def prioritize(self, index: np.ndarray, stamp: np.ndarray, error: np.ndarray) -> None:
        for shard, own in self._of_each(index // self.rows):
            place = index[own] - self._firsts[shard] * self.rows
            self._ask(shard, "prioritize", place, stamp[own], error[own])

    @override
    def raise_largest(self, error: float) -> None:
        if error > self.sampler.largest:
            super().raise_largest(error)
            for index in range(len(self._shares)):
                self._ask(index, "raise_largest", error)

    # ------------------------------------------------------------------------------------------------ checkpoints
    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the states of all shards, and of the sampler, the schedule and the generator."""
        states = self._answers("state_dict", ((),) * len(self._shares))
        return super().state_dict() | {"items": {}, "shards": {str(i): state for i, state in enumerate(states)}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._answers("load_state_dict", [(state["shards"][str(i)],) for i in range(len(self._shares))])
        self.load_sampler_state(state)

    @override
    def segment(self, since: np.ndarray) -> Segment:
        """Return the segments of all shards; the names of their arrays start with the shard's number."""
        parts = self._answers("segment", [(since[share.start : share.stop],) for share in self._shares])
        counts = {name: np.concatenate([part[name] for part in parts]) for name in ("start", "count")}
        return counts | {f"{i}/{name}": array for i, part in enumerate(parts) for name, array in part.items()}

    @override
    def load_segment(self, segment: Segment) -> None:
        self._answers("load_segment", [(without_prefix(segment, f"{i}/"),) for i in range(len(self._shares))])

    # ------------------------------------------------------------------------------------------------ shards
    def _of_each(self, env: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the shards of the environments `env` (K,), each with the positions of its environments in `env`."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        """Queue a request to a shard. If its queue is long, send all queues."""
        waiting = self._waiting.setdefault(index, [])
        waiting.append((method, arguments))
        if len(waiting) >= WAITING:
            self._settle()

    def _answers(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `method` of every shard with its own arguments, and return the results."""
        self._settle()  # then the next message has only these requests
        for index, own in enumerate(arguments):
            self._ask(index, method, *own)
        answers = self._settle()
        return [answers[index] for index in range(len(self._shares))]

    def _settle(self) -> dict[int, Any]:
        """Send all queues, and update the status of shards. Return the last answer of each shard that had a queue."""
        waiting, self._waiting = self._waiting, {}
        replies = self._shards.execute(waiting) if waiting else {}
        for index, reply in replies.items():
            for status in reply:
                if isinstance(status, ShardStatus):
                    self._status[index] = status
        return {index: reply[-1] for index, reply in replies.items()}
