"""A user's own Equinox modules in place of a network of Duetto's."""

from __future__ import annotations

import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.errors import UsageError
from duetto.networks import masks
from duetto.networks.custom import check_made, ensemble, interpreted, seen
from duetto.networks.specs import Network


class Custom:
    """A user's own modules with the interface of the network that they replace; see `jax.Built`."""

    def __init__(self, spec: Network, random: np.random.Generator) -> None:
        self._spec, modules = spec, _modules(spec, random)
        whole = _Members(modules) if spec.members else modules[0]
        arrays, self._static = eqx.partition(whole, eqx.is_inexact_array)
        paths, self._structure = jax.tree_util.tree_flatten_with_path(arrays)
        self.names: list[str] = [".".join(_step(step) for step in path) for path, _ in paths]  # PyTorch's names
        self.arrays: list[Any] = [leaf for _, leaf in paths]
        self.shapes: list[tuple[int, ...]] = [tuple(leaf.shape) for leaf in self.arrays]
        self.learned: int = len(self.arrays)

    def with_arrays(self, arrays: list[Array], precision: Any = jnp.float32) -> Any:
        """See `jax.Built`."""
        own = [array.astype(precision) for array in arrays]
        return _Called(self._spec, eqx.combine(jax.tree.unflatten(self._structure, own), self._static))

    def statistics(self, net: Any, arrays: list[Array]) -> list[Array]:
        """An empty list: a user's own network has no running statistics."""
        return []


class _Members(eqx.Module):
    members: list[Any]


class _Called:
    """A user's own network, which may broadcast as JAX usually does (ours and the losses may not), in float32."""

    def __init__(self, spec: Network, whole: Any) -> None:
        self._spec, self._whole = spec, whole

    def __call__(self, obs: Any, *inputs: Any, train: bool = False) -> Any:
        obs, mask = masks.parted(obs)
        obs = seen(self._spec, obs)
        with jax.numpy_rank_promotion("allow"):
            if self._spec.members:
                values = ensemble(self._spec, jnp.stack, self._whole.members, obs, *inputs)
                return masks.masked(self._spec, _float32(values), mask)
            return masks.masked(self._spec, interpreted(self._spec, _float32(self._whole(obs, *inputs))), mask)

    def first(self, obs: Any, *inputs: Any) -> Array:
        with jax.numpy_rank_promotion("allow"):
            return _float32(self._whole.members[0](seen(self._spec, obs), *inputs))


def _float32(tree: Any) -> Any:
    """The tree with every array in float32. Anything else a user's class returns stays, for later checks to name."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if hasattr(x, "astype") else x, tree)


def _step(step: Any) -> str:
    return str(step.name if hasattr(step, "name") else step.idx if hasattr(step, "idx") else step.key)


def _modules(spec: Network, random: np.random.Generator) -> list[Any]:
    assert spec.custom is not None
    made, arguments = spec.custom.jax, spec.custom.arguments
    if made is None:
        raise UsageError('This network has no JAX class: hand over CustomNetwork(jax=...), or take backend="torch".')
    check_made(made, arguments, keyed=True)
    keys = jax.random.split(jax.random.key(zlib.crc32(random.bytes(16))), spec.members or 1)
    return [made(spec.observation, spec.action_size, key=key, **arguments) for key in keys]
