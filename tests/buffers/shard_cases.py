"""Buffers whose shards are in this process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from memory_cases import ACTION, VECTOR

from duetto import buffers
from duetto.buffers.sharded_replay import ReplayFactory, Shard, ShardedReplay, ShardStatus
from duetto.cluster.remote_engine import shares


class Near:
    """Shards in this process, and the names of the methods in each message to them."""

    def __init__(self, shares: list[range]) -> None:
        self.shares = shares
        self.shards: list[Shard] = []
        self.messages: list[tuple[int, list[str]]] = []

    def start(self, factory: ReplayFactory) -> list[ShardStatus]:
        self.shards = [Shard(factory, share) for share in self.shares]
        return [shard.status() for shard in self.shards]

    def execute(self, requests: dict[int, list[Any]]) -> dict[int, list[Any]]:
        for index, asked in requests.items():
            self.messages.append((index, [method for method, _ in asked]))
        return {
            index: [self.shards[index].execute(method, *arguments) for method, arguments in asked]
            for index, asked in requests.items()
        }


def sharded(
    spec: Any,
    num_envs: int,
    count: int,
    seed: int = 0,
    observation: Any = VECTOR,
    action: Any = ACTION,
    cuts: list[int] | None = None,
    **options: Any,
) -> Any:
    """Return a buffer in `count` shards, or in shards that start at `cuts`. With 0, the buffer has no shards."""
    random = np.random.default_rng(seed)
    if count == 0:
        return buffers.build(spec, observation, action, num_envs, random, **options)
    bounds = [*(cuts or [share.start for share in shares(num_envs, count)]), num_envs]
    near = Near([range(first, end) for first, end in pairwise(bounds)])
    return buffers.build(spec, observation, action, num_envs, random, shards=near, **options)


def near(sharded: Any) -> Near:
    """Return the shards of a buffer."""
    inner = getattr(sharded, "_agent", sharded)
    assert isinstance(inner, ShardedReplay)
    assert isinstance(inner._shards, Near)
    return inner._shards
