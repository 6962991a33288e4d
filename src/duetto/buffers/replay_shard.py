"""A shard of a replay buffer: some of its environments, in any process.

    coordinator      points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  looks up the items at its points                     |  stores them
    shard 1          |  looks up the items at its points                     |  stores them

A shard draws no random numbers, counts no batches and computes no weights, so the distribution of batches does not
depend on the shards (`sharded_replay`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.buffers.factory import ReplayFactory
from duetto.buffers.sampling import PriorityLine


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
    """The interface to shards in any process. Each gets one message at a time; all work at the same time.

    Attributes:
        shares: The environments of each shard: contiguous, in order, and together all.
    """

    shares: Sequence[range]

    def start(self, factory: ReplayFactory) -> list[ShardStatus]:
        """Start new, empty shards and return their counts."""
        ...

    def post(self, index: int, asked: Sequence[ShardRequest]) -> None:
        """Send a shard requests, to be executed in this order, without waiting for the answers."""
        ...

    def wait(self) -> dict[int, list[Any]]:
        """Return each shard's answers to the posted requests, in order.

        Raises:
            PartLostError: A shard is gone; the run has to go back to its checkpoint.
        """
        ...

    def close(self) -> None:
        """End the shards."""
        ...
