"""Replay shards in separate processes.

    trainer   points | ......... join, weigh | learn | new priorities, new steps | points
    shard 0          | look up   |                   | keep them, store           |
    shard 1          | look up ..|                   | keep them, store .........  |

A shard that dies sends the run back to its newest checkpoint.
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
    """The server of a shard, whose contents are lost with its process."""

    restorable: ClassVar[bool] = False
    errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)


class RemoteShards(Shards):
    """Shards that each have their own process."""

    def __init__(self, actors: ActorPool, shares: Sequence[range]) -> None:
        """`actors` are the run's; the shards' processes start with `start`."""
        self.shares: Sequence[range] = shares
        self._actors = actors
        self._pool: ActorPool | None = None

    @override
    def start(self, factory: ReplayFactory) -> list[Any]:
        """Start the shards. Raises UsageError if the cluster has no place for one, or it fails to start."""
        self.close()
        role = cloudpickle.dumps(partial(Shard, factory))  # here: Ray does not know of the user's own file
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
