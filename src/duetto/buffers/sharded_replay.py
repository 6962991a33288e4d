"""A replay buffer whose environments are distributed over shards, with one generator and one schedule.

    line of all      |   shard 0   | shard 1 |      shard 2      |      each as long as its items are together
    points                ^  ^         ^        ^     ^   ^             drawn here; a shard looks up its own

Uniform batches equal those of one buffer bit by bit, for any number of shards: points are integers. Prioritized ones
equal them except for the rounding of sums, and bit by bit with one shard.

New steps and feedback wait for the next message, or until there are many:

    here       | steps 0 | steps 1 | a batch is due: all that waits .... | points ... | learn, errors | steps 2 |
    a shard    |         |         | store 0, store 1, count             | look up    |               |         |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.buffers import shard_states
from duetto.buffers.base import Experience, ResolvedItems, selected
from duetto.buffers.experience import scattered
from duetto.buffers.factory import ReplayFactory
from duetto.buffers.replay import ReplayMemory
from duetto.buffers.replay_shard import ShardRequest, Shards, ShardStatus
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.storage import Segment

WAITING = 16  # the largest number of requests that wait for a message to a shard


class ShardedReplay(ReplayMemory):
    """A `Replay` or `SequenceReplay` in shards."""

    def __init__(self, factory: ReplayFactory, num_envs: int, random: np.random.Generator, shards: Shards) -> None:
        """Use `buffers.build`. Nothing else may draw from `random`."""
        super().__init__(factory.spec, num_envs, factory.rows, factory.stacked, random)
        self._shards, self._shares = shards, shards.shares
        self._firsts = np.array([share.start for share in self._shares])
        self._waiting: dict[int, list[ShardRequest]] = {}  # requests not sent yet
        self._asked: set[int] = set()  # shards that have not answered yet
        self._status = self._shards.start(factory)

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, steps ever stored per environment; a copy."""
        self._settle()
        return np.concatenate([status.written for status in self._status])

    # ------------------------------------------------------------------------------------------------ filling
    def add(self, experience: Experience) -> None:
        """Store copies of the steps; a batch may be due afterwards."""
        for index, rows in self._of_each(experience.env):
            own = selected(experience, rows)
            self._ask(index, "add", own._replace(env=own.env - self._firsts[index]))
        self.schedule.advance(len(experience.env), any((experience.terminated | experience.truncated).tolist()))

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the episodes of all environments, or of those in `envs` (N,) bool: new ones start."""
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop])

    # ------------------------------------------------------------------------------------------------ sampling
    @property
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
        rows = {index: np.flatnonzero(shard == index) for index in np.unique(shard).tolist()}
        for index, own in rows.items():
            self._ask(index, "resolve", point[own] - starts[index])
        answers = self._settle()
        found = [
            answers[index]._replace(index=answers[index].index + self._firsts[index] * self.rows) for index in rows
        ]
        return scattered(found, list(rows.values()))

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
    def state_dict(self) -> dict[str, Any]:
        """Return the state of one buffer with all environments."""
        states = self._answers("state_dict", ((),) * len(self._shares))
        whole = shard_states.join_states(states, self._shares, self.rows)
        return whole | {"shape": self._sizes, "schedule": self.schedule.state_dict()} | self.sampler_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the steps follow with `load_segment`.

        Raises:
            CheckpointError: The state is that of a buffer with other sizes.
        """
        self._check_state(state)
        self._answers("load_state_dict", [(shard_states.take_state(state, one, self.rows),) for one in self._shares])
        self.load_sampler_state(state)
        self.schedule.load_state_dict(state["schedule"])

    @override
    def all_rows(self, since: np.ndarray) -> Segment:
        since_each = [(since[share.start : share.stop],) for share in self._shares]
        return shard_states.join_segments(self._answers("all_rows", since_each))

    def load_segment(self, segment: Segment) -> None:
        """Put steps back, in any order of segments, after `load_state_dict`."""
        self._answers("load_segment", [(shard_states.take_segment(segment, share),) for share in self._shares])

    # ------------------------------------------------------------------------------------------------ shards
    def _of_each(self, env: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the shards of these environments (K,), each with its positions."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        """Queue a request to a shard; send the queue if it is long."""
        waiting = self._waiting.setdefault(index, [])
        waiting.append((method, arguments))
        if len(waiting) >= WAITING:
            self._send(index)

    def _answers(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send every shard a request, with its own arguments, and return the answers."""
        for index, own in enumerate(arguments):
            self._ask(index, method, *own)
        answers = self._settle()
        return [answers[index] for index in range(len(self._shares))]

    def _send(self, index: int) -> None:
        """Send a shard its queued requests."""
        if index in self._asked:
            self._collect()
        self._asked.add(index)
        self._shards.post(index, self._waiting.pop(index))

    def _settle(self) -> dict[int, Any]:
        """Send all queued requests, wait, and return each shard's last answer."""
        found: dict[int, Any] = {}
        while self._asked or self._waiting:
            if self._asked:
                found |= self._collect()
            for index in list(self._waiting):
                self._send(index)
        return found

    def _collect(self) -> dict[int, Any]:
        """Wait for the answers, note the counts, and return each shard's last answer."""
        self._asked.clear()
        replies = self._shards.wait()
        for index, reply in replies.items():
            for status in reply:
                if isinstance(status, ShardStatus):
                    self._status[index] = status
        return {index: reply[-1] for index, reply in replies.items()}
