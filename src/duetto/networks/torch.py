"""Networks in PyTorch. The counterpart of `networks/jax.py`, class by class and name by name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (everyone calls it F)

from duetto.errors import UsageError
from duetto.functional.distributions import Distribution
from duetto.networks.encoding import convolutions, encode, split
from duetto.networks.initial import initial_parameters
from duetto.networks.policies import distribution
from duetto.networks.spaces import Box
from duetto.networks.specs import Actor, ActorCritic, Critic, NetworkSpec, Torso

Map = Callable[[Tensor], Tensor]
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "elu": F.elu, "silu": F.silu}


def build(spec: NetworkSpec, random: np.random.Generator) -> nn.Module:
    """The network that the spec describes, with fresh parameters from `random`."""
    if spec.custom is not None:
        return _custom(spec, random)
    kinds: dict[type, Callable[[Any], nn.Module]] = {
        Actor: ActorNetwork,
        Critic: CriticNetwork,
        ActorCritic: ActorCriticNetwork,
    }
    module = kinds[type(spec)](spec)
    values = initial_parameters(spec, random)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
    return module


class OneDnnLinear(torch.autograd.Function):
    """y = x Wᵀ + b for (B, in) on a CPU, by oneDNN's kernels, also backwards.

    PyTorch's own float32 products come from Intel's MKL, which on AMD processors runs at half of oneDNN's speed (256 x
    400 x 300 on one core of an AMD EPYC, Zen 5: 102 against 230 GFLOP/s). The operator is the one that `torch.compile`
    generates on CPUs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See the class."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Only the gradients that are asked for."""
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.mT, None) if needs_x else None,
            _product(gradient.mT, x.mT, None) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _mkl_is_slow() -> bool:
    """Whether this is an AMD processor on which oneDNN's operator exists."""
    cpuinfo = Path("/proc/cpuinfo")
    amd = cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text()
    return amd and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


USE_ONEDNN = _mkl_is_slow()
# Products of fewer rows, or smaller ones of less than enough rows, are faster by MKL, whose calls cost less.
LEAST_ROWS, ENOUGH_ROWS, LEAST_PRODUCTS = 32, 128, 2**20


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """y = x Wᵀ + b by the fastest way there is here."""
    if not USE_ONEDNN or x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not _is_large(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return OneDnnLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return _product(x, weight, bias)


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN's product is worth its call."""
    rows = len(x)
    return rows >= ENOUGH_ROWS or (rows >= LEAST_ROWS and rows * weight.numel() >= LEAST_PRODUCTS)


class Linear(nn.Module):
    """Weights of y = x Wᵀ + b, (out, in), or of a map for each of M members, (M, out, in)."""

    def __init__(self, inputs: int, outputs: int, members: int):
        super().__init__()
        lead = (members,) if members else ()
        self.weight = nn.Parameter(torch.empty(*lead, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(*lead, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) to (B, out), or with members (M, B, in) or (B, in) to (M, B, out) as one batched product."""
        if self.weight.ndim == 2:
            return linear(x, self.weight, self.bias)
        if x.ndim == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)

    def members(self) -> list[Map]:
        """Each member's map alone, (B, in) to (B, out)."""
        parts = zip(self.weight.unbind(0), self.bias.unbind(0), strict=True)
        return [lambda x, weight=weight, bias=bias: linear(x, weight, bias) for weight, bias in parts]


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
        if action.device.type != "cpu":
            return self._run(obs, action, list(self.layers))
        # On a CPU a batched product is no faster, and one member after the other stays in the cache.
        networks = zip(*(layer.members() for layer in self.layers), strict=True)  # pyright: ignore
        return torch.stack([self._run(obs, action, network) for network in networks])

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """The first member's value alone, (B,), at its cost alone."""
        return self._run(obs, action, [layer.members()[0] for layer in self.layers])  # pyright: ignore

    def _run(self, obs: Tensor, action: Tensor, layers: Sequence[Map]) -> Tensor:
        x = encode(self.spec.observation, obs)
        for i, layer in enumerate(layers):
            if i == self.spec.action_layer:
                x = torch.cat([x, action if x.ndim == action.ndim else action.expand(*x.shape[:-1], -1)], -1)
            x = layer(x)
            if i < len(layers) - 1:
                x = ACTIVATIONS[self.spec.activation](x)
        return x[..., 0]


class Convolution(nn.Module):
    """A convolution without padding and ReLU, (B, in, H, W) to (B, out, H', W'), channels last in memory."""

    def __init__(self, shape: tuple[int, ...], stride: int, scale: float):
        super().__init__()
        self.stride, self.scale = stride, scale
        self.weight = nn.Parameter(torch.empty(shape).contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(torch.empty(shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        """See the class. `scale` multiplies the weights, which are fewer numbers than the input."""
        weight = self.weight if self.scale == 1 else self.weight * self.scale
        return torch.relu(F.conv2d(x, weight, self.bias, stride=self.stride))


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

    def forward(self, obs: Tensor | dict[str, Tensor]) -> Tensor:
        """Features (B, width)."""
        images, vectors = split(self.spec.observation, obs)
        encoded = [self._features(name, image) for name, image in images.items()] + vectors
        x = encoded[0] if len(encoded) == 1 else torch.cat(encoded, -1)
        for layer in self.layers:
            x = ACTIVATIONS[self.spec.activation](layer(x))
        return x

    def _features(self, name: str, image: Tensor) -> Tensor:
        x = image if self.spec.images[name].channels_first else image.movedim(-1, -3)
        x = x.to(_precision(x), memory_format=torch.channels_last)
        for convolution in self.convolutions[name]:  # pyright: ignore[reportGeneralTypeIssues]
            x = convolution(x)
        return torch.relu(self.features[name](x.flatten(1)))


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

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """The policy, and values (B,)."""
        features = [self.get_submodule(name)(obs) for name in self.spec.torsos]
        parameters = self.policy_head(features[0]).float()
        if isinstance(self.spec.action, Box):
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], -1)
        return distribution(self.spec.action, parameters), self.value_head(features[-1])[..., 0].float()


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
