"""What a learner does with a gradient, in numbers: SPEC O9, O16 (Adam), O17, C30, and the learning rate's schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import toy_networks
from array_api_compat import array_namespace
from learning_cases import assert_same, batch, box, build, first_moments, small

from duetto.algorithms import DDPG, TD3


@dataclass(frozen=True)
class Slope(DDPG):
    """Minimises the mean of μ(s) = θ·s and nothing else: the gradient is the mean of s."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", self.mean_action, batch)

    def mean_action(self, nets, batch):
        action = nets.actor(batch.obs)
        return array_namespace(action).mean(action), {}


@dataclass(frozen=True)
class Averaging(DDPG):
    """Moves the targets and, as its loss is 0 everywhere, nothing else."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", lambda nets, batch: (0.0 * nets.actor(batch.obs)[0, 0], {}), batch)
        self.track_targets(learner)


def slope(backend, size=1, start=1.0, **options):
    algorithm = Slope(actor_network=toy_networks.actor(start), critic_network=toy_networks.critic(), **options)
    return build(backend, algorithm, box(size), box(1, bound=1.0))


def push(learner, *gradient, progress=0.0):
    """One update with this gradient; the parameters after it."""
    size = len(gradient)
    one = batch(1, observation=box(size), action=box(1, bound=1.0))
    learner.update(one._replace(obs=np.array([gradient], np.float32)), progress)
    return learner.parameters()["actor"]["theta"].ravel()


# ------------------------------------------------------------------------------------------------ Adam
def test_o16_adam(backend):
    """From 1 with gradients 1, 1 and rate 1e-3: 1 - 1e-3 · 1 / (1 + 1e-8) = .99900000001, then .99800000002."""
    learner = slope(backend, actor_learning_rate=1e-3)
    np.testing.assert_allclose(push(learner, 1.0), [0.99900000001], rtol=1e-7)
    np.testing.assert_allclose(push(learner, 1.0), [0.99800000002], rtol=1e-7)
    state = learner.optimizer_state()["actor"]
    assert state["steps"] == 2
    # .9 · .1 + .1 = .19 and .999 · .001 + .001 = .001999
    np.testing.assert_allclose(state["first"]["theta"], [[0.19]], rtol=1e-6)
    np.testing.assert_allclose(state["second"]["theta"], [[0.001999]], rtol=1e-6)


# O17, w = 1, rate .1, decay .1, no gradient. Decoupled: w (1 - .1·.1) = .99. Coupled: the gradient is .1·1, which Adam
# divides by itself, so w - .1 = .9. Without either the parameter stays.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"actor_weight_decay": 0.1, "decoupled_weight_decay": True}, 0.99),
        ({"actor_weight_decay": 0.1}, 0.9),
        ({"critic_weight_decay": 0.1}, 1.0),
    ],
)
def test_o17_weight_decay(backend, options, expected):
    learner = slope(backend, actor_learning_rate=0.1, **options)
    np.testing.assert_allclose(push(learner, 0.0), [expected], rtol=1e-6)


# C30: |[3, 4]| = 5. Clipped to .5 it is [.3, .4]; Adam's first moment is a tenth of that. Smaller ones stay.
@pytest.mark.parametrize(
    ("limit", "gradient", "clipped"),
    [(0.5, [3, 4], [0.3, 0.4]), (5.5, [3, 4], [3, 4]), (0.0, [3, 4], [3, 4]), (0.5, [0, 0], [0, 0])],
)
def test_c30_gradient_clipping(backend, limit, gradient, clipped):
    learner = slope(backend, size=2, max_grad_norm=limit)
    push(learner, *gradient)
    np.testing.assert_allclose(first_moments(learner, "actor")["theta"].ravel() * 10, clipped, rtol=2e-6)


def test_c30_one_norm_over_all_parameters_of_both_critics(backend):
    """The clipped gradient of the whole critic has the limit as its norm, and keeps its direction."""
    gradients = []
    for limit in (0.0, 0.01):
        learner = build(backend, small(max_grad_norm=limit))
        learner.update(batch())
        gradients.append(np.concatenate([v.ravel() * 10 for v in first_moments(learner, "critic").values()]))
    free, clipped = gradients
    assert np.linalg.norm(clipped) == pytest.approx(0.01, rel=1e-5)
    np.testing.assert_allclose(clipped, free * 0.01 / np.linalg.norm(free), rtol=1e-4, atol=1e-9)


def test_clipping_comes_before_coupled_weight_decay(backend):
    """[3, 4] → [.3, .4], and then .1 · θ = .1 · 2 on top: a first moment of .1 · [.5, .6]."""
    learner = slope(backend, size=2, start=2.0, max_grad_norm=0.5, actor_weight_decay=0.1)
    push(learner, 3, 4)
    np.testing.assert_allclose(first_moments(learner, "actor")["theta"].ravel(), [0.05, 0.06], rtol=2e-6)


# ------------------------------------------------------------------------------------------------ learning rate
# Adam's first step is the rate itself. linear from 1 to .1 at half the run: .55.
@pytest.mark.parametrize(
    ("decay", "progress", "rate"), [("constant", 0.5, 0.1), ("linear", 0.5, 0.055), ("cosine", 1.0, 0.01)]
)
def test_the_step_follows_the_schedule(backend, decay, progress, rate):
    learner = slope(backend, actor_learning_rate=0.1, learning_rate_decay=decay, learning_rate_final=0.1)
    assert learner.learning_rates(progress)["actor"] == pytest.approx(rate)
    np.testing.assert_allclose(push(learner, 1.0, progress=progress), [1 - rate], rtol=1e-6)


# ------------------------------------------------------------------------------------------------ targets
# O9, 2 - (1 - τ)^k: after 139 updates of τ .005 the targets are half-way; 693 of τ .001.
@pytest.mark.parametrize(
    ("tau", "expected"),
    [
        (0.005, {1: 1.005, 2: 1.009975, 10: 1.0488898695, 100: 1.3942295635, 139: 1.5017948373, 1000: 1.9933460314}),
        (0.001, {693: 1.5000997654}),
    ],
)
def test_o9_polyak_averaging(backend, tau, expected):
    learner = averaging(backend, tau, target=1.0, online=2.0)
    for update in range(1, max(expected) + 1):
        learner.update(batch(1))
        if update in expected:
            found = learner.parameters()
            for name in ("target_actor", "target_critic"):
                np.testing.assert_allclose(found[name]["layers.0.weight"], expected[update], rtol=3e-6)
    assert {float(value) for value in found["actor"]["layers.0.weight"].ravel()} == {2.0}


def test_tau_of_one_copies_every_bit(backend):
    learner = build(backend, small(Averaging, tau=1.0))
    parameters = learner.parameters()
    for name in ("target_actor", "target_critic"):
        for values in parameters[name].values():
            values[:] = np.random.default_rng(0).normal(size=values.shape) * 1000
    learner.load_parameters(parameters)
    learner.update(batch())
    found = learner.parameters()
    assert_same(found["actor"], found["target_actor"])
    assert_same(found["critic"], found["target_critic"])


def averaging(backend, tau, target, online):
    learner = build(backend, small(Averaging, tau=tau, hidden=()))
    values = {name: target if name.startswith("target") else online for name in learner.parameters()}
    learner.load_parameters(
        {
            name: {key: np.full_like(array, values[name]) for key, array in net.items()}
            for name, net in learner.parameters().items()
        }
    )
    return learner


# ------------------------------------------------------------------------------------------------ own networks
def test_a_gradient_that_two_parameters_share_is_clipped_once(backend):
    """θ = a + b: autograd may hand out one array for both."""
    algorithm = Slope(
        actor_network=toy_networks.shared_actor(), critic_network=toy_networks.critic(), max_grad_norm=0.5
    )
    learner = build(backend, algorithm, box(2), box(1, bound=1.0))
    one = batch(1, observation=box(2), action=box(1, bound=1.0))
    learner.update(one._replace(obs=np.array([[3.0, 4.0]], np.float32)))
    # both gradients are [3, 4], the norm of all four numbers is 5√2: [3, 4] · .5 / (5√2) = [.21213, .28284]
    for name in ("a", "b"):
        found = first_moments(learner, "actor")[name].ravel() * 10
        np.testing.assert_allclose(found, [0.2121320344, 0.2828427125], rtol=1e-5)


def test_an_update_records_gradients_where_the_caller_does_not():
    learner = build("torch", small(TD3))
    before = learner.parameters()["critic"]
    with torch.no_grad():
        learner.update(batch())
        assert not torch.is_grad_enabled()
    assert any(not np.array_equal(value, before[name]) for name, value in learner.parameters()["critic"].items())
