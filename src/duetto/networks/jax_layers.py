"""Layers in JAX (see `layers`); the counterpart of `networks/torch_layers.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from duetto.networks import jax_bfloat16
from duetto.networks.batch_norm import broadcastable, moments
from duetto.networks.jax_recurrent import CELLS, unroll
from duetto.networks.layers import RecurrentSpec
from duetto.networks.sequence_input import SequenceInput

Values = Mapping[str, Array]
activations: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """`linear` in JAX."""
    if bias is None:  # XLA leaves it out
        bias = jnp.zeros(weight.shape[:-1], weight.dtype)
    if weight.ndim == 3 and x.ndim == 2:
        x = jnp.broadcast_to(x, (len(weight), *x.shape))
    if x.dtype == jnp.bfloat16:
        return jax_bfloat16.linear(x, weight, bias)
    if weight.ndim == 2:
        return x @ weight.T + jnp.reshape(bias, (*(1,) * (x.ndim - 1), -1))
    return x @ jnp.swapaxes(weight, -1, -2) + bias[:, None]


def norm(x: Array, scale: Array, shift: Array) -> Array:
    """`norm` in JAX; computed in float32 as in PyTorch."""
    dtype, x = x.dtype, x.astype(jnp.float32)
    centered = x - jnp.mean(x, -1, keepdims=True)
    x = centered * jax.lax.rsqrt(jnp.mean(centered**2, -1, keepdims=True) + 1e-5)
    shape = (*(1,) * (x.ndim - 1), -1) if scale.ndim == 1 else (len(scale), 1, -1)
    return (x * jnp.reshape(scale, shape) + jnp.reshape(shift, shape)).astype(dtype)


def batch_norm(x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    """`batch_norm` in JAX, with a gradient written out: it takes fewer passes over the rows than derivatives of each
    operation. CrossQ's update with critics of 512 and 512 takes 0.87 times as long.
    """
    mean, variance = moments(jax.lax.stop_gradient(x), tuple(range(scale.ndim - 1, x.ndim - 1)))
    return _batch_norm(x, scale, shift, mean, variance, epsilon)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _batch_norm(x: Array, scale: Array, shift: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    factor = scale * jax.lax.rsqrt(variance + epsilon)
    return ((x - broadcastable(mean, x)) * broadcastable(factor, x) + broadcastable(shift, x)).astype(x.dtype)


def _batch_norm_forward(*inputs: Any) -> tuple[Array, tuple[Array, ...]]:
    x, scale, _, mean, variance, _ = inputs
    return _batch_norm(*inputs), (x, scale, mean, variance)


def _batch_norm_backward(epsilon: float, saved: tuple[Array, ...], gradient: Array) -> tuple[Array, ...]:
    """Return the gradients of x, γ and β; with n rows, s² = σ² + ε and x̂ = (x - μ) / s:

    dx = γ / s (dy - Σ dy / n - x̂ Σ (dy x̂) / n),  dγ = Σ (dy x̂),  dβ = Σ dy
    """
    x, scale, mean, variance = saved
    centered, inverse = x - broadcastable(mean, x), jax.lax.rsqrt(variance + epsilon)
    dtype, gradient = gradient.dtype, gradient.astype(jnp.float32)
    axes = tuple(range(scale.ndim - 1, x.ndim - 1))
    shift_gradient, scale_gradient = jnp.sum(gradient, axes), jnp.sum(gradient * centered, axes) * inverse
    rows, factor = x.size // scale.size, scale * inverse
    constant, slope = factor * shift_gradient / rows, factor * inverse * scale_gradient / rows
    x_gradient = gradient * broadcastable(factor, x) - broadcastable(constant, x) - centered * broadcastable(slope, x)
    zero = jnp.zeros_like(mean)  # x's gradient has those through mean and variance
    return x_gradient.astype(dtype), scale_gradient, shift_gradient, zero, zero


_batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


def conv_relu(x: Array, weight: Array, bias: Array, stride: int, factor: float) -> Array:
    """`conv_relu` in JAX. `factor` multiplies the weights, which are smaller than the input."""
    kernel = jnp.transpose(weight * factor, (2, 3, 1, 0))
    strides, layout = (stride, stride), ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=layout)
    return jax.nn.relu(x + bias[None, None, None])


def prepare_image(image: Array, channels_first: bool, like: Array) -> Array:
    """Images (B, H, W, C) in the dtype of `like`."""
    return (jnp.moveaxis(image, -3, -1) if channels_first else image).astype(like.dtype)


def flatten(image: Array) -> Array:
    """`flatten` in JAX."""
    return jnp.reshape(image, (image.shape[0], -1))


def split_members(values: Values) -> None:
    """Return None: all members are one batched product."""
    return


def cast_input(x: Array, like: Array) -> Array:
    """`cast_input` in JAX."""
    return x.astype(like.dtype)


def output_linear(x: Array, weight: Array, bias: Array) -> Array:
    """`output_linear` in JAX; the weights are float32, see `jax.JaxNetwork`."""
    return linear(x.astype(jnp.float32), weight, bias)


def recurrent(
    spec: RecurrentSpec, weights: Values, x: Array, carry: dict[str, Array], window: SequenceInput
) -> tuple[Array, dict[str, Array]]:
    """`recurrent` in JAX; the carry is float32 in every precision."""
    x, starts, dtype = jnp.swapaxes(x, 0, 1), jnp.swapaxes(window.starts, 0, 1), x.dtype  # time first
    after: list[tuple[Array, ...]] = []
    for layer in range(spec.layers):
        state = tuple(part[:, layer].astype(jnp.float32) for part in carry.values())
        x, state = _layer(spec, weights, layer, x.astype(dtype), starts, state, window.is_first)
        after.append(state)
    stacked = {name: jnp.stack([state[i] for state in after], 1) for i, name in enumerate(carry)}
    return jnp.swapaxes(x, 0, 1).astype(dtype), stacked


def _layer(
    spec: RecurrentSpec, weights: Values, layer: int, x: Array, starts: Array, state: tuple[Array, ...], is_first: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return a layer's outputs (S, B, size) for x (S, B, in), and its last state; the burn-in has no gradient."""
    w = {kind: weights[f"{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    entering = linear(x, w["weight_ih"], w["bias_ih"])  # of all steps at once
    run = partial(unroll, CELLS[spec.kind])
    burn_in, outputs = min(spec.burn_in, len(x)), []
    for part in (slice(0, burn_in), slice(burn_in, None)):
        if part.start == burn_in and burn_in:
            kept = is_first if spec.learn_from_start else jnp.zeros_like(is_first)
            state = tuple(jnp.where(kept[:, None], h, jax.lax.stop_gradient(h)) for h in state)
        if len(entering[part]):
            output, state = run(entering[part], starts[part], state, w["weight_hh"], w["bias_hh"])
            outputs.append(output)
    return jnp.concatenate(outputs), state
