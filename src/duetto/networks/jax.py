"""Networks in JAX, as Equinox modules. The counterpart of `networks/torch.py`, class by class and name by name."""

from __future__ import annotations

import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.errors import UsageError
from duetto.networks.encoding import encode
from duetto.networks.specs import Actor, Critic, NetworkSpec, initial_parameters

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu, "silu": jax.nn.silu}


def build(spec: NetworkSpec, random: np.random.Generator) -> Any:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    values = initial_parameters(spec, random)
    layers = [
        Linear(jnp.asarray(values[f"layers.{i}.weight"]), jnp.asarray(values[f"layers.{i}.bias"]))
        for i in range(len(spec.layers))
    ]
    return ActorNetwork(spec, layers) if isinstance(spec, Actor) else CriticNetwork(spec, layers)


class Linear(eqx.Module):
    """y = x Wᵀ + b. With members, M maps at once as one batched product: (M, B, in) or (B, in) to (M, B, out)."""

    weight: Array  # (out, in) or (M, out, in), as in PyTorch
    bias: Array

    def __call__(self, x: Array) -> Array:
        """See the class."""
        if self.weight.ndim == 2:
            return x @ self.weight.T + self.bias[None]
        if x.ndim == 2:
            x = jnp.broadcast_to(x, (len(self.weight), *x.shape))
        return x @ jnp.swapaxes(self.weight, -1, -2) + self.bias[:, None]

    def member(self, x: Array, index: int) -> Array:
        """One member's map alone, (B, in) to (B, out)."""
        return x @ self.weight[index].T + self.bias[index][None]


class ActorNetwork(eqx.Module):
    """See `specs.Actor`."""

    spec: Actor = eqx.field(static=True)
    layers: list[Linear]

    def __call__(self, obs: Array) -> Array:
        """Actions (B, A)."""
        x = encode(self.spec.observation, obs).astype(self.layers[0].weight.dtype)
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return jnp.tanh(self.layers[-1](x))


class CriticNetwork(eqx.Module):
    """See `specs.Critic`."""

    spec: Critic = eqx.field(static=True)
    layers: list[Linear]

    def __call__(self, obs: Array, action: Array) -> Array:
        """Every member's value, (members, B)."""
        return self._run(obs, action, lambda layer, x: layer(x))

    def first(self, obs: Array, action: Array) -> Array:
        """The first member's value alone, (B,), at its cost alone."""
        return self._run(obs, action, lambda layer, x: layer.member(x, 0))

    def _run(self, obs: Array, action: Array, apply) -> Array:
        x = encode(self.spec.observation, obs).astype(self.layers[0].weight.dtype)
        for i, layer in enumerate(self.layers):
            if i == self.spec.action_layer:
                joined = jnp.broadcast_to(action, (*x.shape[:-1], action.shape[-1])).astype(x.dtype)
                x = jnp.concatenate([x, joined], -1)
            x = apply(layer, x)
            if i < len(self.layers) - 1:
                x = ACTIVATIONS[self.spec.activation](x)
        return x[..., 0]


class CustomCritics(eqx.Module):
    """An ensemble of a user's own critics."""

    members: list[Any]

    def __call__(self, obs: Array, action: Array) -> Array:
        """Every member\'s value, (members, B)."""
        return jnp.stack([member(obs, action) for member in self.members])

    def first(self, obs: Array, action: Array) -> Array:
        """The first member's value alone, (B,)."""
        return self.members[0](obs, action)


def _custom(spec: NetworkSpec, random: np.random.Generator) -> Any:
    assert spec.custom is not None
    network, arguments = spec.custom.jax, spec.custom.arguments
    if network is None:
        raise UsageError("This network has no JAX class: hand over CustomNetwork(jax=...), or use --backend torch.")
    keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
    made = [network(spec.observation, spec.action_size, key=key, **arguments) for key in keys]
    return CustomCritics(made) if isinstance(spec, Critic) else made[0]
