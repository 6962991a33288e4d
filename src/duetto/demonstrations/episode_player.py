"""Replay a demonstration in its environment, from its seed."""

from __future__ import annotations

import numpy as np

from duetto.demonstrations.types import Demonstrations
from duetto.environments import Tree, obs_tree
from duetto.errors import UsageError


class EpisodePlayer:
    """A policy that repeats recorded actions, as long as the environment returns the recorded observations.

    An episode that is part of a game with several lives is replayed from the start of the game.

    Raises:
        UsageError: There is no such episode, or its seed is unknown.
    """

    def __init__(self, demonstrations: Demonstrations, number: int) -> None:
        seeds, parts = demonstrations.seeds, demonstrations.parts
        if not 0 <= number < len(demonstrations):
            raise UsageError(
                f"There is no episode {number}. {demonstrations.source} has 0 to {len(demonstrations) - 1}."
            )
        self._where = f"Episode {number} of {demonstrations.source}"
        seed = seeds[number]
        if seed is None:
            raise UsageError(f"{self._where} cannot be replayed: its seed is unknown.")
        self.seed = seed
        first = last = number - parts[number]
        while last + 1 < len(parts) and parts[last + 1] == last + 1 - first:
            last += 1
        episodes = demonstrations.episodes[first : last + 1]
        self._actions = np.concatenate([episode.action for episode in episodes])
        self._obs = [
            {name: part[i] for name, part in obs_tree.parts(episode.obs)}
            for episode in episodes
            for i in range(episode.length)
        ]
        self._next = 0

    @property
    def finished(self) -> bool:
        """Whether every action was returned."""
        return self._next == len(self._actions)

    def __call__(self, obs: Tree) -> np.ndarray:
        """Return the next action (1, ...); UsageError where `obs` (1, ...) is not what was recorded at this step."""
        seen = {name: part[0] for name, part in obs_tree.parts(obs)}
        if self.finished or any(not np.array_equal(seen[name], part) for name, part in self._obs[self._next].items()):
            raise UsageError(
                f"{self._where} cannot be replayed: at step {self._next} the environment returns another observation "
                "than when it was recorded. Its version may differ, or its seed does not decide everything: Atari "
                "games that were recorded without pictures used ale-py's vector environment, which draws other random "
                "numbers."
            )
        self._next += 1
        return self._actions[self._next - 1][None]
