"""Stopped gradients, shape checks, concatenation of trees, and Ornstein-Uhlenbeck noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from duetto.functional.array_ops import check_same_shape, concat, ornstein_uhlenbeck, stop_gradient
from duetto.networks.layers import SequenceInput


# d/dx of x · stopped(x) is stopped(x), not 2 x
def test_stop_gradient_blocks_gradient():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad((x * stop_gradient(x)).sum(), x)
    assert gradient.tolist() == [1, -2]
    other = jax.jit(jax.grad(lambda x: (x * stop_gradient(x)).sum()))(jnp.asarray([1.0, -2.0]))
    assert other.tolist() == [1, -2]


def test_shape_mismatch_error_lists_every_shape_c14(array):
    with pytest.raises(ValueError, match=r"q \(2,\), target \(2, 1\), weight \(2,\)"):
        check_same_shape(q=array([1.0, 2.0]), target=array([[1.0], [2.0]]), weight=array([1.0, 1.0]))


def test_concat_joins_every_array_of_trees(array):
    one, other = ({"a": array([k]), "b": (array([[k]]), None)} for k in (1, 2))
    found = concat(one, other)
    np.testing.assert_array_equal(found["a"], [1, 2])
    np.testing.assert_array_equal(found["b"][0], [[1], [2]])
    assert found["b"][1] is None
    window = SequenceInput(
        array([[1]]), array([[2]]), array([[3]]), array([[0]]), {"h": array([[4]])}, array([1]), None
    )
    both = concat(window, window._replace(query_steps=None, obs=array([[7]])))
    assert isinstance(both, SequenceInput)
    np.testing.assert_array_equal(both.obs, [[1], [7]])
    np.testing.assert_array_equal(both.carry["h"], [[4], [4]])


def test_ornstein_uhlenbeck_by_hand_o8(array):
    """θ .15, σ .2: 0 + .2 = .2; .2 - .03 - .2 = -.03; -.03 + .0045 + .1 = .0745; .0745 · .85; · .85 + .4."""
    x, seen = array([0.0]), []
    for normal in (1.0, -1.0, 0.5, 0.0, 2.0):
        x = ornstein_uhlenbeck(x, array([normal]), 0.15, 0.2)
        seen.append(float(x[0]))
    np.testing.assert_allclose(seen, [0.2, -0.03, 0.0745, 0.063325, 0.45382625], rtol=1e-5)
