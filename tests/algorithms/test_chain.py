"""SPEC O18, end to end: terminated episodes have no future, truncated ones do."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from learning_cases import first_q
from probes import run
from vector_envs import Whole

from duetto.algorithms import DDPG, TD3

# Linear in the one-hot state: a table. With τ = 1 the targets are those of the last update, as in value iteration.
TABLE = {
    "hidden": (),
    "tau": 1.0,
    "discount": 0.9,
    "batch_size": 32,
    "random_steps": 1000,
    "learning_starts": 20,
    "critic_learning_rate": 0.3,
    "learning_rate_decay": "linear",
}


class Chain(gymnasium.Env):
    """Three steps round a ring of three states, each pays 1. Then the task ends, or only the episode is cut."""

    def __init__(self, truncates: bool) -> None:
        self.observation_space, self.action_space = Discrete(3), Box(-1.0, 1.0, (1,), np.float32)
        self.truncates = truncates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def step(self, action):
        self.state = (self.state + 1) % 3
        over = self.state == 0
        return self.state, 1.0, over and not self.truncates, over and self.truncates, {}


# Terminated: 1 + .9·1.9, 1 + .9·1, 1. Truncated, and endless otherwise: 1 / (1 - .9).
@pytest.mark.parametrize(("truncates", "values"), [(False, [2.71, 1.9, 1.0]), (True, [10.0, 10.0, 10.0])])
@pytest.mark.parametrize(
    ("kind", "mode"), [(TD3, AutoresetMode.NEXT_STEP), (TD3, AutoresetMode.SAME_STEP), (DDPG, AutoresetMode.SAME_STEP)]
)
def test_o18_value_of_a_chain(backend, kind, mode, truncates, values, tmp_path):
    vector = Whole([partial(Chain, truncates)] * 2, autoreset_mode=mode)
    learner = run(kind(**TABLE), vector, backend, tmp_path, 1000).learner
    found = first_q(learner, np.eye(3), np.zeros((3, 1)))
    np.testing.assert_allclose(found, values, rtol=0.03)
