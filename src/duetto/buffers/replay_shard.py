"""A shard of a replay buffer: some of its environments, in any process.

    coordinator      points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  looks up the items at its points                     |  stores them
    shard 1          |  looks up the items at its points                     |  stores them

A shard draws no random numbers, counts no batches and computes no weights, so the distribution of batches does not
depend on the shards (`sharded_replay`). It holds blocks of steps until it is told to store them, one vector step at a
time (`remote_blocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.buffers.base import Experience, ResolvedItems, selected
from duetto.buffers.factory import ReplayFactory
from duetto.buffers.remote_blocks import HeldGroup
from duetto.buffers.sampling import PrioritizedSampler, PriorityLine
from duetto.buffers.storage import BrokenEpisodeError


class ShardStatus(NamedTuple):
    """The counts of a shard after a request."""

    written: np.ndarray  # (its environments,) int64
    line: PriorityLine


class StoredBlock(NamedTuple):
    """The sizes of a block that a shard fetches."""

    share: range  # the environments that it has steps of
    counts: list[int]  # rows of each vector step


class Shard:
    """The buffer of a share of the environments, numbered from 0 except in errors."""

    def __init__(self, factory: ReplayFactory, share: range) -> None:
        # Nothing is drawn from its generator.
        self._memory, self._first = factory.make(len(share), np.random.default_rng(0)), share.start
        self._share, self._stacks, self._arrived = share, factory.stacks(), dict[int, HeldGroup]()
        draws = self._memory.sampler
        self._draws = draws if isinstance(draws, PrioritizedSampler) else None

    def status(self) -> ShardStatus:
        """Return its counts."""
        return ShardStatus(self._memory.written, self._memory.line)

    def add(self, experience: Experience, largest: float) -> ShardStatus:
        """Store steps; new items get the largest |δ| of all shards."""
        self._raise(largest)
        try:
            self._memory.add(experience)
        except BrokenEpisodeError as error:
            raise BrokenEpisodeError(error.name, error.env + self._first) from error
        return self.status()

    def hold(
        self,
        number: int,
        blocks: Sequence[StoredBlock],
        extras: Sequence[str],
        largest: float,
        *values: Experience,
    ) -> ShardStatus:
        """Hold a group's steps until they are taken."""
        found = [
            self._own(value._replace(extras={name: value.extras[name] for name in extras}), block)
            for block, value in zip(blocks, values, strict=True)
        ]
        self._arrived[number] = HeldGroup(found, len(blocks[0].counts))
        return self.status()

    def _own(self, steps: Experience, block: StoredBlock) -> tuple[Experience, list[int]]:
        """Return the steps of the shard's environments, and how many each vector step has."""
        self._stacks.check_steps(steps)
        if block.share.start >= self._share.start and block.share.stop <= self._share.stop:
            return steps, block.counts
        own = (steps.env >= self._share.start) & (steps.env < self._share.stop)
        step = np.arange(len(block.counts)).repeat(block.counts)
        counts = np.bincount(step[own], minlength=len(block.counts)).tolist()
        return selected(steps, np.flatnonzero(own)), counts

    def take(self, number: int, step: int, largest: float) -> ShardStatus:
        """Store a vector step of a held group; new items get the largest |δ| of all shards."""
        arrived = self._arrived[number]
        found = arrived.take(step)
        if arrived.used_up:
            del self._arrived[number]
        if found is None:
            return self.status()
        return self.add(found._replace(env=found.env - self._first), largest)

    def interrupt(self, envs: np.ndarray | None, largest: float) -> ShardStatus:
        """See `Replay.interrupt`; items that this completes get the largest |δ| of all shards."""
        self._raise(largest)
        self._memory.interrupt(envs)
        return self.status()

    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at points (B,) of the shard's own line."""
        return self._memory.resolve(point)

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> ShardStatus:
        """Give items (B,) new priorities, if they are still stored."""
        self._memory.prioritize(index, stamp, priority)
        return self.status()

    def state_dict(self) -> dict[str, Any]:
        """Return its buffer's state, in which generator, schedule and counts of batches are unused."""
        return self._memory.state_dict()

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """See `Replay.segment`."""
        return self._memory.segment(since)

    def load_state_dict(self, state: dict[str, Any]) -> ShardStatus:
        """Restore what `state_dict` returned."""
        self._memory.load_state_dict(state)
        return self.status()

    def load_segment(self, segment: dict[str, np.ndarray]) -> ShardStatus:
        """See `Replay.load_segment`."""
        self._memory.load_segment(segment)
        return self.status()

    def _raise(self, largest: float) -> None:
        if self._draws is not None:
            self._draws.largest = largest


ShardRequest = tuple[str, tuple[Any, ...]]  # a method of a shard, and its arguments


class Shards(Protocol):
    """The interface to shards in any process. Each gets one message at a time; all work at the same time."""

    @property
    def shares(self) -> Sequence[range]:
        """The environments of each shard: contiguous, in order, and together all."""
        ...

    def begin(self, factory: ReplayFactory) -> list[ShardStatus]:
        """Start new, empty shards and return their counts."""
        ...

    def post(self, index: int, asked: Sequence[ShardRequest], *values: Any) -> None:
        """Send a shard requests, to be executed in this order, without waiting for the answers.

        `values` are further arguments of `hold`, which is requested once at most: each is an `Experience`, or a
        reference to one in another process.
        """
        ...

    def wait(self) -> dict[int, list[Any]]:
        """Return each shard's answers to the posted requests, in order.

        Raises:
            PartLostError: A shard, or a block for it, is gone; the run has to go back to its checkpoint.
        """
        ...

    def close(self) -> None:
        """End the shards."""
        ...
