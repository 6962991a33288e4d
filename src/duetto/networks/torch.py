"""Networks in PyTorch. The counterpart of `networks/jax.py`."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from duetto.errors import UsageError
from duetto.networks import masks, network, torch_layers
from duetto.networks.custom import check_made, ensemble, interpreted, seen
from duetto.networks.initial import initial_parameters
from duetto.networks.specs import Network, NetworkSpec, Parameter


def build(spec: NetworkSpec, random: np.random.Generator, device: str = "cpu") -> Any:
    """The network that the spec describes, with fresh parameters drawn from `random`.

    Attributes of what is returned: `values`, the arrays by name; `learned`, those of them that learn.
    """
    if spec.custom is not None:
        return Custom(spec, _modules(spec, random), device)
    values = {name: _laid_out(torch.from_numpy(value)) for name, value in initial_parameters(spec, random).items()}
    kept = spec.statistics
    values = {name: value.to(device).requires_grad_(name not in kept) for name, value in values.items()}
    return Parameters(values) if isinstance(spec, Parameter) else Built(spec, values, torch_layers)


def _laid_out(value: Tensor) -> Tensor:
    """The tensor, channels last in memory where it is a convolution's weight."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value


class Built(network.Network):
    """A network of Duetto's own, not a user's.

    Attributes: those of `network.Network`; learned, all of its arrays but the running statistics.
    """

    def __init__(self, spec: Network, values: dict[str, Tensor], layers: Any) -> None:
        super().__init__(spec, values, layers)
        self.learned: dict[str, Tensor] = {name: value for name, value in values.items() if value.requires_grad}

    def keep_statistics(self) -> None:
        """Set the running statistics to what the last call with `train` left."""
        with torch.no_grad():
            for name, value in self.moved.items():
                self.values[name].copy_(value)


class Parameters:
    """See `specs.Parameter`."""

    learned: dict[str, Tensor]

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.values = self.learned = values


class Custom:
    """A user's own modules with the interface of the network that they replace. Their outputs are taken in float32.

    The modules are in eval mode except while they learn, see `learning`.
    """

    spec: Network

    def __init__(self, spec: Network, modules: list[nn.Module], device: str) -> None:
        self.spec, self._modules = spec, [module.to(device).eval() for module in modules]
        whole = nn.ModuleDict({"members": nn.ModuleList(modules)}) if spec.members else modules[0]
        self.values: dict[str, Tensor] = whole.state_dict(keep_vars=True)
        self.learned: dict[str, nn.Parameter] = {
            name: value for name, value in whole.named_parameters() if value.requires_grad
        }

    def __call__(self, obs: Any, *inputs: Tensor, train: bool = False) -> Any:
        """See `network.Network`; what the modules keep of a batch is up to them."""
        obs, mask = masks.parted(obs)
        obs = seen(self.spec, obs)
        if self.spec.members:
            values = ensemble(self.spec, torch.stack, self._modules, obs, *inputs)
            return masks.masked(self.spec, _float32(values), mask)
        return masks.masked(self.spec, interpreted(self.spec, _float32(self._modules[0](obs, *inputs))), mask)

    def first(self, obs: Any, *inputs: Tensor) -> Tensor:
        """See `network.Network`."""
        return _float32(self._modules[0](seen(self.spec, obs), *inputs))

    def learning(self, learns: bool) -> None:
        """Set whether dropout drops, and batches are normalised by their own statistics, which are remembered."""
        for module in self._modules:
            module.train(learns)

    @property
    def kept(self) -> list[str]:
        """Names of the numbers that the modules save and no optimiser moves: statistics of the rows that they see."""
        buffers = (name for name, value in self.values.items() if not isinstance(value, nn.Parameter))
        return [name for name in buffers if self.values[name].is_floating_point()]

    @property
    def mixing(self) -> list[str]:
        """Class names of the modules that compute a row's output from other rows, whether or not they keep anything."""
        parts = (part for module in self._modules for part in module.modules())
        return [type(part).__name__ for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def _float32(given: Any) -> Any:
    """The output with every tensor in float32. Anything else a user's class returns stays, for later checks to name."""
    if isinstance(given, tuple | list):
        return tuple(_float32(part) for part in given)
    return given.float() if isinstance(given, Tensor) else given


def _modules(spec: NetworkSpec, random: np.random.Generator) -> list[nn.Module]:
    assert isinstance(spec, Network)
    assert spec.custom is not None
    made, arguments = spec.custom.torch, spec.custom.arguments
    if made is None:
        raise UsageError(
            'This network has no PyTorch class: give CustomNetwork(torch=...), or take JAX (backend="jax").'
        )
    check_made(made, arguments)
    # A user's module draws from the global generator: seed it, then put it back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(random.bytes(16)))
        return [made(spec.observation, spec.action_size, **arguments) for _ in range(spec.members or 1)]
