"""Custom Equinox modules."""

from __future__ import annotations

import zlib
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
        self._spec, modules = spec, _modules(spec, random)
        whole = _Members(modules) if spec.members else modules[0]
        arrays, self._static = eqx.partition(whole, eqx.is_inexact_array)
        paths, self._structure = jax.tree_util.tree_flatten_with_path(arrays)
        self.names: list[str] = [".".join(_step(step) for step in path) for path, _ in paths]  # PyTorch's names
        self.arrays: list[Any] = [leaf for _, leaf in paths]
        self.shapes: list[tuple[int, ...]] = [tuple(leaf.shape) for leaf in self.arrays]
        self.learned: int = len(self.arrays)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> Any:
        """Return the network with other arrays, cast to `precision`."""
        cast = [array.astype(precision) for array in arrays]
        whole = eqx.combine(jax.tree.unflatten(self._structure, cast), self._static)
        return _Called(self._spec, whole.members if self._spec.members else [whole])

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """Return an empty list: custom networks have no running statistics."""
        return []


class _Members(eqx.Module):
    members: list[Any]


class _Called(CustomCalls):
    """A custom network at work, with broadcasting as usual in JAX, unlike in losses."""

    def __call__(self, obs: Any, *inputs: Any, train: bool = False) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return super().__call__(obs, *inputs, train=train)

    def q1(self, obs: Any, *inputs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return super().q1(obs, *inputs)


def _step(step: Any) -> str:
    return str(step.name if hasattr(step, "name") else step.idx if hasattr(step, "idx") else step.key)


def _modules(spec: NetworkSpec, random: np.random.Generator) -> list[Any]:
    assert spec.custom is not None
    kind = custom_class(spec, "jax")
    keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
    return [kind(spec.observation, spec.action_size, key=key, **spec.custom.arguments) for key in keys]
