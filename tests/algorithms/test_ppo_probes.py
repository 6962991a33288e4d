"""PPO on both backends learns the probes' values and best actions: see tests/probes.py."""

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
NEAR = 0.1


@pytest.fixture
def learn(backend, tmp_path):
    return lambda probe, **options: run(PPO(**OPTIONS | options), probe, backend, tmp_path, STEPS, num_envs=4).learner


def column(*values):
    return np.array(values, np.float32)[:, None]


def likely(learner, obs, action):
    """The probability of that choice of three."""
    sampled = [learner.act(column(obs), noise(Discrete(3), 1, seed)) for seed in range(200)]
    return np.mean([sample == action for sample in sampled])


class Far(Probe):
    """Actions without bounds, of which 2 is the best: 1 - (a - 2)² / 4."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def pay(self, action):
        return 1.0 - (action - 2.0) ** 2 / 4


def test_a_number_without_bounds(learn):
    """No bound at 1 holds the best action back."""
    learner = learn(Far)
    np.testing.assert_allclose(learner.act(column(0)), [[2.0]], atol=2 * NEAR)


def test_a_reward_of_the_choice_and_the_observation(learn):
    learner = learn(Pick)
    assert learner.act(column(-1, 1)).tolist() == [0, 2]
    assert likely(learner, -1, 0) > 0.9
    assert likely(learner, 1, 2) > 0.9
    np.testing.assert_allclose(learner.value(column(-1, 1)), [1, 1], atol=NEAR)


def test_a_delayed_reward_of_the_choice(learn):
    """γ · 1 at the start. λ = 0: the value function alone carries it back."""
    learner = learn(Foresee, gae_lambda=0.0)
    assert likely(learner, 0, 1) > 0.9
    np.testing.assert_allclose(learner.value(column(0, 2)), [0.5, 1.0], atol=NEAR)


def test_a_reward_of_several_choices(learn):
    learner = learn(Combine)
    assert learner.act(column(0)).tolist() == [[1, 0]]
    np.testing.assert_allclose(learner.value(column(0)), [1.0], atol=NEAR)


def test_with_the_other_options_of_the_loss(learn):
    """Values and their clipping, a shared torso, the learning rate by the divergence, early stops: it still learns."""
    options = {"clip_value": True, "shared_torso": True, "learning_rate_kl": 0.01, "target_kl": 0.05}
    learner = learn(Pick, **options, recompute_advantages=True, clip_range=0.5)
    assert learner.act(column(-1, 1)).tolist() == [0, 2]
    np.testing.assert_allclose(learner.value(column(-1, 1)), [1, 1], atol=2 * NEAR)


# ---------------------------------------------------------------------------------------------------- SPEC O18
# Linear in the one-hot state: a table. λ = 1 would not need the value function where episodes terminate.
TABLE = OPTIONS | {"hidden": (), "discount": 0.9, "gae_lambda": 0.5, "learning_rate": 0.1}


class ChosenChain(Chain):
    """With choices, of which none matters."""

    def __init__(self, truncates):
        super().__init__(truncates)
        self.action_space = gymnasium.spaces.Discrete(2)


# Terminated: 1 + .9·1.9, 1 + .9·1, 1. Truncated, and endless otherwise: 1 / (1 - .9).
@pytest.mark.parametrize(("truncates", "values"), [(False, [2.71, 1.9, 1.0]), (True, [10.0, 10.0, 10.0])])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_o18_value_of_a_chain(backend, mode, truncates, values, tmp_path):
    vector = Whole([partial(ChosenChain, truncates)] * 4, autoreset_mode=mode)
    learner = run(PPO(**TABLE), vector, backend, tmp_path, 6000).learner
    np.testing.assert_allclose(learner.value(np.arange(3)), values, rtol=0.03)
