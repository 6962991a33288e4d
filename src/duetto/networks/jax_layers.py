"""Layers in JAX, as Equinox modules. The counterpart of `networks/torch_layers.py`."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from duetto.networks.encoding import encode
from duetto.networks.jax_recurrent import CELLS, unroll
from duetto.networks.specs import Recurrent
from duetto.networks.windows import Window

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu, "silu": jax.nn.silu}


class Linear(eqx.Module):
    """y = x Wᵀ + b, (..., in) to (..., out). With members, M maps at once as one batched product: (M, B, in) or (B, in)
    to (M, B, out).
    """

    weight: Array  # (out, in) or (M, out, in), as in PyTorch
    bias: Array

    def __call__(self, x: Array) -> Array:
        """See the class."""
        if self.weight.ndim == 2:
            return x @ self.weight.T + jnp.reshape(self.bias, (*(1,) * (x.ndim - 1), -1))
        if x.ndim == 2:
            x = jnp.broadcast_to(x, (len(self.weight), *x.shape))
        return x @ jnp.swapaxes(self.weight, -1, -2) + self.bias[:, None]

    def member(self, x: Array, index: int) -> Array:
        """One member's map alone, (B, in) to (B, out)."""
        return x @ self.weight[index].T + self.bias[index][None]


class Convolution(eqx.Module):
    """A convolution without padding and ReLU, (B, H, W, in) to (B, H', W', out)."""

    weight: Array  # (out, in, height, width), as in PyTorch
    bias: Array
    stride: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """See the class. `scale` multiplies the weights, which are fewer numbers than the input."""
        kernel = jnp.transpose(self.weight * self.scale, (2, 3, 1, 0))
        strides, layout = (self.stride, self.stride), ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=layout)
        return jax.nn.relu(x + self.bias[None, None, None])


class RecurrentLayers(eqx.Module):
    """See `specs.Recurrent`. The parameters have the names and layouts of PyTorch's `nn.LSTM` and `nn.GRU`."""

    spec: Recurrent = eqx.field(static=True)
    weights: dict[str, Array]

    def __call__(self, x: Array, window: Window) -> tuple[Array, dict[str, Array]]:
        """Features (B, S, F) to (B, S, size), and the carry after the last of them."""
        previous = encode(self.spec.action, window.previous_action)
        x = jnp.concatenate([x, previous.astype(x.dtype), window.previous_reward[..., None].astype(x.dtype)], -1)
        carry = {
            name: window.carry[name].astype(x.dtype) if name in window.carry else jnp.zeros((len(x), *shape), x.dtype)
            for name, shape in self.spec.state().items()
        }
        x, starts = jnp.swapaxes(x, 0, 1), jnp.swapaxes(window.starts, 0, 1)  # time first
        after: list[tuple[Array, ...]] = []
        for layer in range(self.spec.layers):
            state = tuple(part[:, layer] for part in carry.values())
            x, state = self._layer(layer, x, starts, state, window.fresh)
            after.append(state)
        stacked = {name: jnp.stack([state[i] for state in after], 1) for i, name in enumerate(carry)}
        return jnp.swapaxes(x, 0, 1), stacked

    def _layer(
        self, layer: int, x: Array, starts: Array, state: tuple[Array, ...], fresh: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        """(S, B, in) to (S, B, size), and the state (B, size) after the last step; no gradient through the burn-in."""
        w = {kind: self.weights[f"{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        entering = x @ w["weight_ih"].T + w["bias_ih"][None, None]  # of all steps at once
        run = partial(unroll, CELLS[self.spec.kind])
        burn_in, outputs = min(self.spec.burn_in, len(x)), []
        for part in (slice(0, burn_in), slice(burn_in, None)):
            if part.start == burn_in and burn_in:
                kept = fresh if self.spec.learn_from_start else jnp.zeros_like(fresh)
                state = tuple(jnp.where(kept[:, None], h, jax.lax.stop_gradient(h)) for h in state)
            if len(entering[part]):
                output, state = run(entering[part], starts[part], state, w["weight_hh"], w["bias_hh"])
                outputs.append(output)
        return jnp.concatenate(outputs), state
