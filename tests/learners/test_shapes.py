"""Accidental broadcasting in a learner is an error on both backends (SPEC C14)."""

import numpy as np
import pytest
import toy_networks
from learning_cases import ACTION, VECTOR, batch, build, small

from duetto.algorithms import TD3
from duetto.networks.specs import CustomNetwork


@pytest.mark.parametrize("field", ["reward", "discount", "weight"])
def test_column_shaped_batch_field_is_rejected(backend, field):
    one = batch(4)
    learner = build(backend, small())
    with pytest.raises(ValueError, match=r"equal shapes: .*\(4, 1\)"):
        learner.update(one._replace(**{field: getattr(one, field)[:, None]}))


def test_noise_of_another_batch_size_is_rejected(backend):
    learner = build(backend, small())
    with pytest.raises(ValueError, match=r"action \(3, 2\), noise \(1, 2\)"):
        learner.act(np.zeros((3, VECTOR.size), np.float32), np.zeros((1, ACTION.size), np.float32))


class JaxBroadcastingCritic(toy_networks.JaxCritic):
    def __call__(self, obs, action):
        return (super().__call__(obs, action)[:, None] + np.ones(1, np.float32))[:, 0]


class BroadcastingLoss(TD3):
    """Adds (B,) to (2, B), which JAX would broadcast by default."""

    def critic_loss(self, nets, batch, noise):
        q = nets.critic(batch.obs, batch.action) + batch.reward
        return (q**2).mean(), {}


def test_jax_loss_with_rank_promotion_raises():
    learner = build("jax", small(BroadcastingLoss))
    with pytest.raises(ValueError, match="rank_promotion"):
        learner.update(batch(4))


def test_custom_networks_may_broadcast():
    learner = build("jax", small(critic_network=CustomNetwork(jax=JaxBroadcastingCritic)))
    assert np.isfinite(np.asarray(learner.update(batch(4)).values)).all()
