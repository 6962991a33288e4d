"""Environments with state in every place where Python and C let one keep it.

Each episode's observations and rewards depend on `_number`, which every kind keeps somewhere else.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Plain(gymnasium.Env):
    """Nothing hidden: the next number is an attribute's."""

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


# ------------------------------------------------------------------------------------------------ what is not saved
def make_with_closure() -> gymnasium.Env:
    counted = 0

    def count() -> float:
        nonlocal counted
        counted += 1
        return float(counted % 97)

    return Calling(count)


class Calling(Plain):
    """Asks a function of its own."""

    def __init__(self, function: Callable[[], float]) -> None:
        super().__init__()
        self.function = function

    def _number(self) -> float:
        return self.function()


class OfFunction(Plain):
    def _number(self) -> float:
        _counting.counted += 1
        return float(_counting.counted % 97)


# State in a function's attribute is what this is about; a type checker knows of none.
def _counting() -> None: ...


_counting.counted = 0


class OfClass(Plain):
    total = 0

    def _number(self) -> float:
        OfClass.total += 1
        return float(OfClass.total % 97)


class OfModule(Plain):
    def _number(self) -> float:
        _TOTAL[0] += 1
        return float(_TOTAL[0] % 97)


_TOTAL = [0]


class Drift(gymnasium.RewardWrapper):
    """A wrapper that counts in a module's global."""

    def reward(self, reward: Any) -> Any:
        _TOTAL[0] += 1
        return reward + _TOTAL[0] % 97


class OfC(Plain):
    """The C library's own generator."""

    def _number(self) -> float:
        return float(ctypes.CDLL(None).rand() % 97)


class OfResets(OfModule):
    """Hidden state that shows only where the next episode starts, as a curriculum's does."""

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([0.0, float(action[0])]), 0.0, self.time == 50, False, {}


# ------------------------------------------------------------------------------------------------ what is saved
class OfActionSpace(Plain):
    """Its spaces are attributes of the class, as many are."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        del self.action_space

    def _number(self) -> float:
        return float(self.action_space.sample()[0])


class OfObservationSpace(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.others = Dict({"a": Discrete(97), "b": Box(-1.0, 1.0, (1,))})
        self.again = self.others["a"]  # one space with two names

    def _number(self) -> float:
        return float(self.observation_space.sample()[0] + self.others.sample()["a"] + self.again.sample())


class OfNumpy(Plain):
    def _number(self) -> float:
        return float(np.random.normal())


class OfRandom(Plain):
    def _number(self) -> float:
        return random.gauss(0.0, 1.0)


class OfOlderGenerators(Plain):
    """As environments had them before NumPy's Generator."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.more = np.random.RandomState(1), random.Random(1)

    def _number(self) -> float:
        return float(self.numbers.normal()) + self.more.gauss(0.0, 1.0)


class OfSlots(Plain):
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        super().__init__()
        self.__hidden, self.shown = 0, np.zeros(2)

    def _number(self) -> float:
        self.__hidden += 1
        self.shown = self.shown + self.__hidden
        return float(self.shown[0] % 97)


class OfMetadata(Plain):
    metadata: dict[str, Any] = {"render_modes": [], "level": 0}  # noqa: RUF012 - as Gymnasium has it

    def _number(self) -> float:
        self.metadata["level"] += 1
        return float(self.metadata["level"] % 97)


class OfText(Plain):
    """Arrays of text, as FrozenLake's map and Blackjack's cards."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.card = np.array([[b"S", b"F"], [b"F", b"G"]]), np.str_("A")

    def _number(self) -> float:
        self.map, self.card = np.roll(self.map, 1), np.str_(chr(65 + (ord(self.card) + 1) % 26))
        return float(self.map[0, 0][0] + ord(self.card))


class Everything(OfNumpy):
    """All that is saved at once."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.card = np.array([[b"S", b"F"], [b"F", b"G"]]), np.str_("A")
        self.metadata = {"level": 0}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.action_space.seed(seed)
        return super().reset(seed=seed)

    def _number(self) -> float:
        kinds: list[Any] = [OfNumpy, OfActionSpace, OfRandom, OfText, OfMetadata]
        return float(sum(kind._number(self) for kind in kinds))
