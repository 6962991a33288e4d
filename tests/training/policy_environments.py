"""Small environments with every kind of action and observation space; they refuse invalid actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple


class Wander(gymnasium.Env):
    """A point that actions push. Episodes have 5 to 9 steps; those of an even length are truncated."""

    observation_space: Space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Space = Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.length = int(self.np_random.integers(5, 10))
        self.at = self.np_random.normal(size=2)
        return self.see(), {}

    def see(self) -> Any:
        return self.at.astype(np.float32)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.time += 1
        self.at = 0.9 * self.at + 0.1 * np.resize(np.asarray(action, np.float64), 2)
        over, cut = self.time == self.length, self.length % 2 == 0
        return self.see(), float(-abs(self.at).sum()), over and not cut, over and cut, {}


class Shifted(Wander):
    """Discrete actions that start at -1."""

    action_space = Discrete(3, start=-1)


class Several(Wander):
    action_space = MultiDiscrete([2, 3])


class Switches(Wander):
    action_space = MultiBinary(3)


class Numbers(Wander):
    """Continuous actions with asymmetric bounds."""

    action_space = Box(np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32))


class Free(Wander):
    """Continuous actions: one bounded, one unbounded, one with a lower bound."""

    action_space = Box(np.array([-1, -np.inf, 5], np.float32), np.array([3, np.inf, np.inf], np.float32))


class Cell(Wander):
    """Observes a single integer."""

    observation_space = Discrete(7)

    def see(self) -> Any:
        return np.int64(np.clip(np.round(self.at[0]) + 3, 0, 6))


def _picture(at: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an image whose halves show the two numbers as brightness."""
    ramp = np.arange(np.prod(shape)).reshape(shape)
    brightness = np.where(ramp < ramp.size / 2, at[0], at[1])
    return np.clip(100 + 100 * brightness + ramp % 50, 0, 255).astype(np.uint8)


class Seen(Wander):
    observation_space = Box(0, 255, (7, 7, 3), np.uint8)

    def see(self) -> Any:
        return _picture(self.at, (7, 7, 3))


class Pieces(Numbers):
    """Nested observations: an image, an integer and numbers."""

    observation_space = Dict(
        {
            "camera": Box(0, 255, (3, 7, 7), np.uint8),
            "inner": Tuple((Discrete(10), Box(-np.inf, np.inf, (2,), np.float64))),
        }
    )

    def see(self) -> Any:
        return {"camera": _picture(self.at, (3, 7, 7)), "inner": (np.int64(self.time), self.at.copy())}


def collect_observations(environment: gymnasium.Env, count: int = 12) -> list[Any]:
    """Return observations of a few episodes with random actions."""
    environment.action_space.seed(0)
    seen = [environment.reset(seed=0)[0]]
    while len(seen) < count:
        obs, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        seen.append(environment.reset()[0] if terminated or truncated else obs)
    return seen
