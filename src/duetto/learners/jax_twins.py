"""See `twins`, in JAX. A twin goes into updates' programs as an array that is read; between them it is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from duetto.learners.twins import Twins
from duetto.networks.pictures import joined


class JaxTwins(Twins):
    """Twins on one device, in JAX."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device = device

    def room(self) -> int | None:
        """See `Twins`: of what JAX may have in all."""
        known = self._device.memory_stats() or {}
        limit, used = known.get("bytes_limit"), known.get("bytes_in_use")
        return None if limit is None or used is None else limit - used

    def make(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """See `Twins`."""
        self.arrays: dict[str, Any] = {
            name: jnp.zeros(shape, jnp.uint8, device=self._device) for name, shape in shapes.items()
        }

    def bring(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """See `Twins`. The last row comes several times, so that there are as many as a power of two: few programs."""
        more = (1 << (len(rows) - 1).bit_length()) - len(rows)
        rows = np.pad(rows, (0, more), "edge")
        values = np.pad(values, ((0, more), (0, 0), (0, 0), (0, 0)), "edge")
        self.arrays[name] = _written(self.arrays[name], rows, values)

    def images(self, twin: Array, index: Array) -> Array:
        """See `Twins`."""
        return joined(jnp.take(twin, index, axis=0, mode="clip"))


@partial(jax.jit, donate_argnums=0)
def _written(twin: Array, rows: Array, values: Array) -> Array:
    return twin.at[rows].set(values)
