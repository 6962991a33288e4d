"""Continuous-action algorithms learn the values and best actions of tests/probes.py, on both backends."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from learning_cases import first_q
from probes import Wait, run
from vector_envs import Whole

from duetto.algorithms import DDPG, SAC, TD3

OPTIONS = {
    "discount": 0.5,
    "hidden": (32, 32),
    "batch_size": 64,
    "random_steps": 300,
    "learning_starts": 100,
    "exploration_noise": 0.2,
    "actor_learning_rate": 3e-3,
    "critic_learning_rate": 1e-2,
    "learning_rate_decay": "linear",
    "tau": 0.05,
    # So small that the entropy term is negligible: 1e-4 · log 2 for a uniform policy.
    "learn_temperature": False,
    "temperature": 1e-4,
}
TOLERANCE = 0.1


def column(*values):
    return np.array(values, np.float32)[:, None]


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC])
def test_algorithm_learns_delayed_reward(backend, kind, tmp_path):
    """Q is γ (1 - (a + .5)²) at the start and 1 - (a + .5)² one step later; only the first action a counts."""
    algorithm = kind(**{name: value for name, value in OPTIONS.items() if name in kind.options()})
    learner = run(algorithm, Wait, backend, tmp_path, 700).learner
    q = first_q(learner, column(0, 0, 0), column(-0.5, 0, 0.5))
    np.testing.assert_allclose(q, [0.5, 0.375, 0], atol=TOLERANCE)
    np.testing.assert_allclose(first_q(learner, column(0.5, 1), column(0, 0)), [1, 0.75], atol=TOLERANCE)
    np.testing.assert_allclose(learner.act(column(0)), [[-0.5]], atol=2 * TOLERANCE)


# ---------------------------------------------------------------------------------------------------- SPEC O18
# A linear network of one-hot states is a table. With τ = 1 the update is value iteration.
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
    """A ring of three states with reward 1 per step. After three steps the episode terminates or is truncated."""

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


# Terminated: 1 + .9·1.9, 1 + .9·1, 1. Truncated: the infinite sum 1 / (1 - .9).
@pytest.mark.parametrize(("truncates", "values"), [(False, [2.71, 1.9, 1.0]), (True, [10.0, 10.0, 10.0])])
@pytest.mark.parametrize(
    ("kind", "mode"), [(TD3, AutoresetMode.NEXT_STEP), (TD3, AutoresetMode.SAME_STEP), (DDPG, AutoresetMode.SAME_STEP)]
)
def test_chain_values_with_terminated_and_truncated_episodes_o18(backend, kind, mode, truncates, values, tmp_path):
    vector = Whole([partial(Chain, truncates)] * 2, autoreset_mode=mode)
    learner = run(kind(**TABLE), vector, backend, tmp_path, 1000).learner
    found = first_q(learner, np.eye(3), np.zeros((3, 1)))
    np.testing.assert_allclose(found, values, rtol=0.03)
