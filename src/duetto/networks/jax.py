"""Networks in JAX; the counterpart of `networks/torch.py`.

Compiled programs take flat lists of arrays, because Equinox modules as arguments cost 70 µs more at each call.
`with_arrays` makes a network from such a list.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.networks import jax_layers, network
from duetto.networks.custom_network import CustomCalls, custom_class
from duetto.networks.initializers import initial_parameters
from duetto.networks.layers import projected
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec, ParameterSpec


def build(spec: AnyNetworkSpec, random: np.random.Generator) -> JaxNetwork | JaxCustomNetwork:
    """Build the network of the spec, with parameters drawn from `random`."""
    if spec.custom is not None:
        assert isinstance(spec, NetworkSpec)
        return JaxCustomNetwork(spec, random)
    return JaxNetwork(spec, initial_parameters(spec, random))


class JaxNetwork:
    """The arrays of a network in a fixed order; running statistics are last.

    Attributes:
        names: Names of the arrays.
        shapes: Shapes of the arrays.
        arrays: Initial values.
        learned: Number of trainable arrays, which come first.
    """

    def __init__(self, spec: AnyNetworkSpec, values: dict[str, np.ndarray]) -> None:
        self._spec = spec
        self.names: list[str] = list(values)
        self.shapes: list[tuple[int, ...]] = [value.shape for value in values.values()]
        self.arrays: list[Array] = [jax.device_put(value) for value in values.values()]
        self.learned: int = len(values) - len(spec.statistics)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> Any:
        """Return the network with these arrays; for a `ParameterSpec`, return the array itself."""
        if isinstance(self._spec, ParameterSpec):
            return arrays[0]
        exact = self._spec.exact | self._spec.statistics.keys()
        named = zip(self.names, arrays, strict=True)
        values = {name: array if name in exact else array.astype(precision) for name, array in named}
        return network.Network(self._spec, values, jax_layers)

    def projected(self, learned: list[Array]) -> list[Array]:
        """Return the learned arrays with weights projected onto unit norm."""
        assert isinstance(self._spec, NetworkSpec)
        values = dict(zip(self.names, learned, strict=False))  # without the statistics
        return list((values | projected(self._spec.head_stacks, values)).values())

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """Return the running statistics after the last call of `net` with `train`.

        If there was no such call, return those in `arrays`.
        """
        statistics = list(zip(self.names, arrays, strict=True))[self.learned :]
        return [net.updated_stats.get(name, array) for name, array in statistics]


class JaxCustomNetwork:
    """Custom Equinox modules with the interface of `JaxNetwork`; their floating-point arrays are trained."""

    def __init__(self, spec: NetworkSpec, random: np.random.Generator) -> None:
        assert spec.custom is not None
        kind = custom_class(spec, "jax")
        keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
        modules = [kind(spec.observation, spec.action_size, key=key, **spec.custom.arguments) for key in keys]
        self._spec = spec
        paths, self._structure = jax.tree_util.tree_flatten_with_path(modules)
        self._leaves: list[Any] = [leaf for _, leaf in paths]
        self._places = [i for i, leaf in enumerate(self._leaves) if _learns(leaf)]
        steps = [[_name(step) for step in paths[i][0]] for i in self._places]  # named as in PyTorch
        self.names: list[str] = [".".join(["members", *names] if spec.members else names[1:]) for names in steps]
        self.arrays: list[Any] = [self._leaves[i] for i in self._places]
        self.shapes: list[tuple[int, ...]] = [tuple(leaf.shape) for leaf in self.arrays]
        self.learned: int = len(self.arrays)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> CustomCalls:
        """Return the network with these arrays, cast to `precision`."""
        leaves = list(self._leaves)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array.astype(precision)
        modules = jax.tree.unflatten(self._structure, leaves)
        return CustomCalls(self._spec, [partial(_broadcasting, module) for module in modules])

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """Return an empty list: custom networks have no running statistics."""
        return []


def _learns(leaf: Any) -> bool:
    return isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _name(step: Any) -> str:
    return str(step.name if hasattr(step, "name") else step.idx if hasattr(step, "idx") else step.key)


def _broadcasting(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a custom module with implicit broadcasting of ranks, which Duetto forbids in losses."""
    with jax.numpy_rank_promotion("allow"):
        return module(*inputs)
