"""An engine of N environments that are spread over actors, which act and step by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from duetto.cluster.actor_pool import Crew, Lost
from duetto.cluster.actor_server import Description, Request
from duetto.environments import Tree
from duetto.environments.action_masks import ActionMasks
from duetto.environments.engines import Engine, StepResult
from duetto.environments.replay import EpisodeRecorder
from duetto.environments.spaces import Layout
from duetto.errors import UsageError
from duetto.functional.pytree import tree_map_many


class Spread(Engine):
    """See Engine. The run only describes and resets it; closing it ends the crew."""

    name: str
    label: str
    layout: Layout
    stacked: int
    single_action_space: Any
    metadata: dict[str, Any]

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.num_envs: int = sum(len(actor.share) for actor in crew.actors)
        described: list[Description] = [values[0] for values in self._all({}, "describe")]  # type: ignore[index]
        first = described[0]
        for other in described:
            if other.layout.space != first.layout.space or other.action_space != first.action_space:
                raise UsageError(f"{first.label}: the environments have different spaces. Make them all alike.")
        self.name, self.label, self.layout, self.stacked = first.name, first.label, first.layout, first.stacked
        self.single_action_space, self.metadata = first.action_space, first.metadata
        self.action_masks: ActionMasks = ActionMasks(first.action_space)
        self.envs: list[EpisodeRecorder] = []
        self.pending: np.ndarray = np.zeros(self.num_envs, bool)
        self.waited: float = 0.0  # seconds, for actors
        self.more: Callable[[], dict[str, float]] = dict  # numbers

    def _all(self, arguments: dict[int, Any], method: str) -> list[list[Any] | Lost]:
        """Send all actors one request, with the argument of each; return their answers in order."""
        actors = [actor.index for actor in self.crew.actors]
        results = self.crew.ask({i: [Request(method, (arguments[i],) if arguments else ())] for i in actors})
        return [results[i] for i in actors]

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        seeds = {actor.index: None if seed is None else seed + actor.share.start for actor in self.crew.actors}
        results = self._all(seeds, "reset")
        return tree_map_many(np.concatenate, [one.obs if isinstance(one, Lost) else one[0] for one in results])

    def step(self, actions: np.ndarray) -> StepResult:
        """Refuse: actors step."""
        raise NotImplementedError

    def reset_env(self, env: int, seed: int) -> Tree:
        """Refuse: actors reset their environments."""
        raise NotImplementedError

    def render(self) -> None:
        """Return None: environments that are shown are made in the process that shows them."""

    def save(self) -> dict[str, Any] | None:
        """Refuse: `Distant.state_dict` has the states that came with blocks."""
        raise NotImplementedError

    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """Refuse: `Distant.load_state_dict` restores actors."""
        raise NotImplementedError

    def numbers(self) -> dict[str, float]:
        """See Engine; counted in this process, not in those that the run was resumed from."""
        return {
            "time/actors": len(self.crew.actors),
            "time/actor_restarts": self.crew.restarts,
            "time/waiting_for_actors": round(self.waited, 3),
        } | self.more()

    def close(self) -> None:
        """See Engine."""
        self.crew.close()
