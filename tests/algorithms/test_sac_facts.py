"""SAC's defining properties, one test each, on learners of both backends. The losses: test_sac_losses.py."""

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, batch, build, changed, observations, small
from sac_cases import cached_learners, differ, gradient

from duetto.algorithms import SAC

ALL_NETWORKS = {"actor", "critic", "log_alpha", "target_critic"}


@pytest.fixture(scope="module")
def learners():
    return cached_learners(SAC)


def test_every_update_moves_all_networks(backend, learners):
    learner = learners(backend)
    for seed in range(3):
        before = learner.parameters()
        learner.update(batch(seed=seed))
        assert changed(before, learner.parameters()) == ALL_NETWORKS


def test_next_action_comes_from_current_policy(backend, learners):
    """There is no target actor, and the critics' gradient depends on the actor."""
    assert set(learners(backend).parameters()) == ALL_NETWORKS
    before = gradient(learners(backend, "critic"), "critic")
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", "", 0.3)))


def gaussian(parameters, obs):
    """Compute the policy's distribution in NumPy."""
    from learning_cases import perceptron

    from duetto.functional.distributions import SquashedGaussian

    found = perceptron(parameters, obs.astype(np.float64))
    return SquashedGaussian(found[:, :2], np.clip(found[:, 2:], -20, 2))


def test_fixed_temperature_stays_constant_without_optimizer(backend):
    learner = build(backend, small(SAC, learn_temperature=False, temperature=0.2))
    assert learner.optimizer_state().keys() == {"actor", "critic"}
    before = learner.parameters()
    metrics = learner.update(batch())
    after = learner.parameters()
    assert changed(before, after) == ALL_NETWORKS - {"log_alpha"}
    assert after["log_alpha"]["value"] == pytest.approx(np.log(0.2), rel=1e-6)
    assert "temperature" not in metrics.names


def test_evaluation_takes_mode_unless_stochastic(backend, learners):
    random, learner = np.random.default_rng(0), learners(backend)
    obs = observations(VECTOR, 3, random)
    policy = gaussian(learner.parameters()["actor"], obs)
    assert SAC().explorer().for_evaluation(random, 3, ACTION) is None
    np.testing.assert_allclose(learner.act(obs, None), policy.mode(), rtol=1e-4, atol=1e-6)
    noise = SAC(stochastic_evaluation=True).explorer().for_evaluation(random, 3, ACTION)
    assert noise.shape == (3, 2)
    np.testing.assert_allclose(learner.act(obs, noise), policy.sample(noise), rtol=1e-4, atol=1e-6)
    assert np.abs(policy.sample(noise) - policy.mode()).min() > 1e-3
