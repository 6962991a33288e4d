"""Custom Equinox modules."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.networks.custom_network import CustomCalls, custom_class
from duetto.networks.specs import NetworkSpec


class JaxCustomNetwork:
    """Custom modules with the interface of `jax.JaxNetwork`."""

    def __init__(self, spec: NetworkSpec, random: np.random.Generator) -> None:
        assert spec.custom is not None
        kind = custom_class(spec, "jax")
        keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
        modules = [kind(spec.observation, spec.action_size, key=key, **spec.custom.arguments) for key in keys]
        self._spec = spec
        arrays, self._static = eqx.partition(modules, eqx.is_inexact_array)
        paths, self._structure = jax.tree_util.tree_flatten_with_path(arrays)
        steps = [[_name(step) for step in path] for path, _ in paths]  # PyTorch's names
        self.names: list[str] = [".".join(["members", *names] if spec.members else names[1:]) for names in steps]
        self.arrays: list[Any] = [leaf for _, leaf in paths]
        self.shapes: list[tuple[int, ...]] = [tuple(leaf.shape) for leaf in self.arrays]
        self.learned: int = len(self.arrays)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> CustomCalls:
        """Return the network with other arrays, cast to `precision`."""
        cast = [array.astype(precision) for array in arrays]
        modules: Any = eqx.combine(jax.tree.unflatten(self._structure, cast), self._static)
        return CustomCalls(self._spec, [partial(_broadcasting, module) for module in modules])

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """Return an empty list: custom networks have no running statistics."""
        return []


def _name(step: Any) -> str:
    return str(step.name if hasattr(step, "name") else step.idx if hasattr(step, "idx") else step.key)


def _broadcasting(module: Callable[..., Any], *inputs: Any) -> Any:
    """Call a module with broadcasting as usual in JAX, unlike in losses."""
    with jax.numpy_rank_promotion("allow"):
        return module(*inputs)
