"""The policy that evaluations, videos and agents use, and the hidden states between its steps."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import obs_tree
from duetto.functional import state_schema
from duetto.functional.pytree import tree_map
from duetto.functional.rng import generator
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.learners import Policy
from duetto.networks import masks
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.training.normalizer import Normalizer


class EvaluationPolicy:
    """A function from a `VecEnv`'s raw observations (N, ...) to actions (N, ...), in [-1, 1] or integers.

    If the algorithm samples actions in evaluations, every new `EvaluationPolicy` draws the same random numbers.

    Attributes:
        explores: Whether to explore as in training.
        greedy: Whether to choose the best action even if the algorithm samples in evaluations.
    """

    def __init__(
        self, learner: Policy, normalizer: Normalizer, action: Space, seed: int, at: tuple[int, int] = (0, 1)
    ) -> None:
        """Create a policy. `at` is (step, total steps), for schedules of exploration."""
        self._learner, self._normalizer, self._action, self._at = learner, normalizer, action, at
        self._random = generator(seed, "evaluation")
        self.explores = False
        self.greedy = False
        self._noise: np.ndarray | None = None
        self._recurrence: Recurrence | None = None

    def __call__(self, obs: Tree, starts: np.ndarray | None = None) -> np.ndarray:
        """Choose actions. `starts` (N,) is True where an episode starts.

        None: all episodes start at the first call, and none later.
        """
        _, part = next(obs_tree.parts(obs))
        mask = masks.mask_of(obs)
        noise = self._explored(len(part), mask, starts) if self.explores else self._evaluated(len(part), mask)
        if not self._learner.recurrent:
            return self._learner.act(self._normalizer(obs), noise)
        is_first = self._recurrence is None
        if self._recurrence is None:
            self._recurrence = Recurrence(self._learner, self._action, len(part))
        window = self._recurrence.window(
            self._normalizer(obs), np.full(len(part), is_first) if starts is None else starts
        )
        action, carry = self._learner.call_with_carry("act", window, noise)
        self._recurrence.step(carry, action)
        return action

    def _evaluated(self, num_envs: int, mask: np.ndarray | None) -> np.ndarray | None:
        if self.greedy:
            return None
        return self._learner.algorithm.explorer().for_evaluation(self._random, num_envs, self._action, mask)

    def _explored(self, num_envs: int, mask: np.ndarray | None, starts: np.ndarray | None) -> np.ndarray:
        explorer = self._learner.algorithm.explorer()
        if self._noise is None or len(self._noise) != num_envs:
            self._noise = np.zeros((num_envs, explorer.state_size(self._action)), np.float32)
        elif starts is not None:
            self._noise = explorer.after_episode(self._noise, starts)
        noise, self._noise = explorer.draw(self._random, self._noise, *self._at, self._action, mask)
        return noise

    def forget(self) -> None:
        """Reset hidden states and exploration noise for a new episode, but not the random generator."""
        self._noise = self._recurrence = None

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Keep the rewards (K,) of the environments `env` (K,), for the next input of recurrent networks."""
        if self._recurrence is not None:
            self._recurrence.rewarded(reward, env)


class Recurrence:
    """The inputs of recurrent networks besides observations: hidden states (`carry`), previous actions and rewards.

    When one of the N environments starts an episode, its row of these inputs is reset to zeros, and to -1 for discrete
    previous actions.
    """

    STATE: ClassVar[Any] = DictOf(ARRAY)

    def __init__(self, learner: Policy, action: Space, num_envs: int) -> None:
        self._learner = learner
        self._first = {name: np.zeros((num_envs, *shape), np.float32) for name, shape in learner.carry_shapes().items()}
        self._first |= {"action": no_action(action, num_envs), "reward": np.zeros(num_envs, np.float32)}
        self._now: dict[str, np.ndarray] = dict(self._first)

    def window(self, obs: Tree, starts: np.ndarray) -> SequenceInput:
        """Return the networks' input for one step with `obs` (N, ...). First reset rows where `starts` (N,) is True."""
        if starts.any():
            for name, part in self._now.items():
                reset = starts.reshape(-1, *(1,) * (part.ndim - 1))
                self._now[name] = np.where(reset, self._first[name], part)
        carry = dict(self._now)
        return one_step(obs, carry.pop("action"), carry.pop("reward"), starts.copy(), carry)

    def step(self, carry: dict[str, np.ndarray], action: np.ndarray) -> None:
        """Store the networks' new carry and the actions (N, ...)."""
        self._now |= carry | {"action": action.astype(self._first["action"].dtype)}

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Store the rewards (K,) of the environments `env` (K,)."""
        self._now["reward"] = self._now["reward"].copy()  # because earlier windows share the array
        self._now["reward"][env] = self._learner.algorithm.seen_reward(reward)

    def state_dict(self) -> dict[str, Any]:
        """Return the carry, the previous actions and the previous rewards."""
        return {name: part.copy() for name, part in self._now.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Raises CheckpointError if the shapes do not fit."""
        state_schema.check(state, self._first, "collector/recurrence")
        self._now = {name: np.array(state[name]) for name in self._first}


def one_step(obs: Tree, action: Any, reward: Any, starts: Any, carry: dict[str, Any]) -> SequenceInput:
    """Return sequences of one step, (N, 1, ...), from arrays (N, ...) of any framework."""
    obs = tree_map(lambda part: part[:, None], obs)
    return SequenceInput(obs, action[:, None], reward[:, None], starts[:, None], carry, starts, None)


def no_action(action: Space, num_envs: int) -> np.ndarray:
    """Return previous actions for the start of an episode: zeros for a Box; else -1, which one-hot encodes to zeros."""
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
