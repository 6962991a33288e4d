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
from duetto.functional.distributions import Distribution
from duetto.networks.encoding import convolutions, encode, split
from duetto.networks.initial import initial_parameters
from duetto.networks.policies import distribution
from duetto.networks.spaces import Box
from duetto.networks.specs import Actor, ActorCritic, Critic, NetworkSpec, Torso

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu, "silu": jax.nn.silu}


def build(spec: NetworkSpec, random: np.random.Generator) -> Any:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    values = {name: jnp.asarray(value) for name, value in initial_parameters(spec, random).items()}
    if isinstance(spec, ActorCritic):
        return _actor_critic(spec, values)
    layers = [
        Linear(values[f"layers.{i}.weight"], values[f"layers.{i}.bias"]) for i in range(len(spec.layers))
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


class TorsoNetwork(eqx.Module):
    """See `specs.Torso`."""

    spec: Torso = eqx.field(static=True)
    convolutions: dict[str, list[Convolution]]
    features: dict[str, Linear]
    layers: list[Linear]

    def __call__(self, obs: Array | dict[str, Array]) -> Array:
        """Features (B, width)."""
        images, vectors = split(self.spec.observation, obs)
        encoded = [self._features(name, image) for name, image in images.items()]
        dtype = jax.tree.leaves((self.layers, self.features))[0].dtype
        encoded += [vector.astype(dtype) for vector in vectors]
        x = encoded[0] if len(encoded) == 1 else jnp.concatenate(encoded, -1)
        for layer in self.layers:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return x

    def _features(self, name: str, image: Array) -> Array:
        x = jnp.moveaxis(image, -3, -1) if self.spec.images[name].channels_first else image
        x = x.astype(self.features[name].weight.dtype)
        for convolution in self.convolutions[name]:
            x = convolution(x)
        x = jnp.moveaxis(x, -1, -3)  # PyTorch flattens channels first
        return jax.nn.relu(self.features[name](jnp.reshape(x, (len(x), -1))))


class ActorCriticNetwork(eqx.Module):
    """See `specs.ActorCritic`."""

    spec: ActorCritic = eqx.field(static=True)
    log_std: Array | None
    torso: TorsoNetwork | None
    policy_torso: TorsoNetwork | None
    value_torso: TorsoNetwork | None
    policy_head: Linear
    value_head: Linear

    def __call__(self, obs: Array) -> tuple[Distribution, Array]:
        """The policy, and values (B,)."""
        features = [getattr(self, name)(obs) for name in self.spec.torsos]
        parameters = self.policy_head(features[0])
        if self.log_std is not None:
            parameters = jnp.concatenate([parameters, jnp.broadcast_to(self.log_std, parameters.shape)], -1)
        return distribution(self.spec.action, parameters), self.value_head(features[-1])[..., 0]


def _actor_critic(spec: ActorCritic, values: dict[str, Array]) -> ActorCriticNetwork:
    def linear(name: str) -> Linear:
        return Linear(values[f"{name}.weight"], values[f"{name}.bias"])

    def torso(prefix: str) -> TorsoNetwork:
        stacks = {name: convolutions(image) for name, image in spec.torso.images.items()}
        layers = {
            name: [
                Convolution(
                    values[f"{prefix}.convolutions.{name}.{i}.weight"],
                    values[f"{prefix}.convolutions.{name}.{i}.bias"],
                    stride,
                    1.0 if i else 1 / 255,
                )
                for i, (_, _, stride) in enumerate(stack)
            ]
            for name, stack in stacks.items()
        }
        features = {name: linear(f"{prefix}.features.{name}") for name in stacks}
        return TorsoNetwork(
            spec.torso, layers, features, [linear(f"{prefix}.layers.{i}") for i in range(len(spec.torso.layers))]
        )

    torsos = {name: torso(name) if name in spec.torsos else None for name in ("torso", "policy_torso", "value_torso")}
    return ActorCriticNetwork(
        spec,
        values["log_std"] if isinstance(spec.action, Box) else None,
        **torsos,
        policy_head=linear("policy_head"),
        value_head=linear("value_head"),
    )


class CustomActorCritic(eqx.Module):
    """A user's own policy and value function."""

    spec: ActorCritic = eqx.field(static=True)
    network: Any

    def __call__(self, obs: Array) -> tuple[Distribution, Array]:
        """See the class."""
        parameters, value = self.network(obs)
        return distribution(self.spec.action, parameters), value


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
    if isinstance(spec, ActorCritic):
        return CustomActorCritic(spec, made[0])
    return CustomCritics(made) if isinstance(spec, Critic) else made[0]
