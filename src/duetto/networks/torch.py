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
        assert isinstance(spec, NetworkSpec)
        return TorchCustomNetwork(spec, random, device)
    values: dict[str, Tensor] = {}
    for name, array in initial_parameters(spec, random).items():
        layout = torch.channels_last if array.ndim == 4 else torch.contiguous_format  # 4: a convolution's weight
        value = torch.from_numpy(array).contiguous(memory_format=layout).to(device)
        values[name] = value.requires_grad_(name not in spec.statistics)
    return TorchNetwork(spec, values, torch_layers)


class TorchNetwork(network.Network):
    """A network in PyTorch. For a `ParameterSpec`, it only holds the array and cannot be called.

    Attributes:
        learned: All arrays except the running statistics.
    """

    def __init__(self, spec: Any, values: dict[str, Tensor], layers: Any) -> None:
        super().__init__(spec, values, layers)
        self.learned: dict[str, Tensor] = {name: value for name, value in values.items() if value.requires_grad}


class TorchCustomNetwork(CustomCalls):
    """Custom modules, in eval mode except during updates.

    Attributes:
        module: The custom module, or a module that contains all members of an ensemble.
    """

    def __init__(self, spec: NetworkSpec, random: np.random.Generator, device: str) -> None:
        assert spec.custom is not None
        kind = custom_class(spec, "torch")
        with torch.random.fork_rng(devices=[]):  # modules draw from the global generator: seed it, then restore it
            torch.manual_seed(zlib.crc32(random.bytes(16)))
            count = spec.members or 1
            modules = [kind(spec.observation, spec.action_size, **spec.custom.arguments) for _ in range(count)]
        super().__init__(spec, modules)
        whole = nn.ModuleDict({"members": nn.ModuleList(modules)}) if spec.members else modules[0]
        self.module: nn.Module = whole.to(device).eval()
        self.values: dict[str, Tensor] = self.module.state_dict(keep_vars=True)
        self.learned: dict[str, nn.Parameter] = {
            name: value for name, value in self.module.named_parameters() if value.requires_grad
        }
