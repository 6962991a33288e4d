"""A task with goals: push a point to a goal in the plane and stop there. The reward is 0 at the goal, -1 elsewhere.

    python examples/point_reach.py --hindsight future        15,000 steps of TD3, a minute or two
    duetto check examples/point_reach.py:make

A force moves the point, so it has to brake. The goal is at least 0.5 away, and random actions reach it in one of a
thousand steps. As in Gymnasium-Robotics' Fetch tasks, the observation contains the goals, and only the time limit ends
an episode.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TimeLimit

STEPS = 50  # of an episode
NEAR = 0.05  # distance that counts as reaching the goal
FORCE, DRAG = 0.02, 0.1


class PointReach(gymnasium.Env):
    """The task without its time limit. The state is a position and a velocity in the plane; goals are positions."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, reward: str = "sparse") -> None:
        goal = Box(-1.0, 1.0, (2,), np.float32)
        state = Box(-1.0, 1.0, (4,), np.float32)
        self.observation_space = Dict({"observation": state, "achieved_goal": goal, "desired_goal": goal})
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.reward = reward
        self.at = self.speed = self.goal = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start at rest at a random position, with a goal that is at least 0.5 away."""
        super().reset(seed=seed)
        self.at, self.speed = self._anywhere(), np.zeros(2, np.float32)
        self.goal = self._anywhere()
        while np.linalg.norm(self.goal - self.at) < 0.5:
            self.goal = self._anywhere()
        return self._observe(), {}

    def step(self, action: np.ndarray) -> Any:
        """Apply the force and drag; walls stop the point."""
        speed = (1 - DRAG) * self.speed + FORCE * np.clip(action, -1, 1)
        at = np.clip(self.at + speed, -1, 1).astype(np.float32)
        self.speed, self.at = (at - self.at).astype(np.float32), at
        info = {"is_success": bool(np.linalg.norm(self.at - self.goal) < NEAR)}
        return self._observe(), float(self.compute_reward(self.at, self.goal, info)), False, False, info

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> Any:
        """Return 0 at the goal and -1 elsewhere; if dense, minus the distance. Goals are (2,), or a batch (B, 2)."""
        away = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return -away if self.reward == "dense" else -(away >= NEAR).astype(np.float32)

    def _anywhere(self) -> np.ndarray:
        return self.np_random.uniform(-0.9, 0.9, 2).astype(np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        state = np.concatenate([self.at, self.speed])
        return {"observation": state, "achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}


def make(**options: Any) -> gymnasium.Env:
    """Return the task with its time limit, which truncates episodes."""
    return TimeLimit(PointReach(**options), STEPS)


def main() -> None:
    """Train, and print how often the agent reaches the goal."""
    import duetto

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="td3")
    parser.add_argument("--hindsight", default="future")
    parser.add_argument("--steps", type=int, default=15_000)
    given = parser.parse_args()
    options = {"hidden": (64, 64), "random_steps": 1000, "learning_starts": 1000, "discount": 0.98}
    run = duetto.train(given.algorithm, make, steps=given.steps, hindsight=given.hindsight, **options)
    print(f"at the goal in the last step of {success(duetto.load(run.path)):.0%} of 100 episodes")


def success(agent: Any, episodes: int = 100, seed: int = 1000) -> float:
    """Return the share of episodes that end at the goal."""
    env, reached = make(), 0
    for episode in range(episodes):
        obs, over = env.reset(seed=seed + episode)[0], False
        while not over:
            obs, _, _, over, info = env.step(agent.act(obs))
        reached += info["is_success"]
    return reached / episodes


if __name__ == "__main__":
    main()
