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
from duetto.buffers.base import CARRY, Experience, ResolvedItems, concatenated, rows, scattered
from duetto.buffers.episode_storage import EpisodeStorage, Segment
from duetto.buffers.her import HindsightGoals
from duetto.buffers.replay import Replay, ReplayMemory
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.sequences import SequenceReplay
from duetto.functional import state_schema
from duetto.functional.state_schema import ArrayOf
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
        """Return the combined state, in the form of a single buffer with all environments."""
        states = self._answers("state_dict", ((),) * len(self._shares))
        items = [state["items"] for state in states]
        for one, first in zip(items, self._firsts, strict=True):
            if "index" in one:
                one["index"] = one["index"] + first * self.rows
        whole = max(states, key=lambda state: len(state.get("carry", {})))  # some shards may have no hidden state yet
        whole = whole | {"envs": concatenated([state["envs"] for state in states]), "items": concatenated(items)}
        return whole | super().state_dict()

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._answers("load_state_dict", [(self._share_of(state, share),) for share in self._shares])
        self.load_sampler_state(state)

    def _share_of(self, state: dict[str, Any], share: range) -> dict[str, Any]:
        """Return the state of the shard with the environments `share`, cut out of the state of all shards."""
        items, own = state["items"], slice(share.start * self.rows, share.stop * self.rows)
        if (index := items.get("index")) is not None:
            items = items | {"index": index - own.start}
            own = slice(*index.searchsorted([own.start, own.stop]).tolist())
        return state | {
            "shape": state["shape"] | {"environments": len(share)},
            "envs": rows(state["envs"], slice(share.start, share.stop)),
            "items": rows(items, own),
        }

    @override
    def segment(self, since: np.ndarray) -> Segment:
        since_each = [(since[share.start : share.stop],) for share in self._shares]
        segments = self._answers("segment", since_each)
        names = max(segments, key=len)  # some shards may have no hidden state yet
        return {name: np.concatenate([one[name] for one in segments if name in one]) for name in names}

    @override
    def load_segment(self, segment: Segment) -> None:
        counts = ArrayOf(self._sizes["environments"], (), np.int64)
        state_schema.check(segment, {"count": counts, "frame_count": counts}, "a segment of the replay buffer")
        kept = segment.get("kept", np.zeros(0, bool)).astype(np.int64)
        parts = []
        for share in self._shares:
            own = slice(share.start, share.stop)
            steps, frames = (_rows(segment[name], own) for name in ("count", "frame_count"))
            places = dict.fromkeys(("start", "count", "frame_start", "frame_count"), own)
            places |= {name: frames for name in segment if name.split("/")[0] == "obs"}
            places |= {name: _rows(kept, steps) for name in segment if name.startswith(CARRY)}
            parts.append(({name: array[places.get(name, steps)] for name, array in segment.items()},))
        self._answers("load_segment", parts)

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


def _rows(counts: np.ndarray, share: slice) -> slice:
    """Return the slice of rows that belong to the environments in `share`. Environment i has `counts[i]` rows."""
    return slice(int(counts[: share.start].sum()), int(counts[: share.stop].sum()))
