"""Networks in PyTorch. The counterpart of `networks/jax.py`, class by class and name by name."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from duetto.errors import UsageError
from duetto.networks.encoding import encode
from duetto.networks.specs import Actor, Critic, NetworkSpec, initial_parameters

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "elu": F.elu, "silu": F.silu}


def build(spec: NetworkSpec, random: np.random.Generator) -> nn.Module:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    module = ActorNetwork(spec) if isinstance(spec, Actor) else CriticNetwork(spec)
    values = initial_parameters(spec, random)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    return module


class Linear(nn.Module):
    """y = x Wᵀ + b. With members, M maps at once as one batched product: (M, B, in) or (B, in) to (M, B, out)."""

    def __init__(self, inputs: int, outputs: int, members: int):
        super().__init__()
        lead = (members,) if members else ()
        self.weight = nn.Parameter(torch.empty(*lead, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(*lead, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if self.weight.ndim == 2:
            return F.linear(x, self.weight, self.bias)
        if x.ndim == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)

    def member(self, x: Tensor, index: int) -> Tensor:
        """One member's map alone, (B, in) to (B, out)."""
        return F.linear(x, self.weight[index], self.bias[index])


class ActorNetwork(nn.Module):
    """See `specs.Actor`."""

    def __init__(self, spec: Actor):
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(Linear(i, o, 0) for i, o in spec.layers)

    def forward(self, obs: Tensor) -> Tensor:
        """See the class."""
        x = encode(self.spec.observation, obs)
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return torch.tanh(self.layers[-1](x))


class CriticNetwork(nn.Module):
    """See `specs.Critic`."""

    def __init__(self, spec: Critic):
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(Linear(i, o, spec.members) for i, o in spec.layers)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Every member's value, (members, B)."""
        return self._run(obs, action, lambda layer, x: layer(x))

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """The first member's value alone, (B,), at its cost alone."""
        return self._run(obs, action, lambda layer, x: layer.member(x, 0))

    def _run(self, obs: Tensor, action: Tensor, apply) -> Tensor:
        x = encode(self.spec.observation, obs)
        for i, layer in enumerate(self.layers):
            if i == self.spec.action_layer:
                x = torch.cat([x, action if x.ndim == action.ndim else action.expand(*x.shape[:-1], -1)], -1)
            x = apply(layer, x)
            if i < len(self.layers) - 1:
                x = ACTIVATIONS[self.spec.activation](x)
        return x[..., 0]


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
    return CustomCritics(made) if isinstance(spec, Critic) else made[0]
