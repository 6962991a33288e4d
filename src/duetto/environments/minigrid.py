"""MiniGrid and BabyAI observations as vectors of zeros and ones.

An agent sees the 7 x 7 cells before it (three numbers each: object, color, state), its direction, and its mission, a
short English text. Actions, rewards and ends are unchanged: the reward is 1 - 0.9 * steps / max_steps for success and
0 otherwise (-1 for a collision in Dynamic-Obstacles), and an episode is truncated after max_steps.
"""

from __future__ import annotations

import importlib
import math
import re
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from duetto.errors import UsageError

OBJECTS, COLORS, STATES = 11, 6, 3  # numbers of kinds, as in minigrid.core.constants
DIRECTIONS = 4

# All words of minigrid 3.2's missions. A word has the same position in every environment, so that a network can
# continue to train in another environment.
VOCABULARY = (
    *("a", "the"),
    *("blue", "green", "grey", "purple", "red", "yellow"),
    *("ball", "box", "door", "key", "object"),
    *("end", "goal", "hallway", "lava", "maze", "opening", "room", "rooms", "square"),
    *("avoid", "fetch", "find", "get", "go", "open", "pick", "put", "reach", "traverse", "unlock", "up", "use"),
    *("at", "behind", "front", "in", "left", "matching", "must", "of", "on", "right", "to", "you", "your"),
    *("after", "and", "from", "near", "next", "then"),
)


@lru_cache(maxsize=256)  # called at every step
def bag_of_words(mission: str) -> np.ndarray:
    """Encode a mission as (len(VOCABULARY),) uint8, read-only: 1 for each word that occurs.

    The order is lost: "put the red ball next to the green box" and "put the green ball next to the red box" are equal.

    Raises:
        UsageError: A word is not in the vocabulary.
    """
    found = re.findall(r"[^\s,.]+", mission.lower())
    if unknown := set(found).difference(VOCABULARY):
        words = ", ".join(sorted(unknown))
        raise UsageError(f'The mission "{mission}" has {words}, which is in no mission of minigrid 3.2.')
    code = np.isin(VOCABULARY, found).astype(np.uint8)
    code.flags.writeable = False  # all callers get the cache's array
    return code


class VectorView(gymnasium.ObservationWrapper):
    """A wrapper whose observation is one vector: one-hot codes of cells and direction, and the mission's words.

    The vector has 49 * (11 + 6 + 3) + 4 + 54 elements with a view of 7 x 7 cells.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        # BabyAI prints a line for each mission that it rejects.
        vars(importlib.import_module("minigrid.envs.babyai.core.roomgrid_level"))["print"] = lambda *_: None
        space: Any = env.observation_space
        cells, length = math.prod(space["image"].shape[:2]), OBJECTS + COLORS + STATES
        # Index of the vector at which the one-hot code of each number in the image starts.
        self._first = np.add.outer(np.arange(cells) * length, (0, OBJECTS, OBJECTS + COLORS)).reshape(-1)
        self._compass, self._words = cells * length, cells * length + DIRECTIONS
        self._size = self._words + len(VOCABULARY)
        self.observation_space = gymnasium.spaces.Box(0, 1, (self._size,), np.uint8)

    @override
    def step(self, action: Any) -> Any:
        return super().step(int(action))  # MiniGrid compares it with enums, which is slow for NumPy integers

    @override
    def observation(self, observation: Any) -> np.ndarray:
        vector = np.zeros(self._size, np.uint8)
        vector[self._first + observation["image"].reshape(-1)] = 1
        vector[self._compass + observation["direction"]] = 1
        vector[self._words :] = bag_of_words(observation["mission"])
        return vector
