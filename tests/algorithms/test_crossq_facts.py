"""CrossQ's defining properties, one test each, on learners of both backends; and an update by hand."""

import numpy as np
import pytest
import toy_networks
from descent import DESCENTS
from learning_cases import VECTOR, assert_same, batch, box, changed
from sac_cases import cached_learners, differ, gradient

from duetto.algorithms import SAC, CrossQ
from duetto.algorithms.base import Batch
from duetto.algorithms.sac import ActionNoisePair

STATISTICS = ("mean", "variance", "count")


@pytest.fixture(scope="module")
def learners():
    return cached_learners(CrossQ)


def statistics(learner, name):
    values = learner.parameters()[name]
    return {key: value for key, value in values.items() if key.endswith(STATISTICS)}


# ------------------------------------------------------------------------------------------------ no targets
def test_crossq_has_no_target_networks(backend, learners):
    assert set(learners(backend).parameters()) == {"actor", "critic", "log_alpha"}
    assert CrossQ().targets() == {}
    assert set(SAC.options()) - set(CrossQ.options()) == {"tau"}


def test_actor_and_temperature_move_at_every_third_update(backend, learners):
    """Two updates move only the critics; the third moves all networks."""
    learner = learners(backend)
    for critics_only in (True, True, False, True, True, False):
        before = learner.parameters()
        learner.update(batch())
        assert changed(before, learner.parameters()) == (
            {"critic"} if critics_only else {"actor", "critic", "log_alpha"}
        )


# ------------------------------------------------------------------------------------------------ joint forward pass
def test_batch_norm_uses_joint_current_and_next_observations(backend, learners):
    """The first norm's mean and variance are those of s and s' concatenated."""
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


# ------------------------------------------------------------------------------------------------ running statistics
def test_actor_loss_does_not_update_critic_norms(backend, learners):
    learner = learners(backend, "actor")
    before = learner.parameters()
    learner.update(batch())
    assert changed(before, learner.parameters()) == {"actor"}


def test_actor_loss_uses_critic_running_statistics(backend, learners):
    """The actor's own running statistics do not affect it."""
    before = gradient(learners(backend, "actor"), "actor")
    assert differ(before, gradient(learners(backend, "actor"), "actor", ("critic", "layers_norms.1.mean", 0.5)))
    assert_same(before, gradient(learners(backend, "actor"), "actor", ("actor", "layers_norms.0.mean", 0.5)))


def test_next_action_uses_actor_running_statistics(backend, learners):
    """The critics' loss depends on the actor's running statistics, but not on the critics'."""
    before = gradient(learners(backend, "critic"), "critic")
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", "layers_norms.0.mean", 0.5)))
    assert_same(before, gradient(learners(backend, "critic"), "critic", ("critic", "layers_norms.1.mean", 0.5)))


# ------------------------------------------------------------------------------------------------ by hand
def test_crossq_update_by_hand(backend):
    """The example of test_sac_losses.py, where target critics start equal to the critics.

    π(s) = tanh N(θ s, 1), Q = w·[s, a] twice; θ = .25, w = [1, 1], α = .5; s = 1, a = .5, r = 1, s' = 2, γ = .5.
    y = 2.4248913 is a constant, so each critic's gradient is -2·.9248913·[1, .5] = [-1.8497827, -.9248913]. A gradient
    through y would add -γ·[s', a'] = -[1, .3807971] to [1, .5]. The actor's loss uses the critics after their step.
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
