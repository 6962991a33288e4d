"""Action values: dueling, Huber and large-margin losses, rescaling, previous rewards: SPEC O1, O3, O15."""

from __future__ import annotations

import numpy as np
import pytest

from duetto.functional.q_values import dueling, huber, large_margin, rescale, unrescale, value_of_action
from duetto.networks.preprocessing import seen_reward


def test_dueling_subtracts_mean_advantage_o15():
    np.testing.assert_allclose(dueling(np.array([[1.0]]), np.array([[1.0, 2, 3]])), [[0, 1, 2]])


def test_value_of_action_selects_by_index():
    q = np.array([[1.0, 5, 3], [10, 2, 7]])
    np.testing.assert_array_equal(value_of_action(q, np.array([2, 0])), [3, 10])
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\), action \(2, 1\)"):
        value_of_action(q, np.array([[2], [0]]))


def test_huber_loss_by_hand():
    """δ = 1 gives e²/2 up to |e| = 1, then |e| - 1/2; δ = 0 gives e²."""
    error = np.array([-3.0, -1, 0.5, 2])
    np.testing.assert_allclose(huber(error, 1.0), [2.5, 0.5, 0.125, 1.5])
    np.testing.assert_allclose(huber(error, 0.0), error**2)


Q_VALUES = [1.0, 2.0, 1.5]


def gradient(backend, function, q, action):
    """Return the gradient of the sum of `function(q, action)` with respect to q."""
    if backend == "torch":
        import torch

        x = torch.tensor(q, requires_grad=True)
        function(x, torch.tensor(action)).sum().backward()
        assert x.grad is not None
        return x.grad.numpy()
    import jax
    import jax.numpy as jnp

    with jax.numpy_rank_promotion("raise"):  # as in the learner
        return np.asarray(jax.grad(lambda x: function(x, jnp.asarray(action)).sum())(jnp.asarray(q)))


@pytest.mark.parametrize(
    ("q", "action", "expected"),
    [
        (Q_VALUES, 0, 1.8),  # max(1, 2.8, 2.3) - 1
        (Q_VALUES, 1, 0.3),  # max(1.8, 2, 2.3) - 2
        (Q_VALUES, 2, 1.3),  # max(1.8, 2.8, 1.5) - 1.5
        ([1.0, 3.0, 1.5], 1, 0.0),  # the expert's value exceeds the others by the margin
    ],
)
def test_large_margin_loss_by_hand_o3(array, q, action, expected):
    found = large_margin(array([[q, Q_VALUES]]), array([[action, 2]]), 0.8)  # of a sequence
    np.testing.assert_allclose(np.asarray(found), [[expected, 1.3]], atol=1e-6)


@pytest.mark.parametrize(
    ("q", "action", "expected"),
    [
        (Q_VALUES, 0, [-1, 1, 0]),  # 1 for the maximum, -1 for the expert's action
        ([1.0, 3.0, 1.5], 1, [0, 0, 0]),  # the maximum is at the expert's action, so 1 and -1 cancel
    ],
)
def test_large_margin_gradient_flows_through_both_terms_o3(backend, q, action, expected):
    found = gradient(backend, lambda x, a: large_margin(x, a, 0.8), [q], [action])
    np.testing.assert_allclose(found, [expected], atol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "x", "h"),
    [
        (1e-3, [-300, -1, 0, 0.5, 1e6], [-16.6493515729, -0.4152135624, 0, 0.2252448714, 1999.0004999999]),
        (1e-2, [-300, 1, 3, 1000], [-19.3493515729, 0.4242135624, 1.03, 40.6385840391]),
    ],
)
def test_value_rescaling_and_inverse_o1(epsilon, x, h):
    np.testing.assert_allclose(rescale(np.array(x), epsilon), h, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unrescale(np.array(h), epsilon), x, rtol=1e-9, atol=1e-9)


def test_inverse_rescaling_is_accurate_in_float32_o1():
    """The textbook inverse has an error of 4.7e-5 (5 %) at 0.001; here it is less than 1e-6 · max(1, |x|)."""
    x = np.array([0.001, 0.01, 0.1, 1, 10, 100, 1000], np.float32)
    back = unrescale(rescale(x, 1e-3), 1e-3)
    assert back.dtype == np.float32
    assert (np.abs(back - x) < 1e-6 * np.maximum(1, x)).all()


@pytest.mark.parametrize(
    ("kind", "seen"), [("raw", [-3, 0, 0.5]), ("sign", [-1, 0, 1]), ("tanh", [-0.9950548, 0, 0.4621172])]
)
def test_previous_reward_transforms(kind, seen):
    np.testing.assert_allclose(seen_reward(kind, np.array([-3, 0, 0.5])), seen, atol=1e-7)
