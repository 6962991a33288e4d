"""An environment with any spaces and random steps, for checks that do not depend on the task."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from duetto.environments.spaces import to_gymnasium
from duetto.functional.distributions import split_bounds
from duetto.networks import masks
from duetto.networks.spaces import Space


class RandomEnv(gymnasium.Env):
    """An environment with random observations and rewards; half of the episodes are truncated.

    Episodes have `length` steps on average. The reward includes the sum of the action, so it depends on the policy.
    The environment has no state except its random generator and the action mask, so every run resumes exactly.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    def __init__(self, observation: Space, action: Space, length: int = 8, masked: bool = False) -> None:
        """Create the environment. If `masked`, only a random subset of actions is allowed; others raise ValueError."""
        self.observation_space, self.action_space = to_gymnasium(observation), to_gymnasium(action)
        self._length = length
        self._choices = masks.choice_sizes(action) if masked else ()
        self._mask = np.ones(sum(self._choices), bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))  # so the state is only `np_random`
        return self.observation_space.sample(), self._allow()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return a random outcome."""
        for i, (low, _) in enumerate(split_bounds(self._choices)):
            if not self._mask[low + np.ravel(action)[i]]:
                raise ValueError(f"the action {action} is forbidden by {self._mask}")
        reward = float(self.np_random.normal() + _total(action))
        ends = self.np_random.random() < 1 / self._length
        terminated = bool(ends and self.np_random.random() < 0.5)
        return self.observation_space.sample(), reward, terminated, bool(ends and not terminated), self._allow()

    def _allow(self) -> dict[str, Any]:
        if not self._choices:
            return {}
        self._mask = self.np_random.random(len(self._mask)) < 0.5
        for low, high in split_bounds(self._choices):
            self._mask[self.np_random.integers(low, high)] = True
        return {"action_mask": self._mask.copy()}


def _total(action: Any) -> float:
    return float(sum(map(_total, action.values())) if isinstance(action, dict) else np.sum(action))
