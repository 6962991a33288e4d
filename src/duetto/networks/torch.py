"""Networks in PyTorch; the counterpart of `networks/jax.py`."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duetto.networks import network, torch_layers
from duetto.networks.custom_network import CustomCalls, custom_class
from duetto.networks.initializers import initial_parameters
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec


def build(spec: AnyNetworkSpec, random: np.random.Generator, device: str = "cpu") -> Any:
    """Build the network of the spec, with parameters drawn from `random`.

    The network has the attributes `values`, all arrays by name, and `learned`, the arrays that optimizers change.
    """
    if spec.custom is not None:
        return TorchCustomNetwork(spec, _modules(spec, random), device)
    arrays = {name: _channels_last(torch.from_numpy(value)) for name, value in initial_parameters(spec, random).items()}
    values = {name: value.to(device).requires_grad_(name not in spec.statistics) for name, value in arrays.items()}
    return TorchNetwork(spec, values, torch_layers)


def _channels_last(value: Tensor) -> Tensor:
    """Return a convolution's weight with channels last in memory; return any other tensor unchanged."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value


class TorchNetwork(network.Network):
    """A network in PyTorch. For a `ParameterSpec`, it only holds the array and cannot be called.

    Attributes:
        learned: All arrays except the running statistics.
    """

    def __init__(self, spec: Any, values: dict[str, Tensor], layers: Any) -> None:
        super().__init__(spec, values, layers)
        self.learned: dict[str, Tensor] = {name: value for name, value in values.items() if value.requires_grad}


class TorchCustomNetwork(CustomCalls):
    """Custom modules, in eval mode except during updates (see `learning`)."""

    def __init__(self, spec: NetworkSpec, modules: list[nn.Module], device: str) -> None:
        super().__init__(spec, [module.to(device).eval() for module in modules])
        whole = nn.ModuleDict({"members": nn.ModuleList(modules)}) if spec.members else modules[0]
        self.values: dict[str, Tensor] = whole.state_dict(keep_vars=True)
        self.learned: dict[str, nn.Parameter] = {
            name: value for name, value in whole.named_parameters() if value.requires_grad
        }
        self._modes: list[nn.Module] = modules

    def learning(self, learns: bool) -> None:
        """Set the modules to train or eval mode, for dropout and batch norms."""
        for module in self._modes:
            module.train(learns)


def _modules(spec: AnyNetworkSpec, random: np.random.Generator) -> list[nn.Module]:
    assert isinstance(spec, NetworkSpec)
    assert spec.custom is not None
    kind = custom_class(spec, "torch")
    # A user's module draws from the global generator: seed it, then restore it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(random.bytes(16)))
        return [kind(spec.observation, spec.action_size, **spec.custom.arguments) for _ in range(spec.members or 1)]
