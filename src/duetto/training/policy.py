"""The policy as evaluations, videos and agents use it: on raw observations, not for learning."""

from __future__ import annotations

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import obs_tree
from duetto.functional.rng import generator
from duetto.learners import Policy
from duetto.networks import masks
from duetto.networks.spaces import Space
from duetto.training.normalizer import Normalizer
from duetto.training.recurrent_state import Recurrence


class EvaluationPolicy:
    """A callable from observations (N, ...) of a `VecEnv` to actions (N, ...): in [-1, 1], or integers.

    If the algorithm samples in evaluations, every new Policy starts with the same random numbers.
    """

    def __init__(
        self, learner: Policy, normalizer: Normalizer, action: Space, seed: int, at: tuple[int, int] = (0, 1)
    ) -> None:
        """`at` is (step, total steps), for the schedules of exploration of a policy that explores."""
        self._learner, self._normalizer, self._action, self._at = learner, normalizer, action, at
        self._random = generator(seed, "evaluation")
        self.explores = False  # as in training
        self.greedy = False  # the best guess, even where evaluations sample
        self._noise: np.ndarray | None = None

        self._recurrence: Recurrence | None = None

    def __call__(self, obs: Tree, starts: np.ndarray | None = None) -> np.ndarray:
        """Choose actions. `starts` (N,) is True at episode starts; by default only at the first call."""
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
        action, carry = self._learner.remember("act", window, noise)
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
        """Start an episode: without memories, and with other random numbers than the last one had."""
        self._noise = self._recurrence = None

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Take the rewards (K,) of its last actions in the environments `env` (K,), which recurrent networks see."""
        if self._recurrence is not None:
            self._recurrence.rewarded(reward, env)
