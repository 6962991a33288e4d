"""Play a demonstration again in its environment, from its seed."""

from __future__ import annotations

import numpy as np

from duetto.demonstrations.episodes import Demonstrations
from duetto.environments import Tree, trees
from duetto.errors import UsageError


class Replay:
    """A player of the recorded actions, one by one, as long as the environment shows what was recorded.

    Where a game has several demonstrations, it is played from its beginning, whichever of them is asked for.

    Raises:
        UsageError: There is no such episode, or nobody knows its seed.
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
            raise UsageError(f"{self._where} cannot be played again: the seed that it began with is not known.")
        self.seed = seed
        first = last = number - parts[number]
        while last + 1 < len(parts) and parts[last + 1] == last + 1 - first:
            last += 1
        episodes = demonstrations.episodes[first : last + 1]
        self._actions = np.concatenate([episode.action for episode in episodes])
        self._obs = [
            {name: part[i] for name, part in trees.parts(episode.obs)}
            for episode in episodes
            for i in range(episode.length)
        ]
        self._next = 0

    @property
    def finished(self) -> bool:
        """Whether every action was asked for."""
        return self._next == len(self._actions)

    def __call__(self, obs: Tree) -> np.ndarray:
        """Return the next action (1, ...); UsageError where `obs` (1, ...) is not what was recorded at this step."""
        seen = {name: part[0] for name, part in trees.parts(obs)}
        if self.finished or any(not np.array_equal(seen[name], part) for name, part in self._obs[self._next].items()):
            raise UsageError(
                f"{self._where} cannot be played again: at step {self._next} the environment does something else than "
                "when it was recorded. Its version may be another one, or it may have a part that no seed decides, as "
                "Atari games do that were not recorded at the keyboard: ale-py's fast engine, which shows no pictures, "
                "draws other random numbers."
            )
        self._next += 1
        return self._actions[self._next - 1][None]
