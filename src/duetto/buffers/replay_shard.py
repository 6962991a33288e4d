"""A shard of a replay buffer: some of its environments, in any process.

    coordinator      points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  looks up the items at its points                     |  stores them
    shard 1          |  looks up the items at its points                     |  stores them

A shard draws no random numbers, counts no batches and computes no weights, so the distribution of batches does not
depend on the shards (`sharded_replay`). It holds blocks of steps until it is told to store them, one vector step at a
time (`remote_blocks`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.buffers.base import Experience, selected
from duetto.buffers.experience import cut, joined
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
        self._share, self._held = share, dict[int, deque[list[Experience]]]()

    def status(self) -> ShardStatus:
        """Return its counts."""
        return ShardStatus(self._memory.written, self._memory.line)

    def execute(self, method: str, *arguments: Any) -> Any:
        """Call `hold`, `take`, or a method of the buffer. Return its result, or without one the counts."""
        result = getattr(self if method in {"hold", "take"} else self._memory, method)(*arguments)
        return self.status() if result is None else result

    def hold(self, number: int, counts: Sequence[list[int]], extras: Sequence[str], *blocks: Experience) -> None:
        """Hold a group of blocks, with `counts` rows for each of their vector steps, until these are taken."""
        each = [self._own_steps(*block, extras) for block in zip(blocks, counts, strict=True)]
        self._held[number] = deque([own for own in some if len(own.env)] for some in zip(*each, strict=True))

    def take(self, number: int) -> None:
        """Store the next vector step of a held group."""
        found = self._held[number].popleft()
        if not self._held[number]:
            del self._held[number]
        if found:
            self._memory.add(joined(found))

    def _own_steps(self, block: Experience, counts: list[int], extras: Sequence[str]) -> list[Experience]:
        """Return the vector steps of a block, of the shard's environments alone."""
        step = np.arange(len(counts)).repeat(counts)
        own = (block.env >= self._share.start) & (block.env < self._share.stop)
        block = block._replace(env=block.env - self._share.start, extras={name: block.extras[name] for name in extras})
        if own.all():
            return cut(block, counts)
        return cut(selected(block, np.flatnonzero(own)), np.bincount(step[own], minlength=len(counts)).tolist())


ShardRequest = tuple[str, tuple[Any, ...]]  # a method for `Shard.execute`, and its arguments


class Shards(Protocol):
    """The interface to shards in any process. Each gets one message at a time; all work at the same time.

    Attributes:
        shares: The environments of each shard: contiguous, in order, and together all.
    """

    shares: Sequence[range]

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
