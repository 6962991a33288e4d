"""A shard of a replay buffer: some of its environments, in any process.

    coordinator      points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  looks up the items at its points                     |  stores them
    shard 1          |  looks up the items at its points                     |  stores them

A shard draws no random numbers, counts no batches and computes no weights, so the distribution of batches does not
depend on the shards (`sharded_replay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.buffers.her import HindsightGoals
from duetto.buffers.replay import Replay
from duetto.buffers.sampling import PriorityLine
from duetto.buffers.sequences import SequenceReplay
from duetto.buffers.storage import EpisodeStorage
from duetto.networks.spaces import Space


class ReplayFactory(NamedTuple):
    """The arguments of a replay buffer of transitions or of sequences, in this process or in a shard."""

    spec: ReplaySpec | SequenceSpec
    observation: Space
    action: Space
    rows: int  # of each environment
    stacked: int

    def make(
        self, num_envs: int, random: np.random.Generator, goals: HindsightGoals | None = None, first_env: int = 0
    ) -> Replay:
        """Make the buffer of `num_envs` environments. UsageError if it does not fit into memory."""
        spec, observation, action, rows, stacked = self
        storage = EpisodeStorage(observation, action, num_envs, rows, stacked, first_env)
        if isinstance(spec, SequenceSpec):
            return SequenceReplay(spec, storage, random)
        return Replay(spec, storage, random, goals)


class ShardStatus(NamedTuple):
    """The counts of a shard after a request."""

    written: np.ndarray  # (its environments,) int64
    line: PriorityLine


class Shard:
    """The buffer of a share of the environments, numbered from 0 except in errors."""

    def __init__(self, factory: ReplayFactory, share: range) -> None:
        # Nothing is drawn from its generator.
        self._memory = factory.make(len(share), np.random.default_rng(0), first_env=share.start)

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
