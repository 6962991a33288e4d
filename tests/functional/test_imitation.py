"""SPEC O3, by value and by gradient; cross-entropy by hand."""

from __future__ import annotations

import numpy as np
import pytest

from duetto.functional.imitation import cross_entropy, large_margin

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


def test_cross_entropy(array):
    """SPEC O6's logits [1, 0, -1, 0]: -log p = [.626523375, 1.626523375, 2.626523375, 1.626523375]."""
    found = cross_entropy(array([[1.0, 0.0, -1.0, 0.0]] * 4), array([0, 1, 2, 3]))
    np.testing.assert_allclose(np.asarray(found), [0.626523375, 1.626523375, 2.626523375, 1.626523375], rtol=1e-6)
