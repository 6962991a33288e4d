"""Observations, actions and previous rewards as network inputs: one-hot codes, flat vectors, images."""

from __future__ import annotations

from typing import Any, Literal

from array_api_compat import array_namespace, device

from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, num_columns

SeenReward = Literal["raw", "tanh", "sign"]


def encode(space: Space, obs: Any) -> Any:
    """Encode observations as (..., size) float32: boxes flat, integers one-hot, a Dict's parts concatenated."""
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


def encode_action(space: Space, action: Any) -> Any:
    """Encode an algorithm's actions as (..., size) float32.

    A Box's actions already have this shape. A Dict's actions are (..., columns), see `spaces.num_columns`.
    """
    if isinstance(space, Box):
        xp = array_namespace(action)
        return action if action.dtype == xp.float32 else xp.astype(action, xp.float32)
    if not isinstance(space, Dict):
        return encode(space, action)
    parts, first = [], 0
    for _, part in space.parts:
        taken = action[..., first : first + num_columns(part)]
        parts.append(encode_action(part, taken[..., 0] if isinstance(part, Discrete) else taken))
        first += num_columns(part)
    return array_namespace(action).concat(parts, axis=-1)


def seen_reward(kind: SeenReward, reward: Any) -> Any:
    """Return the previous reward (...) as an input of a network: unchanged, its tanh, or its sign."""
    xp = array_namespace(reward)
    return {"raw": lambda x: x, "tanh": xp.tanh, "sign": xp.sign}[kind](reward)


def _one_hot(index: Any, n: int) -> Any:
    xp = array_namespace(index)
    codes = xp.reshape(xp.arange(n, device=device(index)), (*(1,) * index.ndim, n))  # equal ranks, as JAX requires
    return xp.astype(index[..., None] == codes, xp.float32)


def is_image(space: Space) -> bool:
    """Return whether the space is or contains an image, a uint8 Box of three dimensions."""
    return any(isinstance(part, Box) and part.is_image for _, part in named_parts(space))


def image_warnings(space: Space) -> list[str]:
    """Return a warning for each part that looks like an image but is treated as a vector."""
    warnings = []
    for name, part in named_parts(space):
        if isinstance(part, Box) and part.looks_like_image:
            which = f"observation {name}" if isinstance(space, Dict) else "observation"
            warnings.append(
                f"The {which}, {part.dtype} of shape {part.shape}, looks like an image, but is treated as a vector of "
                f"{part.size:,} numbers, without convolutions. If it is an image, use a wrapper that returns uint8, 0 "
                "to 255, of shape (height, width, channels) or (channels, height, width), stacked frames along the "
                "channels."
            )
    return warnings


def named_parts(space: Space) -> list[tuple[str, Box | Discrete | MultiDiscrete]]:
    """Return a Dict's parts by name, in order; any other space is a single part named "image" or "vector"."""
    if isinstance(space, Dict):
        return list(space.parts)
    return [("image" if isinstance(space, Box) and space.is_image else "vector", space)]


def split_images(space: Space, obs: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return images by name, (B, ...) uint8, and the other parts encoded, (B, size) float32 each."""
    images: dict[str, Any] = {}
    vectors: list[Any] = []
    for name, part in named_parts(space):
        value = obs[name] if isinstance(space, Dict) else obs
        if isinstance(part, Box) and part.is_image:
            images[name] = value
        else:
            vectors.append(encode(part, value))
    return images, vectors


def chw(image: Box) -> tuple[int, int, int]:
    """Return channels, height and width of an image in either layout."""
    first, second, third = image.shape
    return (first, second, third) if image.channels_first else (third, first, second)


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel and stride of each layer (Mnih et al., 2015)
SMALL = ((16, 2, 1), (32, 2, 1), (64, 2, 1))  # for images smaller than NATURE's kernels


def convolutions(image: Box) -> tuple[tuple[int, int, int], ...]:
    """Return channels, kernel and stride of each layer.

    The layers are NATURE if both sides have at least 36 pixels, else the first layers of SMALL.

    Raises:
        UsageError: A side has one pixel only.
    """
    shortest = min(chw(image)[1:])
    if shortest < 2:
        raise UsageError(f"Images of the shape {image.shape} are too small. Give observations of this size as vectors.")
    return NATURE if shortest >= 36 else SMALL[: shortest - 1]
