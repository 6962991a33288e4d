"""A replay buffer whose environments are distributed over shards, with one generator and one schedule.

    line of all      |   shard 0   | shard 1 |      shard 2      |      each as long as its items are together
    points                ^  ^         ^        ^     ^   ^             drawn here; a shard looks up its own

Uniform batches equal those of one buffer bit by bit, for any number of shards: points are integers. Prioritized ones
equal them except for the rounding of sums, and bit by bit with one shard.

New steps and feedback wait for the next message, or until there are many:

    here       | steps 0 | steps 1 | a batch is due: all that waits .... | points ... | learn, errors | steps 2 |
    a shard    |         |         | store 0, store 1, count             | look up    |               |         |

States and segments are those of one buffer with all environments, so a checkpoint does not depend on the shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.buffers.base import Experience, ResolvedItems, concatenated, rows, scattered
from duetto.buffers.her import HindsightGoals
from duetto.buffers.replay import Replay, ReplayMemory
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.sequences import PREFIX, SequenceReplay
from duetto.buffers.storage import EpisodeStorage, Segment
from duetto.functional import state_schema
from duetto.functional.state_schema import ArrayOf
from duetto.networks.spaces import Space

WAITING = 16  # the largest number of requests that wait for a message to a shard


class ReplayFactory(NamedTuple):
    """Makes replay buffers of transitions or sequences, in this process or in shards."""

    spec: ReplaySpec | SequenceSpec
    observation: Space
    action: Space
    rows: int  # of each environment
    stacked: int

    def make(self, num_envs: int, random: np.random.Generator, goals: HindsightGoals | None = None) -> Replay:
        """Make the buffer of `num_envs` environments. UsageError if it does not fit into memory."""
        spec, observation, action, rows, stacked = self
        storage = EpisodeStorage(observation, action, num_envs, rows, stacked)
        if isinstance(spec, SequenceSpec):
            return SequenceReplay(spec, storage, random)
        return Replay(spec, storage, random, goals)


class ShardStatus(NamedTuple):
    """The counts of a shard after a request."""

    written: np.ndarray  # (its environments,) int64
    line: PriorityLine


class Shard:
    """The buffer of a share of the environments, numbered from 0.

    It draws no random numbers, counts no batches and computes no weights, so batches do not depend on the shards.
    """

    def __init__(self, factory: ReplayFactory, share: range) -> None:
        self._memory = factory.make(len(share), np.random.default_rng(0))

    def status(self) -> ShardStatus:
        """Return its counts."""
        return ShardStatus(self._memory.written, self._memory.line)

    def execute(self, method: str, *arguments: Any) -> Any:
        """Call a method of the buffer. Return its result, or without one the counts."""
        result = getattr(self._memory, method)(*arguments)
        return self.status() if result is None else result


ShardRequest = tuple[str, tuple[Any, ...]]  # a method for `Shard.execute`, and its arguments


class Shards(Protocol):
    """The interface to shards in any process.

    Attributes:
        shares: The environments of each shard: contiguous, in order, and together all.
    """

    shares: Sequence[range]

    def start(self, factory: ReplayFactory) -> list[ShardStatus]:
        """Start new, empty shards and return their counts."""
        ...

    def execute(self, requests: Mapping[int, Sequence[ShardRequest]]) -> dict[int, list[Any]]:
        """Send shards, by number, their requests in order; return their answers. All shards work at the same time.

        Raises:
            PartLostError: A shard is gone; the run has to go back to its checkpoint.
        """
        ...

    def close(self) -> None:
        """End the shards."""
        ...


class ShardedReplay(ReplayMemory):
    """A `Replay` or `SequenceReplay` in shards."""

    def __init__(self, factory: ReplayFactory, num_envs: int, random: np.random.Generator, shards: Shards) -> None:
        """Use `buffers.build`. Nothing else may draw from `random`."""
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
        """Truncate the episodes of all environments, or of those in `envs` (N,) bool: new ones start."""
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop])

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    @override
    def line(self) -> PriorityLine:
        """The lines of all shards, laid end to end."""
        self._settle()
        items, length, least = zip(*(status.line for status in self._status), strict=True)
        return PriorityLine(sum(items), np.cumsum(length)[-1], min(least))

    @override
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Each shard looks up the points on its part of the line."""
        length = [status.line.length for status in self._status]
        ends = np.cumsum(length)
        # Rounding may put a point at the very end: it belongs to the last shard with items.
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
        """Return the state of one buffer with all environments."""
        states = self._answers("state_dict", ((),) * len(self._shares))
        items = [state["items"] for state in states]
        for one, first in zip(items, self._firsts, strict=True):
            if "index" in one:
                one["index"] = one["index"] + first * self.rows
        whole = max(states, key=lambda state: len(state.get("carry", {})))  # a shard may have no hidden state yet
        whole = whole | {"envs": concatenated([state["envs"] for state in states]), "items": concatenated(items)}
        return whole | super().state_dict()

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._answers("load_state_dict", [(self._share_of(state, share),) for share in self._shares])
        self.load_sampler_state(state)

    def _share_of(self, state: dict[str, Any], share: range) -> dict[str, Any]:
        """Return the part of a state for the environments `share`."""
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
        names = max(segments, key=len)  # a shard may have no hidden state yet
        return {name: np.concatenate([one[name] for one in segments if name in one]) for name in names}

    @override
    def load_segment(self, segment: Segment) -> None:
        counts = ArrayOf(self._sizes["environments"], (), np.int64)
        state_schema.check(segment, {"count": counts, "frame_count": counts}, "a segment of the memory")
        kept = segment.get("kept", np.zeros(0, bool)).astype(np.int64)
        parts = []
        for share in self._shares:
            own = slice(share.start, share.stop)
            steps, frames = (_rows(segment[name], own) for name in ("count", "frame_count"))
            places = dict.fromkeys(("start", "count", "frame_start", "frame_count"), own)
            places |= {name: frames for name in segment if name.split("/")[0] == "obs"}
            places |= {name: _rows(kept, steps) for name in segment if name.startswith(PREFIX)}
            parts.append(({name: array[places.get(name, steps)] for name, array in segment.items()},))
        self._answers("load_segment", parts)

    # ------------------------------------------------------------------------------------------------ shards
    def _of_each(self, env: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the shards of these environments (K,), each with its positions."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        """Queue a request to a shard; send all queues if one is long."""
        waiting = self._waiting.setdefault(index, [])
        waiting.append((method, arguments))
        if len(waiting) >= WAITING:
            self._settle()

    def _answers(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send every shard a request, with its own arguments, and return the answers."""
        self._settle()  # the next message has these requests alone
        for index, own in enumerate(arguments):
            self._ask(index, method, *own)
        answers = self._settle()
        return [answers[index] for index in range(len(self._shares))]

    def _settle(self) -> dict[int, Any]:
        """Send all queued requests, wait, note the counts, and return each shard's last answer."""
        waiting, self._waiting = self._waiting, {}
        replies = self._shards.execute(waiting) if waiting else {}
        for index, reply in replies.items():
            for status in reply:
                if isinstance(status, ShardStatus):
                    self._status[index] = status
        return {index: reply[-1] for index, reply in replies.items()}


def _rows(counts: np.ndarray, share: slice) -> slice:
    """Return the rows of `share`; each environment has `counts` rows."""
    return slice(int(counts[: share.start].sum()), int(counts[: share.stop].sum()))
