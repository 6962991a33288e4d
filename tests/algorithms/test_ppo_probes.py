"""PPO learns the values and best actions of tests/probes.py, on both backends."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from policy_cases import noise
from probes import Combine, Foresee, Pick, Probe, run
from test_probes import Chain
from vector_envs import Whole

from duetto.algorithms import PPO
from duetto.networks.spaces import Discrete

OPTIONS = {
    "discount": 0.5,
    "hidden": (32,),
    "rollout_steps": 32,
    "minibatches": 4,
    "epochs": 10,
    "learning_rate": 1e-2,
    "learning_rate_decay": "linear",
    "initial_log_std": -0.5,
}
STEPS = 2560  # 20 rollouts of 4 environments
TOLERANCE = 0.1


@pytest.fixture
def learn(backend, tmp_path):
    return lambda probe, **options: run(PPO(**OPTIONS | options), probe, backend, tmp_path, STEPS, num_envs=4).learner


def column(*values):
    return np.array(values, np.float32)[:, None]


def probability_of(learner, obs, action):
    """Estimate the probability of `action`, one of three."""
    sampled = [learner.act(column(obs), noise(Discrete(3), 1, seed)) for seed in range(200)]
    return np.mean([sample == action for sample in sampled])


class UnboundedProbe(Probe):
    """Unbounded actions with reward 1 - (a - 2)² / 4, so the best action is 2."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def pay(self, action):
        return 1.0 - (action - 2.0) ** 2 / 4


def test_ppo_learns_unbounded_action(learn):
    """Actions are not clipped to [-1, 1]."""
    learner = learn(UnboundedProbe)
    np.testing.assert_allclose(learner.act(column(0)), [[2.0]], atol=2 * TOLERANCE)


def test_ppo_learns_reward_of_observation_and_action(learn):
    learner = learn(Pick)
    assert learner.act(column(-1, 1)).tolist() == [0, 2]
    assert probability_of(learner, -1, 0) > 0.9
    assert probability_of(learner, 1, 2) > 0.9
    np.testing.assert_allclose(learner.value(column(-1, 1)), [1, 1], atol=TOLERANCE)


def test_ppo_learns_delayed_reward(learn):
    """The value at the start is γ · 1. With λ = 0 only the value function propagates the reward."""
    learner = learn(Foresee, gae_lambda=0.0)
    assert probability_of(learner, 0, 1) > 0.9
    np.testing.assert_allclose(learner.value(column(0, 2)), [0.5, 1.0], atol=TOLERANCE)


def test_ppo_learns_multi_discrete_action(learn):
    learner = learn(Combine)
    assert learner.act(column(0)).tolist() == [[1, 0]]
    np.testing.assert_allclose(learner.value(column(0)), [1.0], atol=TOLERANCE)


# ---------------------------------------------------------------------------------------------------- SPEC O18
# A linear network of one-hot states is a table. λ = 1 would not need the value function in terminated episodes.
TABLE = OPTIONS | {"hidden": (), "discount": 0.9, "gae_lambda": 0.5, "learning_rate": 0.1}


class DiscreteChain(Chain):
    """`Chain` with discrete actions, which have no effect."""

    def __init__(self, truncates):
        super().__init__(truncates)
        self.action_space = gymnasium.spaces.Discrete(2)


# Terminated: 1 + .9·1.9, 1 + .9·1, 1. Truncated: the infinite sum 1 / (1 - .9).
@pytest.mark.parametrize(("truncates", "values"), [(False, [2.71, 1.9, 1.0]), (True, [10.0, 10.0, 10.0])])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_chain_values_with_terminated_and_truncated_episodes_o18(backend, mode, truncates, values, tmp_path):
    vector = Whole([partial(DiscreteChain, truncates)] * 4, autoreset_mode=mode)
    learner = run(PPO(**TABLE), vector, backend, tmp_path, 6000).learner
    np.testing.assert_allclose(learner.value(np.arange(3)), values, rtol=0.03)
