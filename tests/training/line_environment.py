"""A small environment, a point on a line, with variants of its spaces and with faults."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Line(gymnasium.Env):
    """A point that the first action moves; episodes have `length` steps. The action bounds are not symmetric.

    `bad` selects the fault in its step `when`, counted over episodes: "obs" or "reward" for a non-finite value,
    "shape" for an observation of a wrong shape.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it

    def __init__(
        self, length: int = 10, bad: str = "", when: int = 60, size: int = 2, render_mode: str | None = None
    ) -> None:
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = Box(np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32))
        self.length, self.bad, self.when, self.size, self.render_mode = length, bad, when, size, render_mode
        self.position, self.time, self.life = 0.0, 0, 0
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position, self.time = float(self.np_random.uniform(-1, 1)), 0
        return self.see(), {}

    def see(self) -> Any:
        return np.full(self.size, self.position, np.float32)

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        self.time, self.life = self.time + 1, self.life + 1
        self.position += 0.1 * float(action[0])
        obs, reward = self.see(), -abs(self.position)
        if self.life == self.when and self.bad == "obs":
            obs = np.full(self.size, np.nan, np.float32)
        if self.life == self.when and self.bad == "shape":
            obs = np.zeros(5, np.float32)
        if self.life == self.when and self.bad == "reward":
            reward = np.inf
        return obs, reward, False, self.time == self.length, {}

    def close(self) -> None:
        self.closed = True

    def render(self) -> np.ndarray:
        return np.full((5, 7, 3), self.time, np.uint8)  # odd sides, which H.264 does not support


def zero_actions(obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 2), np.float32)


class Components(Line):
    """A Line with nested Dict observations."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        parts = {"where": Box(-np.inf, np.inf, (1,), np.float64), "when": Discrete(11), "still": Discrete(3)}
        self.observation_space = Dict({"inner": Dict(parts), "twice": Box(-9, 9, (2, 2), np.float32)})

    def see(self) -> Any:
        inner = {"where": np.array([self.position]), "when": np.int64(self.time), "still": np.int64(1)}
        return {"inner": inner, "twice": np.full((2, 2), 2 * self.position, np.float32)}


class Opaque(Line):
    """A Line whose state cannot be restored: it starts new episodes (`resets_only`)."""

    metadata: ClassVar[dict[str, Any]] = {"resets_only": True}


class Unbounded(Line):
    """A Line with unbounded actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (2,), np.float32)


class Choosing(Line):
    """A Line with discrete actions."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(4)


class Looking(Line):
    """A Line whose observation space is an image."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, (3, 8, 8), np.uint8)


if "Line-v0" not in gymnasium.registry:
    gymnasium.register("Line-v0", entry_point=Line)


class Short(Line):
    """A Line with episodes of 5 steps."""

    def __init__(self) -> None:
        super().__init__(length=5)


class Slow(Line):
    """A Line with slow steps, so that tests can kill a process that trains on it."""

    def __init__(self) -> None:
        super().__init__(length=5)

    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)
