"""Environments with info["action_mask"] that raise an error for forbidden actions."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete


class Turnstile(gymnasium.Env):
    """Episodes of 3 to 6 steps at the places 0 to 3; the place decides which two of four actions are allowed.

    Episodes of an even length are truncated, the others terminate. A forbidden action raises an error. After a
    termination the mask forbids all actions, as in PettingZoo.
    """

    observation_space = Box(0, 3, (1,), np.float32)
    action_space: Any = Discrete(4)

    def mask(self) -> np.ndarray:
        return np.isin(np.arange(4), [self.at, (self.at + 1) % 4])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.length = int(self.np_random.integers(3, 7))
        self.at = int(self.np_random.integers(4))
        return self.see()

    def see(self) -> Any:
        return np.array([self.at], np.float32), {"action_mask": self.mask().astype(np.int8)}

    def check(self, action: Any) -> None:
        if not self.mask()[action]:
            raise ValueError(f"{action} is forbidden at {self.at}")

    def step(self, action: Any) -> Any:
        self.check(action)
        self.time += 1
        self.at = int(np.sum(action) + self.time) % 4
        over = self.time == self.length
        obs, info = self.see()
        if over and self.length % 2:
            info = {name: np.zeros_like(mask) for name, mask in info.items()}
        return obs, float(self.at == 2), over and bool(self.length % 2), over and not self.length % 2, info


class Turnstiles(Turnstile):
    """Two choices, of 2 and 3 actions. Odd places forbid a first action of 1; the second must not equal the place."""

    action_space = MultiDiscrete([2, 3])

    def mask(self) -> np.ndarray:
        return np.concatenate([[True, self.at % 2 == 0], np.arange(3) != self.at])

    def check(self, action: Any) -> None:
        if not (self.mask()[action[0]] and self.mask()[2 + action[1]]):
            raise ValueError(f"{action} is forbidden at {self.at}")


class Shown(Turnstile):
    """A Turnstile with rendered images, brighter at higher places. With `camera`, it also observes images."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "human"], "render_fps": 10}

    def __init__(self, camera: bool = False, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode, self.camera = render_mode, camera
        if camera:
            self.observation_space = Box(0, 255, (1, 36, 36), np.uint8)

    def see(self) -> Any:
        obs, info = super().see()
        return np.full((1, 36, 36), 60 * self.at, np.uint8) if self.camera else obs, info

    def render(self) -> Any:
        return np.full((36, 36, 3), 60 * self.at, np.uint8)
