"""The policy as evaluations, videos and agents use it: on raw observations, not for learning."""

from __future__ import annotations

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import trees
from duetto.functional.randomness import generator
from duetto.learners import Learner
from duetto.networks.spaces import Space
from duetto.training.normalizer import Normalizer


class Policy:
    """Calling it gives actions (N, ...) in [-1, 1] or integers for observations (N, ...) as a `Stepper` gives them.

    Where the algorithm samples in evaluations, a new Policy begins with the same random numbers.
    """

    def __init__(self, learner: Learner, normalizer: Normalizer, action: Space, seed: int) -> None:
        self._learner, self._normalizer, self._action = learner, normalizer, action
        self._random = generator(seed, "evaluation")

    def __call__(self, obs: Tree) -> np.ndarray:
        """See the class."""
        _, part = next(trees.parts(obs))
        noise = self._learner.algorithm.evaluation_noise(self._random, len(part), self._action)
        return self._learner.act(self._normalizer(obs), noise)
