"""A goal environment on a line, and variants that hindsight must refuse."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

NEAR = 0.3


class GoalLine(gymnasium.Env):
    """Reach a goal on a line within `length` steps. `compute_terminated` takes one pair of goals, not batches."""

    def __init__(self, length: int = 12, bonus: float = 0.0) -> None:
        one = Box(-10.0, 10.0, (1,), np.float32)
        self.observation_space: Any = Dict({"observation": one, "achieved_goal": one, "desired_goal": one})
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.length, self.bonus = length, bonus
        self.at = self.goal = 0.0
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at, self.goal = (float(x) for x in self.np_random.uniform(-5, 5, 2))
        self.time = 0
        return self.observe(), {}

    def step(self, action: np.ndarray) -> Any:
        self.time += 1
        self.at += float(action[0])
        seen = self.observe()
        goals = (seen["achieved_goal"], seen["desired_goal"], {})
        reward, over = self.compute_reward(*goals) + self.bonus, self.compute_terminated(*goals)
        return seen, float(reward), over, self.time == self.length, {}

    def observe(self) -> dict[str, np.ndarray]:
        parts = {"observation": self.at, "achieved_goal": self.at, "desired_goal": self.goal}
        return {name: np.full(1, part, np.float32) for name, part in parts.items()}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) >= NEAR).astype(np.float32)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved_goal - desired_goal) < NEAR)


class Mute(GoalLine):
    """A GoalLine without `compute_reward`."""

    compute_reward: Any = None

    def step(self, action: np.ndarray) -> Any:
        return self.observe(), -1.0, False, True, {}


class Informed(GoalLine):
    """A GoalLine whose `compute_reward` needs `info`."""

    def step(self, action: np.ndarray) -> Any:
        self.time += 1
        return self.observe(), -1.0, False, self.time == 5, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return info["reward"]


gymnasium.register("GoalLine-v0", entry_point=GoalLine)
