"""The trainer's view of environments in actors: actors step them; the trainer only resets, saves and restores them.

A saved state has one entry for each of K actors, "0" to "K-1".
"""

from __future__ import annotations

from collections import deque
from itertools import chain, pairwise
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.buffers.base import concatenated
from duetto.cluster.actor_pool import ActorPool
from duetto.environments import Tree
from duetto.environments.engines import Engine, StepResult

RECENT = 1000  # vector steps whose lags are logged


class RemoteEngine(Engine):
    """Environments in the actors. Closing the engine ends the actors.

    Attributes:
        pool: The actors.
        name: Name of the environments, for messages.
        waited: Seconds that the trainer has waited for actors.
        lags: For each of the newest vector steps, the age of the actors' weights in updates.
    """

    name: str

    def __init__(self, pool: ActorPool) -> None:
        """Take the environments' attributes from the first actor, because all actors have equal environments."""
        self.pool: ActorPool = pool
        self.num_envs: int = sum(len(actor.share) for actor in pool.actors)
        vars(self).update(pool.call_each("describe")[0])
        self.envs: list[Any] = []
        self.pending: np.ndarray = np.zeros(self.num_envs, bool)
        self.waited: float = 0.0
        self.lags: deque[int] = deque([0], maxlen=RECENT)

    @override
    def reset(self, seed: int) -> Tree:
        return concatenated(self.pool.call_each("reset", [seed + actor.share.start for actor in self.pool.actors]))

    def step(self, actions: np.ndarray) -> StepResult:
        """Raise NotImplementedError: only actors step."""
        raise NotImplementedError

    @override
    def save(self) -> dict[str, Any] | None:
        """Return the states that came with the actors' last answers."""
        states = {str(actor.index): actor.state for actor in self.pool.actors}
        return None if any(state["stepper"]["environments"] is None for state in states.values()) else states

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """Restore the actors' environments. If the number of actors has changed, start new episodes instead."""
        if len(saved) != len(self.pool.actors):
            why = f"it is of {len(saved)} actors, and there are {len(self.pool.actors)} now"
            return self.reset(seed), [why] * self.num_envs
        return obs, list(chain(*self.pool.call_each("restore", [saved[str(i)] for i in range(len(saved))])))

    @override
    def numbers(self) -> dict[str, float]:
        """Return metrics. They are counted from the start of this process, also in a resumed run."""
        return {
            "time/actors": len(self.pool.actors),
            "time/actor_restarts": self.pool.restarts,
            "time/waiting_for_actors": round(self.waited, 3),
            "time/lag_updates_mean": sum(self.lags) / len(self.lags),
        }

    @override
    def close(self) -> None:
        self.pool.close()


def shares(num_envs: int, parts: int) -> list[range]:
    """Return the environments of each part: contiguous, in sizes that differ by at most 1."""
    bounds = [num_envs * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]
