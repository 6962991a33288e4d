"""Action values: SPEC O15, and Huber's loss."""

from __future__ import annotations

import numpy as np
import pytest

from duetto.functional.q_values import dueling, huber, large_margin, rescale, unrescale, value_of_action
from duetto.networks.preprocessing import seen_reward


def test_o15_dueling():
    np.testing.assert_allclose(dueling(np.array([[1.0]]), np.array([[1.0, 2, 3]])), [[0, 1, 2]])


def test_chosen():
    q = np.array([[1.0, 5, 3], [10, 2, 7]])
    np.testing.assert_array_equal(value_of_action(q, np.array([2, 0])), [3, 10])
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\), action \(2, 1\)"):
        value_of_action(q, np.array([[2], [0]]))


def test_huber():
    """δ = 1: e²/2 to 1, then |e| - 1/2; δ = 0 is the square."""
    error = np.array([-3.0, -1, 0.5, 2])
    np.testing.assert_allclose(huber(error, 1.0), [2.5, 0.5, 0.125, 1.5])
    np.testing.assert_allclose(huber(error, 0.0), error**2)


THREE = [1.0, 2.0, 1.5]


def gradient(backend, function, q, action):
    """Of the sum of `function(q, action)` with respect to q."""
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
        (THREE, 0, 1.8),  # max(1, 2.8, 2.3) - 1
        (THREE, 1, 0.3),  # max(1.8, 2, 2.3) - 2
        (THREE, 2, 1.3),  # max(1.8, 2.8, 1.5) - 1.5
        ([1.0, 3.0, 1.5], 1, 0.0),  # the expert's is above the others by the margin
        ([1.0, 2.5, 1.7], 1, 0.0),  # by exactly the margin
        ([2.0, 2.0, 2.0], 0, 0.8),
    ],
)
def test_o3_large_margin(array, q, action, expected):
    found = large_margin(array([q]), array([action]), 0.8)
    np.testing.assert_allclose(np.asarray(found), [expected], atol=1e-6)


def test_o3_of_several_and_of_sequences(array):
    expected = [[1.8, 0.3], [1.3, 0.8]]
    q = [[THREE, THREE], [THREE, [2.0, 2.0, 2.0]]]
    found = large_margin(array(q), array([[0, 1], [2, 0]]), 0.8)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("q", "action", "expected"),
    [
        (THREE, 0, [-1, 1, 0]),  # both terms: the best rises above the expert's, which counts with -1
        (THREE, 1, [0, -1, 1]),
        ([1.0, 3.0, 1.5], 1, [0, 0, 0]),  # the maximum is the expert's own: its two terms cancel
    ],
)
def test_o3_the_gradient_goes_through_both_terms(backend, q, action, expected):
    found = gradient(backend, lambda x, a: large_margin(x, a, 0.8), [q], [action])
    np.testing.assert_allclose(found, [expected], atol=1e-6)


SMALL = [(-300, -16.6493515729), (-10, -2.3266247904), (-1, -0.4152135624), (0, 0), (0.5, 0.2252448714), (3, 1.003)]
SMALL += [(100, 9.1498756211), (1000, 31.6385840391), (1e6, 1999.0004999999)]
LARGE = [(-300, -19.3493515729), (1, 0.4242135624), (3, 1.03), (10, 2.4166247904), (1000, 40.6385840391)]


@pytest.mark.parametrize(("epsilon", "pairs"), [(1e-3, SMALL), (1e-2, LARGE)])
def test_o1(epsilon, pairs):
    x, h = np.array(pairs, np.float64).T
    np.testing.assert_allclose(rescale(x, epsilon), h, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unrescale(rescale(x, epsilon), epsilon), x, rtol=1e-9, atol=1e-9)


def test_o1_inverse():
    np.testing.assert_allclose(
        unrescale(np.array([-2.0, 0.5, 1, 2, 10]), 1e-3),
        [-7.9523491450, 1.2462627649, 2.9880567017, 7.9523491450, 117.4303227796],
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        unrescale(np.array([0.5, 1, 2, 10]), 1e-2),
        [1.2137352576, 2.8854159255, 7.5525510403, 99.1667245290],
        rtol=1e-9,
    )


def test_o1_float32_does_not_cancel():
    """The textbook's inverse is 4.7e-5 off at 0.001, 5 % of it; this one less than 1e-6 times max(1, |x|)."""
    x = np.array([0.001, 0.01, 0.1, 1, 10, 100, 1000], np.float32)
    back = unrescale(rescale(x, 1e-3), 1e-3)
    assert back.dtype == np.float32
    assert (np.abs(back - x) < 1e-6 * np.maximum(1, x)).all()


@pytest.mark.parametrize(
    ("kind", "seen"), [("raw", [-3, 0, 0.5]), ("sign", [-1, 0, 1]), ("tanh", [-0.9950548, 0, 0.4621172])]
)
def test_seen_rewards(kind, seen):
    np.testing.assert_allclose(seen_reward(kind, np.array([-3, 0, 0.5])), seen, atol=1e-7)
