"""Discrete SAC's losses and the actor's gradient by hand."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from learning_cases import loss_batch

from duetto.algorithms import DiscreteSAC
from duetto.functional.distributions import Categorical

LOG_ALPHA = -0.6931472  # α = .5
LOGITS = [[0.0, 1.0986123], [2.0, 2.0]]  # π = [1/4, 3/4] and [1/2, 1/2]
TWINS = [[[10.0, 14.0]] * 2, [[12.0, 8.0]] * 2]  # (2, B, n); the lower ones are [10, 8]

# Soft values: 1/4 (10 - .5 log 1/4) + 3/4 (8 - .5 log 3/4) = .25·10.6931472 + .75·8.143841 = 8.7811676,
# and 1/2 (10 + .3465736) + 1/2 (8 + .3465736) = 9.3465736.
SOFT = np.array([8.7811676, 9.3465736])


make_batch = partial(loss_batch, action=(0, 1))


def make_nets(array, critic=TWINS, log_alpha=LOG_ALPHA):
    return SimpleNamespace(
        actor=lambda obs: Categorical(array(LOGITS)),
        target_critic=lambda obs: array(TWINS),
        critic=lambda obs: array(critic),
        log_alpha=array(log_alpha),
    )


def test_target_is_expected_soft_value_of_lower_twin(array):
    _, info = DiscreteSAC().critic_loss(make_nets(array), make_batch(array, [1, 2], [0.9, 0]))
    np.testing.assert_allclose(info["target"], [1 + 0.9 * SOFT[0], 2], rtol=1e-6)


# y = [1, 3]; for actions 0 and 1 Q1 = [1.5, 2], Q2 = [-1, 6]: errors [.5, -1] and [-2, 3], as in test_sac_losses.py.
@pytest.mark.parametrize(("weight", "expected"), [([1, 1], 7.125), ([1, 0.5], 4.625)])
def test_critic_loss_uses_values_of_taken_actions(array, weight, expected):
    nets = make_nets(array, critic=[[[1.5, 99], [99, 2]], [[-1, 99], [99, 6]]])
    loss, info = DiscreteSAC().critic_loss(nets, make_batch(array, [1, 3], [0, 0], weight))
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(info["priority"], [1.25, 2], rtol=1e-6)


def test_actor_loss_is_unweighted_negative_soft_value(array):
    for weight in ([1, 1], [0.1, 0.7]):
        loss, info = DiscreteSAC().actor_loss(make_nets(array), make_batch(array, [0, 0], [0, 0], weight))
        assert float(loss) == pytest.approx(-SOFT.mean(), rel=1e-6)
        np.testing.assert_allclose(info["negative_entropy"], [-0.5623352, -0.6931472], rtol=1e-5)


# Σ π log π = -.5623352 and -.6931472, mean -.6277412; H̄ = .98·log 2 = .6792842, half of it .3396421 with .49.
@pytest.mark.parametrize(("scale", "target"), [(0.98, 0.6792842), (0.49, 0.3396421)])
def test_temperature_loss_by_hand(array, scale, target):
    actor = {"negative_entropy": array([-0.5623352, -0.6931472]), "greatest_entropy": array([0.6931472] * 2)}
    nets, batch = SimpleNamespace(log_alpha=array(LOG_ALPHA)), make_batch(array, [0, 0], [0, 0])
    loss, info = DiscreteSAC(target_entropy_scale=scale).temperature_loss(nets, batch, actor)
    assert float(loss) == pytest.approx(0.6931472 * (target - 0.6277412), rel=1e-4)
    assert float(info["temperature"]) == pytest.approx(0.5, rel=1e-6)


def test_max_entropy_excludes_masked_actions(array):
    policy = Categorical(array([[1, 2, 3, 4], [1, 2, 3, 4]])).with_mask(array([[1, 1, 1, 0], [0, 1, 0, 0]]) > 0)
    np.testing.assert_allclose(policy.max_entropy, [np.log(3), 0], rtol=1e-6)
    np.testing.assert_allclose(
        policy.entropy(), [0.8323955, 0], atol=1e-6
    )  # of softmax(1, 2, 3), and of a single action
    assert np.asarray(policy.mode()).tolist() == [2, 1]


# ∂/∂logits Σ π (α log π - q) = π (α log π - q - loss). First row: α log π - q = [-10.6931472, -8.143841], loss
# -8.7811676: 1/4·-1.9119796 = -.4779949 and 3/4·.6373266 = .4779949. Second: 1/2·-1 and 1/2·1. Means: halves.
EXPECTED_GRADIENT = [[-0.2389975, 0.2389975], [-0.25, 0.25]]


def test_actor_gradient_flows_through_all_probabilities():
    def loss(array, logits):
        nets = make_nets(array)
        nets.actor = lambda obs: Categorical(logits)
        return DiscreteSAC().actor_loss(nets, make_batch(array, [0, 0], [0, 0]))[0]

    logits = torch.tensor(LOGITS, requires_grad=True)
    tensor = lambda values: torch.as_tensor(np.asarray(values, np.float32))  # noqa: E731
    (gradient,) = torch.autograd.grad(loss(tensor, logits), [logits])
    np.testing.assert_allclose(gradient, EXPECTED_GRADIENT, rtol=1e-5)
    gradient = jax.grad(lambda logits: loss(jnp.asarray, logits))(jnp.asarray(LOGITS))
    np.testing.assert_allclose(gradient, EXPECTED_GRADIENT, rtol=1e-5)
