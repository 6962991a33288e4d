"""Layers of bfloat16 in JAX, so that a processor makes their products with its own instructions.

XLA hands a product of bfloat16 on to YNNPACK as it is where its result is float32 and each factor lies in the order of
its axes; any other it computes in float32, from copies. So a layer and its derivatives are written here: results are
float32, then rounded, as they were before. The weights' derivative sums over rows and has to turn one factor; XLA takes
a turning back where it sees it, so a row of zeros is laid below. The bias's derivative is a product, too: a sum of
bfloat16 over rows takes longer.

On one core of an Intel Xeon with AMX, 256 rows and layers of 400 and 300: a layer's product 119 and 670 GFLOP/s, that
of the weights' derivative 126 and 410 (float32: 141 and 154); a whole update of TD3 9.7 and 4.0 ms (7.0).

A processor without such instructions multiplies the rounded numbers in float32: a product of two of them is exact
there, so all that differs is the rounding of sums. On one core of an AMD EPYC (Zen 3), 256 rows and layers of 256:
35 GFLOP/s where XLA does what it can with bfloat16, 77 so (float32: 81); TD3 on Hopper 66 and 109 steps a second (105).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from duetto.processor import multiplies_bfloat16


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """x Wᵀ + b of x (..., in), weights (out, in) and biases (out); or of (N, B, in), (N, out, in) and (N, out)."""
    if weight.ndim == 2:
        return jnp.reshape(_linear(jnp.reshape(x, (-1, x.shape[-1])), weight, bias), (*x.shape[:-1], len(weight)))
    return _linear(x, weight, bias)


def product(first: Array, second: Array, axis: int) -> Array:
    """Float32 sums over the last axis of `first` and the axis `axis` of `second`, for each index of the axes before
    these.

    `first` is rounded to bfloat16, which `second` is.
    """
    before = tuple(range(first.ndim - 2))
    dimensions = (((first.ndim - 1,), (second.ndim + axis,)), (before, before))
    multiply = partial(jax.lax.dot_general, dimension_numbers=dimensions, preferred_element_type=jnp.float32)
    rounded = first.astype(jnp.bfloat16)
    if multiplies_bfloat16():
        return multiply(rounded, second)
    return jax.lax.platform_dependent(rounded, second, cpu=partial(_in_float32, multiply), default=multiply)


def _in_float32(multiply: Callable[[Array, Array], Array], first: Array, second: Array) -> Array:
    return multiply(first.astype(jnp.float32), second.astype(jnp.float32))


def sum_rows(rows: Array) -> Array:
    """A bias's derivative (..., out), float32, from rows (..., B, out) of bfloat16."""
    ones = jnp.ones((*rows.shape[:-2], 1, rows.shape[-2]), rows.dtype)
    return jnp.squeeze(product(ones, rows, -2), -2)


def over_rows(gradient: Array, x: Array) -> Array:
    """A weight's derivative (..., out, in), float32, from rows (..., B, out) and (..., B, in) of bfloat16."""
    return jax.lax.platform_dependent(gradient, x, cpu=_over_rows_padded, default=_over_rows)


def _over_rows(gradient: Array, x: Array) -> Array:
    return product(jnp.swapaxes(gradient, -1, -2), x, -2)


def _over_rows_padded(gradient: Array, x: Array) -> Array:
    turned = jnp.swapaxes(gradient, -1, -2)
    below = [(0, 0, 0)] * (turned.ndim - 2) + [(0, 1, 0), (0, 0, 0)]
    return product(jax.lax.pad(turned, jnp.zeros((), turned.dtype), below), x, -2)[..., :-1, :]


def to_bits(x: Array) -> Array:
    """x rounded to bfloat16, its bits as uint16: a loop that collects bfloat16 converts all of it at every step."""
    return jax.lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16)


def from_bits(bits: Array) -> Array:
    """The bfloat16 numbers whose bits `to_bits` returned."""
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16)


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
