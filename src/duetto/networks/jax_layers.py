"""The functions that `layers` lists, in JAX; the counterpart of `networks/torch_layers.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from duetto.networks import jax_bfloat16
from duetto.networks.batch_norm import broadcastable, moments
from duetto.networks.layers import RecurrentSpec, SequenceInput

Values = Mapping[str, Array]
State = tuple[Array, ...]  # of a recurrent layer, (B, size) each; the first one is also the output
activations: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """Return x Wᵀ + b, for an ensemble one product per member; see the list in `layers`."""
    if bias is None:  # XLA removes the addition
        bias = jnp.zeros(weight.shape[:-1], weight.dtype)
    if weight.ndim == 3 and x.ndim == 2:
        x = jnp.broadcast_to(x, (len(weight), *x.shape))
    if x.dtype == jnp.bfloat16:
        return jax_bfloat16.linear(x, weight, bias)
    if weight.ndim == 2:
        return x @ weight.T + jnp.reshape(bias, (*(1,) * (x.ndim - 1), -1))
    return x @ jnp.swapaxes(weight, -1, -2) + bias[:, None]


def norm(x: Array, scale: Array, shift: Array) -> Array:
    """Apply layer normalization over the last axis, in float32 as in PyTorch."""
    dtype, x = x.dtype, x.astype(jnp.float32)
    centered = x - jnp.mean(x, -1, keepdims=True)
    x = centered * jax.lax.rsqrt(jnp.mean(centered**2, -1, keepdims=True) + 1e-5)
    return (x * broadcastable(scale, x) + broadcastable(shift, x)).astype(dtype)


def batch_norm(x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    """Normalize x over its rows, with a hand-written gradient.

    This gradient makes fewer passes over the rows than JAX's automatic gradient: CrossQ's update with critics of 512
    and 512 units takes 0.87 times as long.
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
    """Return the gradients dx, dγ and dβ, given dy. With n rows, s² = σ² + ε and x̂ = (x - μ) / s:

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
    zero = jnp.zeros_like(mean)  # x's gradient includes the paths through mean and variance
    return x_gradient.astype(dtype), scale_gradient, shift_gradient, zero, zero


_batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)


def conv_relu(x: Array, weight: Array, bias: Array, stride: int, factor: float) -> Array:
    """Return ReLU of the convolution of factor · x. `factor` scales the weights, which are smaller than x."""
    kernel = jnp.transpose(weight * factor, (2, 3, 1, 0))
    strides, layout = (stride, stride), ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=layout)
    return jax.nn.relu(x + bias[None, None, None])


def prepare_image(image: Array, channels_first: bool, like: Array) -> Array:
    """Return images (B, H, W, C) in the dtype of `like`."""
    return (jnp.moveaxis(image, -3, -1) if channels_first else image).astype(like.dtype)


def flatten(image: Array) -> Array:
    """Return the convolutions' outputs as (B, features)."""
    return jnp.reshape(image, (image.shape[0], -1))


def split_members(values: Values) -> None:
    """Return None, because JAX computes all members in one batched product."""
    return


def cast_input(x: Array, like: Array) -> Array:
    """Return x in the dtype of `like`."""
    return x.astype(like.dtype)


def output_linear(x: Array, weight: Array, bias: Array) -> Array:
    """Apply the last layer in float32; its weights are float32 already, see `jax.JaxNetwork`."""
    return linear(x.astype(jnp.float32), weight, bias)


# ---------------------------------------------------------------------------------------------------- recurrent layers
def recurrent(
    spec: RecurrentSpec, weights: Values, x: Array, carry: dict[str, Array], window: SequenceInput
) -> tuple[Array, dict[str, Array]]:
    """Return outputs (B, S, size) and last hidden states; states and gates are float32 in every precision."""
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
    entering = linear(x, w["weight_ih"], w["bias_ih"])  # for all steps at once
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


class Cell(NamedTuple):
    """A step of a recurrent layer, and its gradient.

    A step's inputs are x Wᵀ + b and h Wᵀ + b, (B, gates * size) each, and the state before the step. If both products
    have the same gradient, `backward` returns the same object twice, to save memory.
    """

    forward: Callable[[Array, Array, State], tuple[State, State]]  # next state, residuals
    backward: Callable[[State, State, State], tuple[Array, Array, State]]  # residuals, state, next state's gradients


def _lstm(entering: Array, recurrent: Array, state: State) -> tuple[State, State]:
    """One step of an LSTM (Hochreiter & Schmidhuber, 1997); gates in PyTorch's order: input, forget, cell, output."""
    scale = jnp.repeat(jnp.asarray([0.5, 0.5, 1.0, 0.5], entering.dtype), state[1].shape[-1])[None]
    gates = jnp.tanh((entering + recurrent) * scale) * scale + (1 - scale)  # σ(x) = tanh(x/2)/2 + 1/2, in one pass
    i, f, g, o = jnp.split(gates, 4, -1)
    c = f * state[1] + i * g
    squashed = jnp.tanh(c)
    return (o * squashed, c), (gates, squashed)


def _lstm_back(kept: State, state: State, gradients: State) -> tuple[Array, Array, State]:
    (gates, squashed), (to_h, to_c) = kept, gradients
    i, f, g, o = jnp.split(gates, 4, -1)
    to_c = to_c + to_h * o * (1 - squashed**2)
    to_gates = (to_c * g * i * (1 - i), to_c * state[1] * f * (1 - f), to_c * i * (1 - g**2))
    to_product = jnp.concatenate([*to_gates, to_h * squashed * o * (1 - o)], -1)
    return to_product, to_product, (jnp.zeros_like(to_h), to_c * f)


def _gru(entering: Array, recurrent: Array, state: State) -> tuple[State, State]:
    """One step of PyTorch's GRU (Cho et al., 2014); gates: reset, update, new."""
    (xr, xz, xn), (hr, hz, hn) = jnp.split(entering, 3, -1), jnp.split(recurrent, 3, -1)
    r, z = jnp.tanh((xr + hr) / 2) / 2 + 0.5, jnp.tanh((xz + hz) / 2) / 2 + 0.5
    n = jnp.tanh(xn + r * hn)
    return (n + z * (state[0] - n),), (r, z, n, hn)


def _gru_back(kept: State, state: State, gradients: State) -> tuple[Array, Array, State]:
    (r, z, n, hn), (to_h,) = kept, gradients
    to_n = to_h * (1 - z) * (1 - n**2)
    to_r, to_z = to_n * hn * r * (1 - r), to_h * (state[0] - n) * z * (1 - z)
    return jnp.concatenate([to_r, to_z, to_n], -1), jnp.concatenate([to_r, to_z, to_n * r], -1), (to_h * z,)


CELLS = {"lstm": Cell(_lstm, _lstm_back), "gru": Cell(_gru, _gru_back)}


def unroll(cell: Cell, entering: Array, starts: Array, state: State, weight: Array, bias: Array) -> tuple[Array, State]:
    """Run a recurrent layer over S steps; return its outputs (S, B, size) and the last state.

    `entering` (S, B, gates * size) is x Wᵀ + b; `state` is the state before the first step. The state is zeroed before
    steps that are True in `starts` (S, B). `weight` (gates * size, size) and `bias` are for h. Outputs and states are
    float32, all other arrays float32 or bfloat16.

    The gradient of the loop is hand-written. JAX's gradient would add to an array of the weights' size at each backward
    step. Here the steps only collect the gradients of their products, and one product over all steps gives the weights'
    gradient. An update of R2D2 with an LSTM of 512 units (16 sequences of 40 steps, one core of an AMD EPYC, Zen 5)
    takes 165 ms instead of 341; with 128 units, 31 ms with either gradient. The gradients of the cells are hand-written
    too: with JAX's gradients, a GRU of 128 units is 1.4 times as slow.
    """
    return _unroll(cell, entering, starts, state, weight, bias)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(
    cell: Cell, entering: Array, starts: Array, state: State, weight: Array, bias: Array
) -> tuple[Array, State]:
    return _unroll_forward(cell, entering, starts, state, weight, bias)[0]


def _unroll_forward(cell: Cell, entering: Array, starts: Array, state: State, weight: Array, bias: Array) -> Any:
    rounded, turned = weight.dtype == jnp.bfloat16, weight.T  # once, not at every step

    def step(state: State, now: tuple[Array, Array]) -> tuple[State, Any]:
        x, start = now
        before = tuple(jnp.where(start[:, None], 0, part) for part in state)
        product = jax_bfloat16.product(before[0], weight, -1) if rounded else before[0] @ turned
        after, kept = cell.forward(x.astype(jnp.float32), product + bias[None].astype(jnp.float32), before)
        return after, (after[0], kept, before)

    last, (outputs, kept, before) = jax.lax.scan(step, state, (entering, starts))
    return (outputs, last), (starts, kept, before, weight)


def _unroll_backward(
    cell: Cell, residuals: Any, gradients: tuple[Array, State]
) -> tuple[Array, None, State, Array, Array]:
    starts, kept, before, weight = residuals
    rounded = weight.dtype == jnp.bfloat16

    def step(after: State, now: Any) -> tuple[State, tuple[Array, Array | None]]:
        start, kept, before, output = now
        to_x, to_product, direct = cell.backward(kept, before, (after[0] + output, *after[1:]))
        to_h = jax_bfloat16.product(to_product, weight, -2) if rounded else to_product @ weight
        state = tuple(jnp.where(start[:, None], 0, part) for part in (direct[0] + to_h, *direct[1:]))
        collected = to_x, None if to_product is to_x else to_product
        return state, jax.tree.map(jax_bfloat16.to_bits, collected) if rounded else collected

    outputs, last = gradients
    first, collected = jax.lax.scan(step, last, (starts, kept, before, outputs), reverse=True)
    to_entering, to_products = jax.tree.map(jax_bfloat16.from_bits, collected) if rounded else collected
    to_products = to_entering if to_products is None else to_products
    if rounded:
        rows, h = (jnp.reshape(part, (-1, part.shape[-1])) for part in (to_products, before[0]))
        to_weight, to_bias = jax_bfloat16.over_rows(rows, h.astype(rows.dtype)), jax_bfloat16.sum_rows(rows)
    else:
        to_weight, to_bias = jnp.einsum("sbg,sbh->gh", to_products, before[0]), jnp.sum(to_products, (0, 1))
    return to_entering, None, first, to_weight.astype(weight.dtype), to_bias.astype(weight.dtype)


_unroll.defvjp(_unroll_forward, _unroll_backward)
