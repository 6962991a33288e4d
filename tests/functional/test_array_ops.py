"""Gradients that stop, in both frameworks, and shapes that differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from duetto.functional.array_ops import check_same_shape, stop_gradient


def test_the_value_stays(array):
    x = array([[1, -2], [3, 4]])
    found = stop_gradient(x)
    assert type(found) is type(x)
    np.testing.assert_array_equal(found, x)


# d/dx of x · stopped(x) is stopped(x), not 2 x
def test_nothing_flows_through():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad((x * stop_gradient(x)).sum(), x)
    assert gradient.tolist() == [1, -2]
    other = jax.jit(jax.grad(lambda x: (x * stop_gradient(x)).sum()))(jnp.asarray([1.0, -2.0]))
    assert other.tolist() == [1, -2]


def test_equal_shapes_pass(array):
    check_same_shape(one=array([[1.0]]), other=array([[2.0]]))


def test_c14_the_message_shows_every_shape(array):
    with pytest.raises(ValueError, match=r"q \(2,\), target \(2, 1\), weight \(2,\)"):
        check_same_shape(q=array([1.0, 2.0]), target=array([[1.0], [2.0]]), weight=array([1.0, 1.0]))
