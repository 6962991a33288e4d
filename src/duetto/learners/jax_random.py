"""Random numbers inside compiled programs, with the methods of NumPy's generator that algorithms use.

A key depends only on the run's seed, a purpose (a name) and a step's number. So checkpoints contain no generator state.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp

MOST_PACKED = 2**16  # `permutation` sorts packed integers for at most this many rows


def purpose_key(seed: int, purpose: str) -> Any:
    """Return the key for a run's seed and a purpose, such as "exploration"."""
    return jax.random.fold_in(jax.random.PRNGKey(seed), zlib.crc32(purpose.encode()))


class KeyGenerator:
    """A random generator; its n-th draw uses its key with n folded in. Use it within one trace only."""

    def __init__(self, key: Any) -> None:
        self._key = key
        self._draws = 0

    def _next(self) -> Any:
        self._draws += 1
        return jax.random.fold_in(self._key, self._draws)

    def standard_normal(self, size: Any, dtype: Any = jnp.float32) -> Any:
        """Draw standard normal numbers of the shape `size`."""
        return jax.random.normal(self._next(), _shape(size), dtype)

    def random(self, size: Any = (), dtype: Any = jnp.float32) -> Any:
        """Draw numbers in [0, 1) of the shape `size`, float32 for every `dtype`."""
        return jax.random.uniform(self._next(), _shape(size), jnp.float32)

    def uniform(self, low: float, high: float, size: Any = ()) -> Any:
        """Draw numbers in [low, high) of the shape `size`, float32."""
        return jax.random.uniform(self._next(), _shape(size), jnp.float32, low, high)

    def integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
        """Draw integers in [low, high), or [0, low), of the shape `size`, int32."""
        low, high = (0, low) if high is None else (low, high)
        shape = jnp.broadcast_shapes(jnp.shape(low), jnp.shape(high)) if size is None else _shape(size)
        return jax.random.randint(self._next(), shape, low, high, jnp.int32)

    def permutation(self, count: int) -> Any:
        """Draw a permutation of 0 .. count-1, (count,) int32.

        Each of up to 2^16 numbers gets at least 16 random bits in front of its bits; then these integers are sorted. On
        a CPU this is ten times as fast as `jax.random.permutation`. Numbers with equal random bits keep their order.
        """
        if count > MOST_PACKED:
            return jax.random.permutation(self._next(), count).astype(jnp.int32)
        bits = max(1, (count - 1).bit_length())
        drawn = jax.random.bits(self._next(), (count,), jnp.uint32)
        packed = jnp.sort((drawn >> bits << bits) | jnp.arange(count, dtype=jnp.uint32))
        return (packed & ((1 << bits) - 1)).astype(jnp.int32)


def _shape(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)
