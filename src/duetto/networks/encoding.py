"""Observations as one vector per sample, written once for both frameworks."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, device

from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, columns


def encode(space: Space, obs: Any) -> Any:
    """Observations as (..., size) float32: boxes flattened, integers one-hot, a Dict's parts side by side, sorted."""
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
    """Actions as algorithms give them, as (..., size) float32: a Box's are (..., size) whatever its shape, a Dict's
    (..., columns), see `spaces`.
    """
    if isinstance(space, Box):
        xp = array_namespace(action)
        return action if action.dtype == xp.float32 else xp.astype(action, xp.float32)
    if not isinstance(space, Dict):
        return encode(space, action)
    parts, first = [], 0
    for _, part in space.parts:
        own = action[..., first : first + columns(part)]
        parts.append(encode_action(part, own[..., 0] if isinstance(part, Discrete) else own))
        first += columns(part)
    return array_namespace(action).concat(parts, axis=-1)


def _one_hot(index: Any, n: int) -> Any:
    xp = array_namespace(index)
    codes = xp.reshape(xp.arange(n, device=device(index)), (*(1,) * index.ndim, n))  # JAX takes equal ranks only
    return xp.astype(index[..., None] == codes, xp.float32)


def is_image(space: Space) -> bool:
    """Whether the space is, or has as a part, an image (a uint8 Box of three dimensions)."""
    return any(isinstance(part, Box) and part.is_image for _, part in named_parts(space))


def flattened_images(space: Space) -> list[str]:
    """A sentence for each part that looks like an image but is treated as a vector."""
    said = []
    for name, part in named_parts(space):
        if isinstance(part, Box) and part.seems_image:
            which = f"observation {name}" if isinstance(space, Dict) else "observation"
            said.append(
                f"The {which}, {part.dtype} of shape {part.shape}, looks like an image, and is taken as {part.size:,} "
                "numbers in a row: no convolution sees it. An image is uint8, 0 to 255, of shape (height, width, "
                "channels) or (channels, height, width), with the frames of a stack along the channels: give it so, "
                "with a wrapper, if you meant one."
            )
    return said


def named_parts(space: Space) -> list[tuple[str, Box | Discrete | MultiDiscrete]]:
    """The parts of a Dict by name, in order; anything else is one part, called "image" or "vector"."""
    if isinstance(space, Dict):
        return list(space.parts)
    return [("image" if isinstance(space, Box) and space.is_image else "vector", space)]


def split(space: Space, obs: Any) -> tuple[dict[str, Any], list[Any]]:
    """Images by name as they are, (B, ...) uint8, and the other parts encoded, (B, size) float32 each."""
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
    """Channels, height and width of an image, whichever way it is stored."""
    first, second, third = image.shape
    return (first, second, third) if image.channels_first else (third, first, second)


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel and stride of each layer (Mnih et al., 2015)
SMALL = ((16, 2, 1), (32, 2, 1), (64, 2, 1))  # where NATURE's kernels do not fit


def convolutions(image: Box) -> tuple[tuple[int, int, int], ...]:
    """Channels, kernel and stride of each layer: NATURE from 36 pixels on; below as many layers of SMALL, each of which
    takes a pixel, as fit this image.

    Raises:
        UsageError: A side of one pixel, which leaves none to convolve.
    """
    shortest = min(chw(image)[1:])
    if shortest < 2:
        raise UsageError(f"Images of the shape {image.shape} are too small. Give observations of this size as vectors.")
    return NATURE if shortest >= 36 else SMALL[: shortest - 1]
