"""Observations as one vector per sample, written once for both frameworks."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def encode(space: Space, obs: Any) -> Any:
    """(..., size) float32: boxes flattened, integers one-hot, the parts of a Dict side by side in sorted order."""
    if isinstance(space, Dict):
        parts = [encode(part, obs[name]) for name, part in space.parts]
        return array_namespace(*parts).concat(parts, axis=-1)
    if isinstance(space, Discrete):
        return _one_hot(obs, space.n)
    if isinstance(space, MultiDiscrete):
        columns = [_one_hot(obs[..., i], n) for i, n in enumerate(space.nvec)]
        return array_namespace(obs).concat(columns, axis=-1)
    xp = array_namespace(obs)
    if len(space.shape) != 1:
        obs = xp.reshape(obs, (*obs.shape[: obs.ndim - len(space.shape)], space.size))
    return obs if obs.dtype == xp.float32 else xp.astype(obs, xp.float32)


def _one_hot(index: Any, n: int) -> Any:
    xp = array_namespace(index)
    codes = xp.reshape(xp.arange(n, device=device(index)), (*(1,) * index.ndim, n))  # JAX takes equal ranks only
    return xp.astype(index[..., None] == codes, xp.float32)


def is_image(space: Space) -> bool:
    """Whether the space is, or has as a part, an image (a uint8 Box of three dimensions)."""
    if isinstance(space, Dict):
        return any(is_image(part) for _, part in space.parts)
    return isinstance(space, Box) and space.is_image
