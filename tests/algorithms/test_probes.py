"""All algorithms for continuous actions on both backends learn the probes' values and actions: see tests/probes.py."""

import numpy as np
import pytest
from learning_cases import first_q
from probes import Aim, Constant, Count, Look, Wait, run

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
}
# So little that entropy hardly counts: 1e-4 · log 2 for a uniform policy.
ENTROPY = {"learn_temperature": False, "temperature": 1e-4}
STEPS = 700
NEAR = 0.1


@pytest.fixture
def learn(backend, tmp_path):
    def learned(kind, probe):
        return run(kind(**options(kind)), probe, backend, tmp_path, STEPS).learner

    return learned


def options(kind):
    """Those of them that it has."""
    return {name: value for name, value in (OPTIONS | ENTROPY).items() if name in kind.options()}


def column(*values):
    return np.array(values, np.float32)[:, None]


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_a_constant_reward(learn, kind):
    q = first_q(learn(kind, Constant), column(0, 0, 0), column(-0.9, 0, 0.9))
    np.testing.assert_allclose(q, 1.0, atol=NEAR)


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC])
def test_a_reward_of_the_action(learn, kind):
    """1 - (a - .5)² at -.5, 0, .5 and 1."""
    learner = learn(kind, Aim)
    q = first_q(learner, column(0, 0, 0, 0), column(-0.5, 0, 0.5, 1))
    np.testing.assert_allclose(q, [0, 0.75, 1, 0.75], atol=NEAR)
    np.testing.assert_allclose(learner.act(column(0)), [[0.5]], atol=2 * NEAR)


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_a_value_of_the_observation(learn, kind):
    q = first_q(learn(kind, Look), column(-1, -1, 1, 1), column(-0.5, 0.5, -0.5, 0.5))
    np.testing.assert_allclose(q, [-1, -1, 1, 1], atol=NEAR)


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC])
def test_a_delayed_reward(learn, kind):
    """γ (1 - (a + .5)²) at the start, the same without γ one step later, where only the first action counts."""
    learner = learn(kind, Wait)
    q = first_q(learner, column(0, 0, 0), column(-0.5, 0, 0.5))
    np.testing.assert_allclose(q, [0.5, 0.375, 0], atol=NEAR)
    np.testing.assert_allclose(first_q(learner, column(0.5, 1), column(0, 0)), [1, 0.75], atol=NEAR)
    np.testing.assert_allclose(learner.act(column(0)), [[-0.5]], atol=2 * NEAR)


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_discounting(learn, kind):
    """γ² = .25, γ = .5, 1."""
    q = first_q(learn(kind, Count), column(0, 1, 2), column(0, 0, 0))
    np.testing.assert_allclose(q, [0.25, 0.5, 1], atol=NEAR)
