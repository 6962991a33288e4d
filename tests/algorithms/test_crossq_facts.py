"""What makes CrossQ CrossQ, one test per fact, through the learners of both backends; and an update by hand."""

import numpy as np
import pytest
import toy_networks
from descent import DESCENTS
from facts import at_start, differ, gradient
from learning_cases import VECTOR, assert_same, batch, box, build, changed, first_moments, small

from duetto.algorithms import SAC, CrossQ
from duetto.algorithms.base import Batch
from duetto.algorithms.sac import ActionNoisePair

KINDS = ("mean", "variance", "count")
ENDED = np.zeros(32, np.float32)


@pytest.fixture(scope="module")
def learners():
    return at_start(CrossQ)


def statistics(learner, name):
    values = learner.parameters()[name]
    return {key: value for key, value in values.items() if key.endswith(KINDS)}


# ------------------------------------------------------------------------------------------------ no targets
def test_there_are_no_target_networks(backend, learners):
    assert set(learners(backend).parameters()) == {"actor", "critic", "log_alpha"}
    assert CrossQ().targets() == {}
    assert set(SAC.options()) - set(CrossQ.options()) == {"tau"}


def test_actor_and_temperature_wait_for_the_critics(backend, learners):
    """Two updates of the critics alone, then one of all, counted over the run."""
    learner = learners(backend)
    for alone in (True, True, False, True, True, False):
        before = learner.parameters()
        learner.update(batch())
        assert changed(before, learner.parameters()) == ({"critic"} if alone else {"actor", "critic", "log_alpha"})


# ------------------------------------------------------------------------------------------------ one pass for both
def test_both_halves_are_one_batch_to_the_norms(backend, learners):
    """The first norm's mean and variance are those of s and s' as one; of either half alone they are others."""
    learner, given = learners(backend, "critic"), batch()
    given = given._replace(next_obs=given.next_obs + np.float32(3))
    learner.update(given)
    rows = np.concatenate([given.obs, given.next_obs]).astype(np.float64)
    found, width = statistics(learner, "critic"), VECTOR.size
    for member in range(2):
        ours = found["layers_norms.0.mean"][member, :width], found["layers_norms.0.variance"][member, :width]
        np.testing.assert_allclose(ours[0], 0.01 * rows.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours[1], 0.99 + 0.01 * rows.var(axis=0), rtol=1e-5)
    assert found["layers_norms.2.count"].tolist() == [1, 1]


def test_what_comes_next_counts_through_the_norms_even_where_the_episode_ended(backend, learners):
    """There y is the reward alone; run apart, s' would not matter."""
    ended = batch()._replace(discount=ENDED)
    before = gradient(learners(backend, "critic"), "critic", given=ended)
    other = ended._replace(next_obs=ended.next_obs * np.float32(2))
    assert differ(before, gradient(learners(backend, "critic"), "critic", given=other))
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", "layers.2.bias", 0.5), ended))


# ------------------------------------------------------------------------------------------------ who moves which norms
def test_the_critics_norms_learn_from_the_critics_batches_alone(backend, learners):
    learner = learners(backend, "actor")
    before = learner.parameters()
    learner.update(batch())
    assert changed(before, learner.parameters()) == {"actor"}


def test_the_actors_norms_learn_from_its_own_observations(backend, learners):
    learner, given = learners(backend), batch()
    for _ in range(2):
        learner.update(given)
    assert statistics(learner, "actor")["layers_norms.0.count"] == 0
    learner.update(given)
    found = statistics(learner, "actor")
    assert found["layers_norms.0.count"] == 1
    np.testing.assert_allclose(found["layers_norms.0.mean"], 0.01 * given.obs.mean(axis=0), rtol=1e-4, atol=1e-7)


def test_the_actor_looks_at_the_critics_as_they_have_settled(backend, learners):
    """Their running statistics count in its loss; its own do not."""
    before = gradient(learners(backend, "actor"), "actor")
    settled = gradient(learners(backend, "actor"), "actor", ("critic", "layers_norms.1.mean", 0.5))
    assert differ(before, settled)
    assert_same(before, gradient(learners(backend, "actor"), "actor", ("actor", "layers_norms.0.mean", 0.5)))


def test_the_next_action_comes_from_the_policy_as_it_acts(backend, learners):
    """The policy's running statistics count in the critics' loss; the critics' own do not."""
    before = gradient(learners(backend, "critic"), "critic")
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", "layers_norms.0.mean", 0.5)))
    assert_same(before, gradient(learners(backend, "critic"), "critic", ("critic", "layers_norms.1.mean", 0.5)))


def test_an_action_does_not_depend_on_who_else_acts(backend, learners):
    learner = learners(backend)
    for _ in range(3):
        learner.update(batch())
    obs = batch().obs
    np.testing.assert_allclose(learner.act(obs[:2]), learner.act(obs)[:2], rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------------------ by hand
def test_one_update_of_gradient_descent(backend):
    """As SAC's (test_sac_losses.py), whose targets start as its critics do: π(s) = tanh N(θ s, 1), Q = w·[s, a] twice;
    θ = .25, w = [1, 1], α = .5; s = 1, a = .5, r = 1, s' = 2, γ = .5.

    y = 2.4248913, a number: each critic's gradient is -2·.9248913·[1, .5] = [-1.8497827, -.9248913]. Through y it would
    have -γ·[s', a'] = -[1, .3807971] inside the brackets too. Then the actor, by the critics after their step.
    """
    toys = {"actor_network": toy_networks.gaussian(0.25), "critic_network": toy_networks.critic(1.0)}
    updater = DESCENTS[backend](CrossQ(temperature=0.5, **toys), (box(1), box(1, bound=1.0)))
    s = toy_networks.single(1.0)
    given = Batch(s, 0.5 * s, reward=s[0], discount=0.5 * s[0], next_obs=2 * s, weight=s[0])
    noise = ActionNoisePair(now=updater.array(0.75 * s), next=updater.array(0.5 * s))
    CrossQ(**toys).update(updater, Batch(*map(updater.array, given[:6])), noise, 0)
    assert updater.seen["critic"][0] == pytest.approx(1.7108478, rel=1e-5)
    np.testing.assert_allclose(updater.seen["critic"][1], [-1.8497827, -0.9248913] * 2, rtol=1e-5)
    np.testing.assert_allclose(updater.seen["actor"][1], [0.3027768], rtol=1e-5)
    np.testing.assert_allclose(updater.values("log_alpha"), [-0.8264099], rtol=1e-5)


def test_adam_forgets_the_mean_gradient_sooner(backend):
    """Its first moment after one update is 1 - β1 times the gradient: .5 g, where β1 = .9 leaves .1 g."""
    ours, usual = (build(backend, small(CrossQ, adam_beta1=beta1)) for beta1 in (0.5, 0.9))
    for one in (ours, usual):
        one.update(batch())
    for name, moment in first_moments(usual, "critic").items():
        np.testing.assert_allclose(first_moments(ours, "critic")[name], 5 * moment, rtol=1e-4, atol=1e-7)
