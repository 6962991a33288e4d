"""Networks in PyTorch. The counterpart of `networks/jax.py`, class by class and name by name.

Every network is a trunk and a head. Without recurrence it is called with observations (B, ...). With it, `trunk` turns
a `Window` into features of all its positions and the carry behind them, and `head` turns some of these features into
outputs; `learners.unrolling` brings the two together.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duetto.errors import UsageError
from duetto.functional.distributions import Distribution
from duetto.functional.values import dueling
from duetto.networks.encoding import convolutions, encode, split
from duetto.networks.initial import initial_parameters
from duetto.networks.policies import distribution
from duetto.networks.spaces import Box
from duetto.networks.specs import Actor, ActorCritic, Critic, NetworkSpec, QNetwork, Torso
from duetto.networks.torch_layers import ACTIVATIONS, Convolution, Linear, Map, RecurrentLayers
from duetto.networks.windows import Window

Carry = dict[str, Tensor]


def build(spec: NetworkSpec, random: np.random.Generator) -> nn.Module:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    kinds: dict[type, Callable[[Any], nn.Module]] = {
        Actor: ActorNetwork,
        Critic: CriticNetwork,
        ActorCritic: ActorCriticNetwork,
        QNetwork: ActionValues,
    }
    module = kinds[type(spec)](spec)
    values = initial_parameters(spec, random)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    return module


class Trunk(nn.Module):
    """What actor and critic share: vectors as they are, or recurrent layers over them."""

    def __init__(self, spec: Any):
        super().__init__()
        self.spec = spec
        if spec.recurrent:
            self.recurrent = RecurrentLayers(spec.recurrent, spec.observation.size)
        self.layers = nn.ModuleList(Linear(i, o, spec.members) for i, o in spec.layers)

    def trunk(self, window: Window) -> tuple[Tensor, Carry]:
        """Features (B, S, size), and the carry behind them."""
        return self.recurrent(encode(self.spec.observation, window.obs), window)


class ActorNetwork(Trunk):
    """See `specs.Actor`."""

    def forward(self, obs: Any) -> Tensor:
        """Actions (B, A)."""
        return self.head(encode(self.spec.observation, obs))

    def head(self, x: Tensor) -> Tensor:
        """Actions (..., A)."""
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return torch.tanh(self.layers[-1](x))


class CriticNetwork(Trunk):
    """See `specs.Critic`."""

    def forward(self, obs: Any, action: Tensor) -> Tensor:
        """Every member's value, (members, B)."""
        return self.head(encode(self.spec.observation, obs), action)

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """The first member's value alone, (B,), at its cost alone."""
        return self.first_head(encode(self.spec.observation, obs), action)

    def head(self, x: Tensor, action: Tensor) -> Tensor:
        """Every member's value, (members, ...)."""
        lead = x.shape[:-1]
        x, action = x.flatten(0, -2), action.flatten(0, -2)
        if action.device.type != "cpu":
            return self._run(x, action, list(self.layers)).unflatten(1, lead)
        # On a CPU a batched product is no faster, and one member after the other stays in the cache.
        networks = zip(*(layer.members() for layer in self.layers), strict=True)  # pyright: ignore
        return torch.stack([self._run(x, action, network) for network in networks]).unflatten(1, lead)

    def first_head(self, x: Tensor, action: Tensor) -> Tensor:
        """The first member's value, (...)."""
        layers = [layer.members()[0] for layer in self.layers]  # pyright: ignore
        return self._run(x.flatten(0, -2), action.flatten(0, -2), layers).unflatten(0, x.shape[:-1])

    def _run(self, x: Tensor, action: Tensor, layers: Sequence[Map]) -> Tensor:
        for i, layer in enumerate(layers):
            if i == self.spec.action_layer:
                x = torch.cat([x, action if x.ndim == action.ndim else action.expand(*x.shape[:-1], -1)], -1)
            x = layer(x)
            if i < len(layers) - 1:
                x = ACTIVATIONS[self.spec.activation](x)
        return x[..., 0]


def _precision(x: Tensor) -> torch.dtype:
    """What a product with x is computed in; bfloat16 holds the whole numbers to 256 exactly."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


class TorsoNetwork(nn.Module):
    """See `specs.Torso`."""

    def __init__(self, spec: Torso):
        super().__init__()
        self.spec, shapes = spec, spec.shapes()
        stacks = {name: convolutions(image) for name, image in spec.images.items()}
        self.convolutions = nn.ModuleDict(
            {
                name: nn.ModuleList(
                    Convolution(shapes[f"convolutions.{name}.{i}"], stride, 1.0 if i else 1 / 255)
                    for i, (_, _, stride) in enumerate(stack)
                )
                for name, stack in stacks.items()
            }
        )
        features = {name: shapes[f"features.{name}"] for name in stacks}
        self.features = nn.ModuleDict({name: Linear(inputs, outs, 0) for name, (outs, inputs) in features.items()})
        self.layers = nn.ModuleList(Linear(i, o, 0) for i, o in spec.layers)
        if spec.recurrent:
            self.recurrent = RecurrentLayers(spec.recurrent, spec.unrolled)

    def trunk(self, window: Window) -> tuple[Tensor, Carry]:
        """Features (B, S, width), and the carry behind them."""
        shape = window.previous_reward.shape
        features = self(_merged(window.obs)).unflatten(0, shape)
        return self.recurrent(features, window)

    def forward(self, obs: Tensor | dict[str, Tensor]) -> Tensor:
        """Features (B, width) of each observation on its own."""
        images, vectors = split(self.spec.observation, obs)
        encoded = [self._features(name, image) for name, image in images.items()] + vectors
        x = encoded[0] if len(encoded) == 1 else torch.cat(encoded, -1)
        for layer in self.layers:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return x

    def _features(self, name: str, image: Tensor) -> Tensor:
        x = image if self.spec.images[name].channels_first else image.movedim(-1, -3)
        # Bytes are moved to channels last, then converted: in one step, which looks simpler, it takes twice as long.
        x = x.contiguous(memory_format=torch.channels_last).to(_precision(x))
        for convolution in self.convolutions[name]:  # pyright: ignore[reportGeneralTypeIssues]
            x = convolution(x)
        return torch.relu(self.features[name](x.permute(0, 2, 3, 1).flatten(1)))  # as it lies: without a copy


class ActorCriticNetwork(nn.Module):
    """See `specs.ActorCritic`."""

    def __init__(self, spec: ActorCritic):
        super().__init__()
        self.spec = spec
        if isinstance(spec.action, Box):
            self.log_std = nn.Parameter(torch.empty(spec.action.size))
        for name in spec.torsos:
            self.add_module(name, TorsoNetwork(spec.torso))
        self.policy_head = Linear(spec.torso.width, spec.head, 0)
        self.value_head = Linear(spec.torso.width, 1, 0)

    def forward(self, obs: Any) -> tuple[Distribution, Tensor]:
        """The policy, and values (B,)."""
        return self.head(tuple(self.get_submodule(name)(obs) for name in self.spec.torsos))

    def trunk(self, window: Window) -> tuple[tuple[Tensor, ...], Carry]:
        """Features of each torso (B, S, width), and the carry behind them."""
        features, carry = [], {}
        for name in self.spec.torsos:
            own = {key.removeprefix(f"{name}/"): part for key, part in window.carry.items() if key.startswith(name)}
            some, state = self.get_submodule(name).trunk(window._replace(carry=own))  # pyright: ignore
            features.append(some)
            carry |= {f"{name}/{key}": part for key, part in state.items()}
        return tuple(features), carry

    def head(self, features: tuple[Tensor, ...]) -> tuple[Distribution, Tensor]:
        """The policy, and values (...)."""
        parameters = self.policy_head(features[0]).float()
        if isinstance(self.spec.action, Box):
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], -1)
        return distribution(self.spec.action, parameters), self.value_head(features[-1])[..., 0].float()


class ActionValues(nn.Module):
    """See `specs.QNetwork`."""

    def __init__(self, spec: QNetwork):
        super().__init__()
        self.spec = spec
        self.torso = TorsoNetwork(spec.torso)
        for name, layers in spec.streams.items():
            self.add_module(name, nn.ModuleList(Linear(i, o, 0) for i, o in layers))

    def forward(self, obs: Any) -> Tensor:
        """Action values (B, n)."""
        return self.head(self.torso(obs))

    def trunk(self, window: Window) -> tuple[Tensor, Carry]:
        """Features (B, S, width), and the carry behind them."""
        return self.torso.trunk(window)

    def head(self, x: Tensor) -> Tensor:
        """Action values (..., n)."""
        advantage = self._stream("advantage", x).float()
        return dueling(self._stream("value", x).float(), advantage) if self.spec.dueling else advantage

    def _stream(self, name: str, x: Tensor) -> Tensor:
        *hidden, last = self.get_submodule(name)  # pyright: ignore[reportGeneralTypeIssues]
        for layer in hidden:
            x = ACTIVATIONS[self.spec.torso.activation](layer(x))
        return last(x)


def _merged(obs: Any) -> Any:
    """(B, S, ...) to (B·S, ...)."""
    return {name: part.flatten(0, 1) for name, part in obs.items()} if isinstance(obs, dict) else obs.flatten(0, 1)


class CustomActorCritic(nn.Module):
    """A user's own policy and value function."""

    def __init__(self, spec: ActorCritic, network: nn.Module):
        super().__init__()
        self.spec, self.network = spec, network

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """See the class."""
        parameters, value = self.network(obs)
        return distribution(self.spec.action, parameters), value


class CustomCritics(nn.Module):
    """An ensemble of a user's own critics."""

    def __init__(self, members: list[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """See the class."""
        return torch.stack([member(obs, action) for member in self.members])

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """The first member's value alone, (B,)."""
        return self.members[0](obs, action)


def _custom(spec: NetworkSpec, random: np.random.Generator) -> nn.Module:
    assert spec.custom is not None
    network, arguments = spec.custom.torch, spec.custom.arguments
    if network is None:
        raise UsageError("This network has no PyTorch class: hand over CustomNetwork(torch=...), or use --backend jax.")
    with torch.random.fork_rng(
        devices=[]
    ):  # a user's module draws from the global generator: seed it, then put it back
        torch.manual_seed(zlib.crc32(random.bytes(16)))
        made = [network(spec.observation, spec.action_size, **arguments) for _ in range(spec.members or 1)]
    if isinstance(spec, ActorCritic):
        return CustomActorCritic(spec, made[0])
    return CustomCritics(made) if isinstance(spec, Critic) else made[0]
