"""Linear layers in bfloat16 for JAX. They and their derivatives use the CPU's bfloat16 instructions.

XLA passes a bfloat16 product to YNNPACK, a library for CPUs, only if the result is float32 and both factors are
contiguous. XLA converts the factors of all other products to float32. So this file computes a layer and its derivatives
with float32 results, and rounds these. One factor of the weights' derivative is transposed. A row of zeros below this
factor keeps XLA from merging the transpose into the product, whose factor would then not be contiguous. The bias's
derivative is a product because a bfloat16 sum over rows is slower.

    TD3 on one core                                  XLA alone    this file    float32
    Intel Xeon with AMX, ms per update (256 rows)          9.7          4.0        7.0
    AMD EPYC (Zen 3), steps/s on Hopper                     66          109        105

A CPU without these instructions multiplies the rounded numbers in float32, where a product of two of them is exact.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from duetto.cpu import multiplies_bfloat16


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return x Wᵀ + b for x (..., in), W (out, in) and b (out,).

    For an ensemble of N members, x is (N, B, in), W (N, out, in) and b (N, out).
    """
    if weight.ndim == 2:
        return jnp.reshape(_linear(jnp.reshape(x, (-1, x.shape[-1])), weight, bias), (*x.shape[:-1], len(weight)))
    return _linear(x, weight, bias)


def product(first: Array, second: Array, axis: int) -> Array:
    """Contract the last axis of `first` with the axis `axis` of `second`; return float32.

    Axes before the last two are batch axes. `first` is rounded to bfloat16; `second` is bfloat16 already.
    """
    before = tuple(range(first.ndim - 2))
    dimensions = (((first.ndim - 1,), (second.ndim + axis,)), (before, before))
    multiply = partial(jax.lax.dot_general, dimension_numbers=dimensions, preferred_element_type=jnp.float32)

    def in_float32(first: Array, second: Array) -> Array:
        return multiply(first.astype(jnp.float32), second.astype(jnp.float32))

    rounded = first.astype(jnp.bfloat16)
    if multiplies_bfloat16():
        return multiply(rounded, second)
    return jax.lax.platform_dependent(rounded, second, cpu=in_float32, default=multiply)


def sum_rows(rows: Array) -> Array:
    """Return the sum of bfloat16 `rows` (..., B, out) as (..., out) float32: the derivative of a bias."""
    ones = jnp.ones((*rows.shape[:-2], 1, rows.shape[-2]), rows.dtype)
    return jnp.squeeze(product(ones, rows, -2), -2)


def over_rows(gradient: Array, x: Array) -> Array:
    """Return a weight's derivative (..., out, in) float32. `gradient` (..., B, out) and x (..., B, in) are bfloat16."""
    turned = jnp.swapaxes(gradient, -1, -2)
    return jax.lax.platform_dependent(turned, x, cpu=_padded_product, default=partial(product, axis=-2))


def _padded_product(turned: Array, x: Array) -> Array:
    below = [(0, 0, 0)] * (turned.ndim - 2) + [(0, 1, 0), (0, 0, 0)]
    return product(jax.lax.pad(turned, jnp.zeros((), turned.dtype), below), x, -2)[..., :-1, :]


@jax.custom_vjp
def _linear(x: Array, weight: Array, bias: Array) -> Array:
    return product(x, weight, -1).astype(jnp.bfloat16) + jnp.expand_dims(bias, -2)


def _forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return _linear(x, weight, bias), (x, weight)


def _backward(seen: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = seen
    of_x, of_weight, of_bias = product(gradient, weight, -2), over_rows(gradient, x), sum_rows(gradient)
    return of_x.astype(jnp.bfloat16), of_weight.astype(jnp.bfloat16), of_bias.astype(jnp.bfloat16)


_linear.defvjp(_forward, _backward)
