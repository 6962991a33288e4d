"""Where gradients end, in both frameworks; NumPy has none."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from duetto.functional.gradients import stop_gradient


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
