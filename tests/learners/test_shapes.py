"""C14 through the learners: what would broadcast by accident is an error on both backends."""

import numpy as np
import pytest
import toy_networks
from learning_cases import ACTION, VECTOR, batch, build, small

from duetto.algorithms import DDPG, TD3
from duetto.networks.specs import CustomNetwork


@pytest.mark.parametrize("kind", [TD3, DDPG])
@pytest.mark.parametrize("field", ["reward", "discount", "weight"])
def test_a_column_in_a_batch_is_refused(backend, kind, field):
    one = batch(4)
    learner = build(backend, small(kind))
    with pytest.raises(ValueError, match=r"equal shapes: .*\(4, 1\)"):
        learner.update(one._replace(**{field: getattr(one, field)[:, None]}))


def test_noise_for_another_number_of_actions_is_refused(backend):
    learner = build(backend, small())
    with pytest.raises(ValueError, match=r"action \(3, 2\), noise \(1, 2\)"):
        learner.act(np.zeros((3, VECTOR.size), np.float32), np.zeros((1, ACTION.size), np.float32))


class JaxPromoting(toy_networks.JaxCritic):
    def __call__(self, obs, action):
        return (super().__call__(obs, action)[:, None] + np.ones(1, np.float32))[:, 0]


class Careless(TD3):
    """Adds (B,) to (2, B), which JAX would otherwise make one rank."""

    def critic_loss(self, nets, batch, noise):
        q = nets.critic(batch.obs, batch.action) + batch.reward
        return (q**2).mean(), {}


def test_jax_raises_where_a_loss_would_make_ranks_equal():
    learner = build("jax", small(Careless))
    with pytest.raises(ValueError, match="rank_promotion"):
        learner.update(batch(4))


def test_an_own_network_may_make_ranks_equal():
    learner = build("jax", small(critic_network=CustomNetwork(jax=JaxPromoting)))
    assert np.isfinite(np.asarray(learner.update(batch(4)).values)).all()
