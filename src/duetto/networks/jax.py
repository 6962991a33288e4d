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
from duetto.functional.values import dueling
from duetto.networks.encoding import convolutions, encode, split
from duetto.networks.initial import initial_parameters
from duetto.networks.jax_layers import ACTIVATIONS, Convolution, Linear, RecurrentLayers
from duetto.networks.policies import distribution
from duetto.networks.spaces import Box
from duetto.networks.specs import Actor, ActorCritic, Critic, NetworkSpec, QNetwork, Recurrent, Torso
from duetto.networks.windows import Window

Carry = dict[str, Array]
Values = dict[str, Array]


def build(spec: NetworkSpec, random: np.random.Generator) -> Any:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    values = {name: jnp.asarray(value) for name, value in initial_parameters(spec, random).items()}
    match spec:
        case ActorCritic():
            return _actor_critic(spec, values)
        case QNetwork():
            return _action_values(spec, values)
    layers = [_linear(values, f"layers.{i}") for i in range(len(spec.layers))]
    memory = _recurrent(spec.recurrent, values, "")
    return ActorNetwork(spec, memory, layers) if isinstance(spec, Actor) else CriticNetwork(spec, memory, layers)


def _linear(values: Values, name: str) -> Linear:
    return Linear(values[f"{name}.weight"], values[f"{name}.bias"])


def _recurrent(spec: Recurrent | None, values: Values, prefix: str) -> RecurrentLayers | None:
    start = f"{prefix}recurrent.weights."
    weights = {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
    return RecurrentLayers(spec, weights) if spec else None


class ActorNetwork(eqx.Module):
    """See `specs.Actor`."""

    spec: Actor = eqx.field(static=True)
    recurrent: RecurrentLayers | None
    layers: list[Linear]

    def __call__(self, obs: Any) -> Array:
        """Actions (B, A)."""
        return self.head(encode(self.spec.observation, obs))

    def trunk(self, window: Window) -> tuple[Array, Carry]:
        """Features (B, S, size), and the carry behind them."""
        return _unrolled(self, window)

    def head(self, x: Array) -> Array:
        """Actions (..., A)."""
        x = x.astype(self.layers[0].weight.dtype)
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return jnp.tanh(self.layers[-1](x))


class CriticNetwork(eqx.Module):
    """See `specs.Critic`."""

    spec: Critic = eqx.field(static=True)
    recurrent: RecurrentLayers | None
    layers: list[Linear]

    def __call__(self, obs: Any, action: Array) -> Array:
        """Every member's value, (members, B)."""
        return self.head(encode(self.spec.observation, obs), action)

    def first(self, obs: Any, action: Array) -> Array:
        """The first member's value alone, (B,), at its cost alone."""
        return self.first_head(encode(self.spec.observation, obs), action)

    def trunk(self, window: Window) -> tuple[Array, Carry]:
        """Features (B, S, size), and the carry behind them."""
        return _unrolled(self, window)

    def head(self, x: Array, action: Array) -> Array:
        """Every member's value, (members, ...)."""
        return self._run(x, action, lambda layer, x: layer(x), (self.spec.members,))

    def first_head(self, x: Array, action: Array) -> Array:
        """The first member's value, (...)."""
        return self._run(x, action, lambda layer, x: layer.member(x, 0), ())

    def _run(self, x: Array, action: Array, apply: Any, members: tuple[int, ...]) -> Array:
        lead = x.shape[:-1]
        x, action = (jnp.reshape(part, (-1, part.shape[-1])) for part in (x, action))
        x = x.astype(self.layers[0].weight.dtype)
        for i, layer in enumerate(self.layers):
            if i == self.spec.action_layer:
                joined = jnp.broadcast_to(action, (*x.shape[:-1], action.shape[-1])).astype(x.dtype)
                x = jnp.concatenate([x, joined], -1)
            x = apply(layer, x)
            if i < len(self.layers) - 1:
                x = ACTIVATIONS[self.spec.activation](x)
        return jnp.reshape(x, (*members, *lead))


def _unrolled(network: ActorNetwork | CriticNetwork, window: Window) -> tuple[Array, Carry]:
    assert network.recurrent is not None
    x = encode(network.spec.observation, window.obs)
    return network.recurrent(x.astype(network.layers[0].weight.dtype), window)


class TorsoNetwork(eqx.Module):
    """See `specs.Torso`."""

    spec: Torso = eqx.field(static=True)
    convolutions: dict[str, list[Convolution]]
    features: dict[str, Linear]
    layers: list[Linear]
    recurrent: RecurrentLayers | None

    def trunk(self, window: Window) -> tuple[Array, Carry]:
        """Features (B, S, width), and the carry behind them."""
        assert self.recurrent is not None
        shape = window.previous_reward.shape
        merged = jax.tree.map(lambda part: jnp.reshape(part, (-1, *part.shape[2:])), window.obs)
        return self.recurrent(jnp.reshape(self(merged), (*shape, -1)), window)

    def __call__(self, obs: Array | dict[str, Array]) -> Array:
        """Features (B, width) of each observation on its own."""
        images, vectors = split(self.spec.observation, obs)
        encoded = [self._features(name, image) for name, image in images.items()]
        arrays = jax.tree.leaves((self.layers, self.features, self.recurrent))  # none where it only passes a vector on
        encoded += [vector.astype(arrays[0].dtype) if arrays else vector for vector in vectors]
        x = encoded[0] if len(encoded) == 1 else jnp.concatenate(encoded, -1)
        for layer in self.layers:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return x

    def _features(self, name: str, image: Array) -> Array:
        x = jnp.moveaxis(image, -3, -1) if self.spec.images[name].channels_first else image
        x = x.astype(self.features[name].weight.dtype)
        for convolution in self.convolutions[name]:
            x = convolution(x)
        return jax.nn.relu(self.features[name](jnp.reshape(x, (len(x), -1))))


def _torso(spec: Torso, values: Values, prefix: str) -> TorsoNetwork:
    stacks = {name: convolutions(image) for name, image in spec.images.items()}
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
    features = {name: _linear(values, f"{prefix}.features.{name}") for name in stacks}
    hidden = [_linear(values, f"{prefix}.layers.{i}") for i in range(len(spec.layers))]
    return TorsoNetwork(spec, layers, features, hidden, _recurrent(spec.recurrent, values, f"{prefix}."))


class ActorCriticNetwork(eqx.Module):
    """See `specs.ActorCritic`."""

    spec: ActorCritic = eqx.field(static=True)
    log_std: Array | None
    torso: TorsoNetwork | None
    policy_torso: TorsoNetwork | None
    value_torso: TorsoNetwork | None
    policy_head: Linear
    value_head: Linear

    def __call__(self, obs: Any) -> tuple[Distribution, Array]:
        """The policy, and values (B,)."""
        return self.head(tuple(getattr(self, name)(obs) for name in self.spec.torsos))

    def trunk(self, window: Window) -> tuple[tuple[Array, ...], Carry]:
        """Features of each torso (B, S, width), and the carry behind them."""
        features, carry = [], {}
        for name in self.spec.torsos:
            own = {key.removeprefix(f"{name}/"): part for key, part in window.carry.items() if key.startswith(name)}
            some, state = getattr(self, name).trunk(window._replace(carry=own))
            features.append(some)
            carry |= {f"{name}/{key}": part for key, part in state.items()}
        return tuple(features), carry

    def head(self, features: tuple[Array, ...]) -> tuple[Distribution, Array]:
        """The policy, and values (...)."""
        parameters = self.policy_head(features[0])
        if self.log_std is not None:
            log_std = jnp.reshape(self.log_std, (*(1,) * (parameters.ndim - 1), -1))
            parameters = jnp.concatenate([parameters, jnp.broadcast_to(log_std, parameters.shape)], -1)
        return distribution(self.spec.action, parameters), self.value_head(features[-1])[..., 0]


def _actor_critic(spec: ActorCritic, values: Values) -> ActorCriticNetwork:
    names = ("torso", "policy_torso", "value_torso")
    torsos = {name: _torso(spec.torso, values, name) if name in spec.torsos else None for name in names}
    return ActorCriticNetwork(
        spec,
        values["log_std"] if isinstance(spec.action, Box) else None,
        **torsos,
        policy_head=_linear(values, "policy_head"),
        value_head=_linear(values, "value_head"),
    )


class ActionValues(eqx.Module):
    """See `specs.QNetwork`."""

    spec: QNetwork = eqx.field(static=True)
    torso: TorsoNetwork
    value: list[Linear]
    advantage: list[Linear]

    def __call__(self, obs: Any) -> Array:
        """Action values (B, n)."""
        return self.head(self.torso(obs))

    def trunk(self, window: Window) -> tuple[Array, Carry]:
        """Features (B, S, width), and the carry behind them."""
        return self.torso.trunk(window)

    def head(self, x: Array) -> Array:
        """Action values (..., n)."""
        advantage = self._stream(self.advantage, x)
        return dueling(self._stream(self.value, x), advantage) if self.spec.dueling else advantage

    def _stream(self, layers: list[Linear], x: Array) -> Array:
        for layer in layers[:-1]:
            x = ACTIVATIONS[self.spec.torso.activation](layer(x))
        return layers[-1](x)


def _action_values(spec: QNetwork, values: Values) -> ActionValues:
    streams: dict[str, list[Linear]] = {"value": [], "advantage": []}
    for name, layers in spec.streams.items():
        streams[name] = [_linear(values, f"{name}.{i}") for i in range(len(layers))]
    return ActionValues(spec, _torso(spec.torso, values, "torso"), **streams)


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
        """Every member's value, (members, B)."""
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
