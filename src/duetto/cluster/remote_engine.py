"""The trainer's view of environments in actors: actors step them; the trainer only resets, saves and restores them.

A saved state has an entry "0" .. "N-1" per environment; its other entries have a row per environment.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.buffers.base import concatenated
from duetto.cluster.actor_pool import ActorPool
from duetto.environments import Tree
from duetto.environments.engines import Engine, StepResult
from duetto.errors import UsageError


class RemoteEngine(Engine):
    """Environments in the actors. Closing it ends the actors.

    Attributes:
        pool: The actors.
        name: Of the environments, for messages.
        waited: Seconds that the trainer has waited for actors.
        acting: Each actor's part of a checkpoint that is not of its environments, for `load`.
        source_numbers: Returns the numbers of the source of experience, for the log.
    """

    name: str

    def __init__(self, pool: ActorPool) -> None:
        """Raise UsageError if the actors' environments differ."""
        self.pool: ActorPool = pool
        self.num_envs: int = sum(len(actor.share) for actor in pool.actors)
        described: list[dict[str, Any]] = pool.call_each("describe")
        vars(self).update(described[0])
        for other in described:
            if (other["layout"].space, other["single_action_space"]) != (self.layout.space, self.single_action_space):
                raise UsageError(f"{self.label}: the environments have different spaces. Make them all alike.")
        self.envs: list[Any] = []
        self.pending: np.ndarray = np.zeros(self.num_envs, bool)
        self.waited: float = 0.0
        self.acting: list[dict[str, Any]] = []
        self.source_numbers: Callable[[], dict[str, float]] = dict

    @override
    def reset(self, seed: int | None) -> Tree:
        first = 0 if seed is None else seed
        return concatenated(self.pool.call_each("reset", [first + actor.share.start for actor in self.pool.actors]))

    def step(self, actions: np.ndarray) -> StepResult:
        """Refuse: actors step."""
        raise NotImplementedError

    @override
    def save(self) -> dict[str, Any] | None:
        """The states that came with the actors' last answers."""
        return join_saved([actor.state["environments"] for actor in self.pool.actors])

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """The observations are those given: the actors have theirs."""
        actors = zip(self.pool.actors, self.acting, strict=True)
        states = [acting | {"environments": take_saved(saved, actor.share)} for actor, acting in actors]
        return obs, [why for reasons in self.pool.call_each("restore", states) for why in reasons]

    @override
    def numbers(self) -> dict[str, float]:
        """Counted in this process, not in those that the run was resumed from."""
        return {
            "time/actors": len(self.pool.actors),
            "time/actor_restarts": self.pool.restarts,
            "time/waiting_for_actors": round(self.waited, 3),
        } | self.source_numbers()

    @override
    def close(self) -> None:
        self.pool.close()


def shares(num_envs: int, parts: int) -> list[range]:
    """Return the environments of each part: contiguous, in sizes that differ by at most 1."""
    bounds = [num_envs * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def join_saved(parts: list[Any]) -> Any:
    """Join the parts' `save`, in order, into one engine's; None if one is None."""
    first = parts[0]
    if any(part is None for part in parts):
        return None
    if not isinstance(first, dict):
        return np.concatenate(parts)
    numbered = [one for part in parts for name, one in part.items() if name.isdigit()]  # in order, as saved
    others = {name: join_saved([part[name] for part in parts]) for name in first if not name.isdigit()}
    return {str(env): one for env, one in enumerate(numbered)} | others


def take_saved(saved: Any, share: range) -> Any:
    """Return the part of one engine's `save` for the environments `share`."""
    if not isinstance(saved, dict):
        return saved[share.start : share.stop]
    numbered = {str(i): saved[str(env)] for i, env in enumerate(share) if str(env) in saved}
    return numbered | {name: take_saved(part, share) for name, part in saved.items() if not name.isdigit()}
