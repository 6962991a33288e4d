"""TQC's losses by hand, and its networks."""

from types import SimpleNamespace

import numpy as np
import pytest
from learning_cases import box, loss_batch

from duetto.algorithms import TQC
from duetto.algorithms.tqc import quantile_huber, truncated_mixture
from duetto.functional.distributions import SquashedGaussian
from duetto.networks.specs import NetworkSpec

TWO_CRITICS = TQC(num_critics=2, num_quantiles=3, dropped_quantiles=1)
LOG_ALPHA = -0.6931472  # α = .5


# First row: 7 9 8 and 1 2 3, sorted 1 2 3 7 8 9, without the two largest. Dropping one of each critic instead would
# leave 7 8 and 1 2. Second row: 0 0 6 and 5 4 -1, sorted -1 0 0 4 5 6, without the two largest.
def test_truncation_drops_largest_quantiles_of_whole_mixture(array):
    z = array([[[7, 9, 8], [0, 0, 6]], [[1, 2, 3], [5, 4, -1]]])
    np.testing.assert_array_equal(truncated_mixture(z, 1), np.array([[1, 2, 3, 7], [-1, 0, 0, 4]], np.float32))
    assert truncated_mixture(z, 0).shape == (2, 6)


# z = [0, 2] with τ = [.25, .75], y = [1, 4], u = y - z. Huber loss: |u| - .5 if |u| > 1, else u² / 2.
#   z = 0: u = 1 and 4, both above: .25·.5 + .25·3.5 = 1
#   z = 2: u = -1, below, weight 1 - .75: .25·.5; u = 2, above: .75·1.5; together 1.25
# The mean of all four is 2.25 / 4 = .5625. For z = [1, 4]: u = 0, 3 and -3, 0: .25·2.5 + .25·2.5 = 1.25, / 4 = .3125.
def test_quantile_huber_loss_by_hand(array):
    found = quantile_huber(array([[[0, 2]], [[1, 4]]]), array([[1, 4]]))
    np.testing.assert_allclose(found, [[0.5625], [0.3125]], rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- the losses
def make_nets(array, critic, target_critic=None):
    """π(s) = tanh N(0, 1): with noise 0 the action is 0, and log π = -.5 log 2π = -.9189385."""
    return SimpleNamespace(
        actor=lambda obs: SquashedGaussian(array(np.zeros((len(obs), 1))), array(np.zeros((len(obs), 1)))),
        critic=critic,
        target_critic=target_critic,
        log_alpha=array(LOG_ALPHA),
    )


# y = r + γ (z + .5·.9189385) = 1 + .5 z + .2297346 for z = 1, 2, 3, 7, whose mean is 3.25: 2.8547346.
def test_target_adds_entropy_to_truncated_mixture(array):
    def critic(obs, action):
        return array([[[7, 9, 8]], [[1, 2, 3]]])

    batch = loss_batch(array, [1], [0.5], [1])
    _, info = TWO_CRITICS.critic_loss(make_nets(array, critic, critic), batch, batch.obs)
    np.testing.assert_allclose(info["target"], [2.8547346], rtol=1e-6)
    np.testing.assert_allclose(info["q"], [[8], [2]], rtol=1e-6)
    _, info = TWO_CRITICS.critic_loss(make_nets(array, critic, critic), batch._replace(discount=array([0])), batch.obs)
    np.testing.assert_allclose(info["target"], [1], rtol=1e-6)  # the episode terminated


# γ = 0 makes every target r = 1 and 4. The losses for y = 1: z = [0, 2]: (.125 + .125) / 2, z = [1, 4]: .625 / 2;
# for y = 4: (.875 + 1.125) / 2 and .625 / 2. Both critics are added: .4375 and 1.3125, mean .875; with weights 2 and 0
# .4375. The priorities compare means, 1 and 2.5, with y: (0 + 1.5) / 2 and (3 + 1.5) / 2.
@pytest.mark.parametrize(("weight", "expected"), [([1, 1], 0.875), ([2, 0], 0.4375)])
def test_critic_loss_and_priorities_by_hand(array, weight, expected):
    def critic(obs, action):
        return array([[[0, 2], [0, 2]], [[1, 4], [1, 4]]])

    batch = loss_batch(array, [1, 4], [0, 0], weight)
    loss, info = TQC(num_quantiles=2, dropped_quantiles=1).critic_loss(
        make_nets(array, critic, critic), batch, batch.obs
    )
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(info["priority"], [0.75, 2.25], rtol=1e-6)


# The mean of all six quantiles, including the dropped ones, is 30 / 6 = 5: .5·-.9189385 - 5.
def test_actor_loss_uses_mean_of_all_quantiles(array):
    batch = loss_batch(array, [0], [0], [1])
    loss, _ = TWO_CRITICS.actor_loss(
        make_nets(array, lambda obs, action: array([[[7, 9, 8]], [[1, 2, 3]]])), batch, batch.obs
    )
    assert float(loss) == pytest.approx(-5.4594693, rel=1e-6)


# ---------------------------------------------------------------------------------------------------- networks
def test_default_critics_and_targets():
    specs = TQC(hidden=(8,)).networks(box(3), box(2, bound=1.0))
    assert isinstance(critic := specs["critic"], NetworkSpec)
    assert (critic.members, critic.heads[0].shape) == (5, (25,))
    assert critic.stacks[0][0].layers == [(5, 8), (8, 25)]
    assert TQC().targets() == {"target_critic": "critic"}
