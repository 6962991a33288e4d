"""Environments with hidden state, in attributes, spaces, modules and random generators.

Observations and rewards depend on `_number`, whose state each class keeps in another place.
"""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Plain(gymnasium.Env):
    """No hidden state: `_number` counts with an attribute."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.time, self.counted = 0, 0

    def _number(self) -> float:
        self.counted += 1
        return float(self.counted % 97)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.array([self._number(), 0.0]), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        number = self._number()
        return np.array([number, float(action[0])]), number, self.time == 50, False, {}


# ------------------------------------------------------------------------------------------ state that is not saved
class ModuleState(Plain):
    def _number(self) -> float:
        _TOTAL[0] += 1
        return float(_TOTAL[0] % 97)


_TOTAL = [0]


class ModuleStateAtResets(ModuleState):
    """Hidden state that affects only the first observation of an episode, as with a curriculum."""

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([0.0, float(action[0])]), 0.0, self.time == 50, False, {}


# ------------------------------------------------------------------------------------------ state that is saved
class ActionSpaceState(Plain):
    """Samples from an action space that is a class attribute."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        del self.action_space

    def _number(self) -> float:
        return float(self.action_space.sample()[0])


class ObservationSpaceState(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.others = Dict({"a": Discrete(97), "b": Box(-1.0, 1.0, (1,))})
        self.again = self.others["a"]  # one space with two names

    def _number(self) -> float:
        return float(self.observation_space.sample()[0] + self.others.sample()["a"] + self.again.sample())


class NumpyGlobalState(Plain):
    def _number(self) -> float:
        return float(np.random.normal())


class RandomModuleState(Plain):
    def _number(self) -> float:
        return random.gauss(0.0, 1.0)


class LegacyGeneratorState(Plain):
    """Legacy generators: RandomState and random.Random."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.more = np.random.RandomState(1), random.Random(1)

    def _number(self) -> float:
        return float(self.numbers.normal()) + self.more.gauss(0.0, 1.0)
