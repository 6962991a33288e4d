"""Optimizer steps (Adam, weight decay, clipping, schedules) and target averaging by hand: SPEC O9, O16, O17, C30."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import toy_networks
from array_api_compat import array_namespace
from learning_cases import assert_same, batch, box, build, first_moments, small

from duetto.algorithms import DDPG


@dataclass(frozen=True)
class MeanActionLoss(DDPG):
    """Minimizes only the mean of μ(s) = θ·s, so the gradient is the mean of s."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", self.mean_action, batch)

    def mean_action(self, nets, batch):
        action = nets.actor(batch.obs)
        return array_namespace(action).mean(action), {}


@dataclass(frozen=True)
class TargetsOnly(DDPG):
    """Moves only the targets, because its loss is 0 everywhere."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", lambda nets, batch: (0.0 * nets.actor(batch.obs)[0, 0], {}), batch)
        self.track_targets(learner)


def slope(backend, size=1, start=1.0, **options):
    algorithm = MeanActionLoss(actor_network=toy_networks.actor(start), critic_network=toy_networks.critic(), **options)
    return build(backend, algorithm, box(size), box(1, bound=1.0))


def update_with_gradient(learner, *gradient, progress=0.0):
    """Make one update with this gradient and return the new parameters."""
    size = len(gradient)
    one = batch(1, observation=box(size), action=box(1, bound=1.0))
    learner.update(one._replace(obs=np.array([gradient], np.float32)), progress)
    return learner.parameters()["actor"]["theta"].ravel()


# ------------------------------------------------------------------------------------------------ Adam
def test_adam_steps_by_hand_o16(backend):
    """From 1 with gradients 1, 1 and rate 1e-3: 1 - 1e-3 · 1 / (1 + 1e-8) = .99900000001, then .99800000002."""
    learner = slope(backend, actor_learning_rate=1e-3)
    np.testing.assert_allclose(update_with_gradient(learner, 1.0), [0.99900000001], rtol=1e-7)
    np.testing.assert_allclose(update_with_gradient(learner, 1.0), [0.99800000002], rtol=1e-7)
    state = learner.optimizer_state()["actor"]
    assert state["steps"] == 2
    # .9 · .1 + .1 = .19 and .999 · .001 + .001 = .001999
    np.testing.assert_allclose(state["first"]["theta"], [[0.19]], rtol=1e-6)
    np.testing.assert_allclose(state["second"]["theta"], [[0.001999]], rtol=1e-6)


# O17, w = 1, rate .1, decay .1, no gradient. Decoupled: w (1 - .1·.1) = .99. Coupled: the gradient is .1·1, which Adam
# normalizes to 1, so w - .1 = .9. The critic's decay does not change the actor.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"actor_weight_decay": 0.1, "decoupled_weight_decay": True}, 0.99),
        ({"actor_weight_decay": 0.1}, 0.9),
        ({"critic_weight_decay": 0.1}, 1.0),
    ],
)
def test_weight_decay_by_hand_o17(backend, options, expected):
    learner = slope(backend, actor_learning_rate=0.1, **options)
    np.testing.assert_allclose(update_with_gradient(learner, 0.0), [expected], rtol=1e-6)


# C30: |[3, 4]| = 5. Clipped to .5 it is [.3, .4]; Adam's first moment is a tenth of that. Small gradients stay.
@pytest.mark.parametrize(
    ("limit", "gradient", "clipped"),
    [(0.5, [3, 4], [0.3, 0.4]), (5.5, [3, 4], [3, 4]), (0.5, [0, 0], [0, 0])],
)
def test_gradient_clipping_by_hand_c30(backend, limit, gradient, clipped):
    learner = slope(backend, size=2, max_grad_norm=limit)
    update_with_gradient(learner, *gradient)
    np.testing.assert_allclose(first_moments(learner, "actor")["theta"].ravel() * 10, clipped, rtol=2e-6)


# ------------------------------------------------------------------------------------------------ learning rate
# Adam's first step is the learning rate. Linear from 1 to .1, at half the run: .55.
@pytest.mark.parametrize(
    ("decay", "progress", "rate"), [("constant", 0.5, 0.1), ("linear", 0.5, 0.055), ("cosine", 1.0, 0.01)]
)
def test_optimizer_step_follows_learning_rate_schedule(backend, decay, progress, rate):
    learner = slope(backend, actor_learning_rate=0.1, learning_rate_decay=decay, learning_rate_final=0.1)
    assert learner.learning_rates(progress)["actor"] == pytest.approx(rate)
    np.testing.assert_allclose(update_with_gradient(learner, 1.0, progress=progress), [1 - rate], rtol=1e-6)


# ------------------------------------------------------------------------------------------------ targets
def test_polyak_averaging_by_hand_o9(backend):
    """SPEC O9: after k updates the targets are 2 - (1 - τ)^k."""
    learner = learner_with_targets(backend, 0.005, target=1.0, online=2.0)
    expected = {1: 1.005, 2: 1.009975, 10: 1.0488898695}
    for update in range(1, 11):
        learner.update(batch(1))
        if update in expected:
            found = learner.parameters()
            for name in ("target_actor", "target_critic"):
                np.testing.assert_allclose(found[name]["layers.0.weight"], expected[update], rtol=3e-6)
    assert {float(value) for value in found["actor"]["layers.0.weight"].ravel()} == {2.0}


def test_tau_of_one_copies_parameters_exactly(backend):
    learner = build(backend, small(TargetsOnly, tau=1.0))
    parameters = learner.parameters()
    for name in ("target_actor", "target_critic"):
        for values in parameters[name].values():
            values[:] = np.random.default_rng(0).normal(size=values.shape) * 1000
    learner.load_parameters(parameters)
    learner.update(batch())
    found = learner.parameters()
    assert_same(found["actor"], found["target_actor"])
    assert_same(found["critic"], found["target_critic"])


def learner_with_targets(backend, tau, target, online):
    learner = build(backend, small(TargetsOnly, tau=tau, hidden=()))
    values = {name: target if name.startswith("target") else online for name in learner.parameters()}
    learner.load_parameters(
        {
            name: {key: np.full_like(array, values[name]) for key, array in net.items()}
            for name, net in learner.parameters().items()
        }
    )
    return learner


# ------------------------------------------------------------------------------------------------ custom networks
def test_gradient_shared_by_two_parameters_is_clipped_once(backend):
    """θ = a + b: autograd may return one array as both gradients."""
    algorithm = MeanActionLoss(
        actor_network=toy_networks.shared_actor(), critic_network=toy_networks.critic(), max_grad_norm=0.5
    )
    learner = build(backend, algorithm, box(2), box(1, bound=1.0))
    one = batch(1, observation=box(2), action=box(1, bound=1.0))
    learner.update(one._replace(obs=np.array([[3.0, 4.0]], np.float32)))
    # both gradients are [3, 4], the norm of all four numbers is 5√2: [3, 4] · .5 / (5√2) = [.21213, .28284]
    for name in ("a", "b"):
        found = first_moments(learner, "actor")[name].ravel() * 10
        np.testing.assert_allclose(found, [0.2121320344, 0.2828427125], rtol=1e-5)
