"""The carry of recurrent networks from step to step while they act: one state for each environment."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from duetto.algorithms.base import Tree
from duetto.functional import state_schema
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.learners import Policy
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


class Recurrence:
    """The carry, the previous action and reward of N environments; at an episode's start zeros and "no action"."""

    STATE: ClassVar[dict[str, Any]] = {"carry": DictOf(ARRAY), "action": ARRAY, "reward": ARRAY}

    def __init__(self, learner: Policy, action: Space, num_envs: int) -> None:
        self._learner = learner
        self.carry: dict[str, np.ndarray] = {
            name: np.zeros((num_envs, *shape), np.float32) for name, shape in learner.carry_shapes().items()
        }
        self._none = no_action(action, num_envs)
        self._previous_action, self._previous_reward = self._none.copy(), np.zeros(num_envs, np.float32)

    def window(self, obs: Tree, starts: np.ndarray) -> SequenceInput:
        """Wrap observations (N, ...) as windows of one step; reset the state where `starts` (N,) is True."""
        if starts.any():
            self._forget(starts)
        return SequenceInput(
            obs={name: part[:, None] for name, part in obs.items()} if isinstance(obs, dict) else obs[:, None],
            previous_action=self._previous_action[:, None],
            previous_reward=self._previous_reward[:, None],
            starts=starts[:, None].copy(),
            carry=self.carry,
            is_first=starts.copy(),
            query_steps=None,
        )

    def step(self, carry: dict[str, np.ndarray], action: np.ndarray) -> None:
        """Take over the networks' new carry and the action taken."""
        self.carry = carry
        self._previous_action = action.astype(self._none.dtype)

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Take over the rewards (K,) of the environments `env` (K,)."""
        self._previous_reward = self._previous_reward.copy()  # windows handed out hold the one before
        self._previous_reward[env] = self._learner.algorithm.seen_reward(reward)

    def state_dict(self) -> dict[str, Any]:
        """The carry, previous actions and rewards."""
        return {
            "carry": {name: part.copy() for name, part in self.carry.items()},
            "action": self._previous_action.copy(),
            "reward": self._previous_reward.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`. Raises CheckpointError if its shapes are not those of the networks and environments."""
        own = {"carry": self.carry, "action": self._previous_action, "reward": self._previous_reward}
        state_schema.check(state, own, "collector/recurrence")
        self.carry = {name: np.array(state["carry"][name]) for name in self.carry}
        self._previous_action, self._previous_reward = np.array(state["action"]), np.array(state["reward"])

    def _forget(self, starts: np.ndarray) -> None:
        self.carry = {name: np.where(_like(starts, part), np.float32(0), part) for name, part in self.carry.items()}
        self._previous_action = np.where(_like(starts, self._none), self._none, self._previous_action)
        self._previous_reward = np.where(starts, np.float32(0), self._previous_reward)


def no_action(action: Space, num_envs: int) -> np.ndarray:
    """The previous action at an episode's start: zeros for a Box; -1, whose one-hot code is zeros, for choices."""
    match action:
        case Box():
            return np.zeros((num_envs, action.size), np.float32)
        case Discrete():
            return np.full(num_envs, -1, np.int64)
        case MultiDiscrete():
            return np.full((num_envs, len(action.nvec)), -1, np.int64)
        case Dict():
            parts = [no_action(part, num_envs).reshape(num_envs, -1) for _, part in action.parts]
            return np.concatenate(parts, axis=1, dtype=np.float32)


def _like(flags: np.ndarray, array: np.ndarray) -> np.ndarray:
    return flags.reshape(-1, *(1,) * (array.ndim - 1))
