"""An environment of pure chance, with any spaces: for looking at what does not depend on the task."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from duetto.environments.spaces import to_gymnasium
from duetto.functional.distributions import cuts
from duetto.networks import masks
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


class Chance(gymnasium.Env):
    """Random observations and rewards; episodes end at random, about every `length` steps, half of them truncated.

    Actions count: their sum is added to the reward, so that two policies are told apart. All of its state is in its
    generator and in the mask of what it allows, so it is saved and restored exactly.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    def __init__(self, observation: Space, action: Space, length: int = 8, masked: bool = False) -> None:
        """`masked`: it says in its info which actions are allowed, at random, and raises ValueError at any other."""
        self.observation_space, self.action_space = to_gymnasium(observation), to_gymnasium(action)
        self._observation, self._length = observation, length
        self._choices = masks.choices(action) if masked else ()
        self._mask = np.ones(sum(self._choices), bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See Gymnasium."""
        super().reset(seed=seed)
        return self._draw(self._observation), self._allow()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See Gymnasium."""
        for i, (low, _) in enumerate(cuts(self._choices)):
            if not self._mask[low + np.ravel(action)[i]]:
                raise ValueError(f"the action {action} is forbidden by {self._mask}")
        reward = float(self.np_random.normal() + _total(action))
        ends = self.np_random.random() < 1 / self._length
        terminated = bool(ends and self.np_random.random() < 0.5)
        return self._draw(self._observation), reward, terminated, bool(ends and not terminated), self._allow()

    def state_dict(self) -> dict[str, Any]:
        """Return the mask; the generator is saved in any case."""
        return {"mask": self._mask.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the mask from `state_dict`."""
        self._mask = np.array(state["mask"])

    def _allow(self) -> dict[str, Any]:
        if not self._choices:
            return {}
        self._mask = self.np_random.random(len(self._mask)) < 0.5
        for low, high in cuts(self._choices):
            self._mask[self.np_random.integers(low, high)] = True
        return {"action_mask": self._mask.copy()}

    def _draw(self, space: Space) -> Any:
        match space:
            case Dict():
                return {name: self._draw(part) for name, part in space.parts}
            case Discrete():
                return int(self.np_random.integers(space.n)) + space.start
            case MultiDiscrete():
                return self.np_random.integers(space.nvec)
            case Box() if space.dtype == "uint8":
                return self.np_random.integers(256, size=space.shape, dtype=np.uint8)
            case Box():
                return self.np_random.normal(size=space.shape).astype(space.dtype)


def _total(action: Any) -> float:
    return float(sum(map(_total, action.values())) if isinstance(action, dict) else np.sum(action))
