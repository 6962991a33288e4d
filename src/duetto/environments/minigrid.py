"""MiniGrid and BabyAI observations as vectors or images.

An agent sees the 7 x 7 cells before it, each as three numbers (object, color, state), its direction, and its mission as
a text. Rewards, ends and actions are MiniGrid's: 1 - 0.9 * steps / max_steps for success and 0 otherwise (-1 for a
collision in Dynamic-Obstacles), truncated after max_steps.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from typing_extensions import override

from duetto.environments import minigrid_missions, suggestions
from duetto.errors import UsageError

OBJECTS, COLORS, STATES = 11, 6, 3  # numbers of kinds, as in minigrid.core.constants
DIRECTIONS = 4
SPREAD = np.array([25, 51, 127], np.uint8)  # factors of objects, colors and states: 0..250, 0..255, 0..254

View = Literal["vector", "image"]
Mission = Literal["bag", "ordered", "off"]


@dataclass(frozen=True)
class MiniGridOptions:
    """Options of observations. Others (`max_steps`, `agent_view_size` ...) go to the environment's constructor.

    Raises:
        UsageError: A value is invalid.
    """

    view: View = "vector"
    """"vector": one vector of zeros and ones, Box((n,), uint8): one-hot codes of each cell's object (11), color (6) and
    state (3: open, closed, locked) and of the direction (4), and the mission; n is 980 + 4 + 54 with a view of 7 x 7
    cells. "image": a Dict of "image", Box((7, 7, 3), uint8) with the three numbers scaled to 0..255, "direction",
    Discrete(4), and "mission", a vector."""
    direction: bool = True
    """Observe the agent's direction: right, down, left or up."""
    mission: Mission = "bag"
    """"bag": a number for each word of `minigrid_missions.VOCABULARY`, 1 if the word occurs. It loses the order: "put
    the red ball next to the green box" and "put the green ball next to the red box" are equal. "ordered": a bag for
    each of up to 8 phrases (432 numbers), for PutNear, PutNext, Synth, BossLevel and all missions with an order.
    "off": no mission."""

    def __post_init__(self) -> None:
        suggestions.check_choice("MiniGrid's view", self.view, View)
        suggestions.check_choice("MiniGrid's mission", self.mission, Mission)
        if not isinstance(self.direction, bool):
            raise UsageError(f"MiniGrid's direction is {self.direction!r}. Give true or false.")

    @classmethod
    def take(cls, kwargs: Mapping[str, Any]) -> tuple[MiniGridOptions, dict[str, Any]]:
        """Return the options among `kwargs`, and the others, for the environment's constructor."""
        own = {name: value for name, value in kwargs.items() if name in OPTIONS}
        if own.get("mission") is False:  # YAML, and so the command line, reads "off" as false
            own["mission"] = "off"
        return cls(**own), {name: value for name, value in kwargs.items() if name not in OPTIONS}


OPTIONS = [field.name for field in dataclasses.fields(MiniGridOptions)]


def wrap(env: gymnasium.Env, options: MiniGridOptions) -> gymnasium.Env:
    """Wrap a MiniGrid environment so that networks can read it."""
    # BabyAI prints a line for each mission that it rejects.
    vars(importlib.import_module("minigrid.envs.babyai.core.roomgrid_level"))["print"] = lambda *_: None
    view = _VectorView if options.view == "vector" else _ImageView
    return view(_PythonActions(env), options)


class _PythonActions(gymnasium.ActionWrapper):
    """A wrapper that passes Python's integers: MiniGrid compares them with up to seven enums, slowly with NumPy's."""

    @override
    def action(self, action: Any) -> int:
        return int(action)


class _VectorView(gymnasium.ObservationWrapper):
    """A wrapper that observes one vector of zeros and ones: cells, direction, mission."""

    def __init__(self, env: gymnasium.Env, options: MiniGridOptions) -> None:
        super().__init__(env)
        cells = math.prod(_image_space(env).shape[:2])
        length = OBJECTS + COLORS + STATES
        # Start of the one-hot code of each of the image's numbers.
        self._first = np.add.outer(np.arange(cells) * length, (0, OBJECTS, OBJECTS + COLORS)).reshape(-1)
        self._compass = cells * length if options.direction else None
        self._words = cells * length + DIRECTIONS * options.direction
        self._encode = minigrid_missions.encoder(options.mission)
        self._size = self._words + len(self._encode(""))
        self.observation_space = gymnasium.spaces.Box(0, 1, (self._size,), np.uint8)

    @override
    def observation(self, observation: Any) -> np.ndarray:
        vector = np.zeros(self._size, np.uint8)
        vector[self._first + observation["image"].reshape(-1)] = 1
        if self._compass is not None:
            vector[self._compass + observation["direction"]] = 1
        vector[self._words :] = self._encode(observation["mission"])
        return vector


class _ImageView(gymnasium.ObservationWrapper):
    """A wrapper that observes the cells as an image, and the direction and the mission."""

    def __init__(self, env: gymnasium.Env, options: MiniGridOptions) -> None:
        super().__init__(env)
        self._encode = minigrid_missions.encoder(options.mission)
        self._direction, self._words = options.direction, len(self._encode(""))
        space: dict[str, gymnasium.Space] = {"image": _image_space(env)}
        if self._direction:
            space["direction"] = gymnasium.spaces.Discrete(DIRECTIONS)
        if self._words:
            space["mission"] = gymnasium.spaces.Box(0, 1, (self._words,), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(space)

    @override
    def observation(self, observation: Any) -> dict[str, Any]:
        seen = {"image": observation["image"] * SPREAD}
        if self._direction:
            seen["direction"] = observation["direction"]
        if self._words:
            seen["mission"] = self._encode(observation["mission"])
        return seen


def _image_space(env: gymnasium.Env) -> gymnasium.spaces.Box:
    space: Any = env.observation_space
    return gymnasium.spaces.Box(0, 255, space["image"].shape, np.uint8)
