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


class JaxCustomNetwork:
    """Custom Equinox modules with the interface of `JaxNetwork`; their floating-point arrays are trained."""

    def __init__(self, spec: NetworkSpec, random: np.random.Generator) -> None:
        assert spec.custom is not None
        kind = custom_class(spec, "jax")
        keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
        modules = [kind(spec.observation, spec.action_size, key=key, **spec.custom.arguments) for key in keys]
        self._spec = spec
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(modules)
        self._leaves: list[Any] = [leaf for _, leaf in leaves]
        numbers = [isinstance(leaf, Array) and jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in self._leaves]
        self._places = [i for i, learns in enumerate(numbers) if learns]
        names = [jax.tree_util.keystr(leaves[i][0], simple=True, separator=".") for i in self._places]
        # As in PyTorch; without an ensemble, the first part of a name is the only member's number.
        self.names: list[str] = [f"members.{x}" if spec.members else x.partition(".")[2] for x in names]
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


def _broadcasting(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a custom module with implicit broadcasting of ranks, which Duetto forbids in losses."""
    with jax.numpy_rank_promotion("allow"):
        return module(*inputs)
