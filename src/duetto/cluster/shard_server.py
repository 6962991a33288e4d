"""Replay shards in separate processes.

    trainer   points | ......... join, weigh | learn | new priorities, new steps | points
    shard 0          | look up   |                   | keep them, store           |
    shard 1          | look up ..|                   | keep them, store .........  |

`points` select the items of a batch (`buffers.sharded_replay`). If a shard dies, the run continues from its newest
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import cloudpickle
from typing_extensions import override

from duetto.buffers.sharded_replay import ReplayFactory, Shard, ShardRequest, Shards
from duetto.cluster.actor_pool import ActorPool, ActorServer, Request
from duetto.environments.errors import EnvironmentFault
from duetto.errors import UsageError


class ShardServer(ActorServer):
    """The server in a shard's process. The shard's contents are lost with the process."""

    restorable: ClassVar[bool] = False
    errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)


class RemoteShards(Shards):
    """Shards that each have their own process."""

    def __init__(self, actors: ActorPool, shares: Sequence[range]) -> None:
        """Store the run's pool of actors; `start` starts the processes of the shards."""
        self.shares: Sequence[range] = shares
        self._actors = actors
        self._pool: ActorPool | None = None

    @override
    def start(self, factory: ReplayFactory) -> list[Any]:
        """Start the shards. Raises UsageError if one fails to start."""
        self.close()
        role = cloudpickle.dumps(partial(Shard, factory))  # Ray cannot pickle a class of a user's file
        self._pool = self._actors.another(role, self.shares, "shard {} of the replay memory", ShardServer)
        try:
            return self._pool.call_each("status")
        except EnvironmentFault as fault:
            raise UsageError(fault.what[0].upper() + fault.what[1:]) from fault

    @override
    def execute(self, requests: Mapping[int, Sequence[ShardRequest]]) -> dict[int, list[Any]]:
        assert self._pool is not None
        for index, asked in requests.items():
            self._pool.post(index, [Request("execute", (method, *arguments)) for method, arguments in asked])
        return {index: reply.values for index, reply in self._pool.wait(list(requests)).items()}

    @override
    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
