"""What makes SAC SAC, one test per fact, through the learners of both backends. The losses: test_sac_losses.py."""

import numpy as np
import pytest
from facts import at_start, differ, gradient
from learning_cases import ACTION, VECTOR, assert_same, batch, build, changed, first_moments, observations, small

from duetto.algorithms import SAC

EVERYTHING = {"actor", "critic", "log_alpha", "target_critic"}


@pytest.fixture(scope="module")
def learners():
    return at_start(SAC)


def test_all_networks_move_at_every_update(backend, learners):
    learner = learners(backend)
    for seed in range(3):
        before = learner.parameters()
        learner.update(batch(seed=seed))
        assert changed(before, learner.parameters()) == EVERYTHING


def test_the_next_action_comes_from_the_current_policy(backend, learners):
    """There is no target actor, and the critics' gradient feels what the actor does."""
    assert set(learners(backend).parameters()) == EVERYTHING
    before = gradient(learners(backend, "critic"), "critic")
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", "", 0.3)))


def assert_close(one, other):
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-8)


def test_the_actors_loss_moves_the_actor_alone(backend, learners):
    learner = learners(backend, "actor")
    before = learner.parameters()
    learner.update(batch())
    assert changed(before, learner.parameters()) == {"actor"}
    assert all(not moment.any() for name in ("critic", "log_alpha") for moment in first_moments(learner, name).values())


def test_the_actor_climbs_the_critics_that_were_just_updated(backend, learners):
    learner = build(backend, small(SAC, critic_learning_rate=0.1))
    learner.update(batch())
    found, critic = first_moments(learner, "actor"), learner.parameters()["critic"]
    old = gradient(learners(backend, "actor"), "actor")
    alone = learners(backend, "actor")
    alone.load_parameters(alone.parameters() | {"critic": critic})
    assert_close(found, gradient(alone, "actor"))
    assert differ(found, old)


def test_it_is_told_the_log_probabilities_of_the_actors_loss(backend, learners):
    """Of the policy before its step; the log-probabilities of the target's actions are others."""
    learner = learners(backend)
    before = learner.parameters()["actor"]
    learner.update(batch())
    found = first_moments(learner, "log_alpha")["value"] / 0.1
    noise = SAC().draw(fresh(backend).random, batch())
    policy = gaussian(before, batch().obs)
    _, log_prob = policy.sample_and_log_prob(noise.now.astype(np.float64))
    np.testing.assert_allclose(found, -(log_prob.mean() - 2), rtol=1e-4)


def fresh(backend):
    return build(backend, small(SAC))


def gaussian(parameters, obs):
    """The policy in NumPy."""
    from learning_cases import perceptron

    from duetto.functional.distributions import SquashedGaussian

    found = perceptron(parameters, obs.astype(np.float64))
    return SquashedGaussian(found[:, :2], np.clip(found[:, 2:], -20, 2))


def test_a_fixed_temperature_has_no_optimiser_and_stays(backend):
    learner = build(backend, small(SAC, learn_temperature=False, temperature=0.2))
    assert learner.optimizer_state().keys() == {"actor", "critic"}
    before = learner.parameters()
    metrics = learner.update(batch())
    after = learner.parameters()
    assert changed(before, after) == EVERYTHING - {"log_alpha"}
    assert after["log_alpha"]["value"] == pytest.approx(np.log(0.2), rel=1e-6)
    assert "temperature" not in metrics.names


def test_evaluations_take_the_mode_unless_they_are_asked_to_sample(backend, learners):
    random, learner = np.random.default_rng(0), learners(backend)
    obs = observations(VECTOR, 3, random)
    policy = gaussian(learner.parameters()["actor"], obs)
    assert SAC().explorer().for_evaluation(random, 3, ACTION) is None
    np.testing.assert_allclose(learner.act(obs, None), policy.mode(), rtol=1e-4, atol=1e-6)
    noise = SAC(stochastic_evaluation=True).explorer().for_evaluation(random, 3, ACTION)
    assert noise.shape == (3, 2)
    np.testing.assert_allclose(learner.act(obs, noise), policy.sample(noise), rtol=1e-4, atol=1e-6)
    assert np.abs(policy.sample(noise) - policy.mode()).min() > 1e-3


def test_the_twins_and_their_targets_at_the_start(backend, learners):
    parameters = learners(backend).parameters()
    assert_same(parameters["critic"], parameters["target_critic"])
    for values in parameters["critic"].values():
        assert len(values) == 2
        assert not np.any(values[0] == values[1])
