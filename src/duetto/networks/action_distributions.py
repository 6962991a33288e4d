"""The distribution over actions that a policy's outputs parameterize, by the action space."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from duetto.functional.distributions import Categorical, DiagonalGaussian, Distribution, Joint, split_bounds
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def num_outputs(action: Space) -> int:
    """Return the number of outputs that parameterize the distribution over these actions."""
    if isinstance(action, Dict):
        return sum(num_outputs(part) for _, part in action.parts)
    return 2 * action.size if isinstance(action, Box) else action.size


def distribution(action: Space, parameters: Any, log_std: Any = None) -> Distribution:
    """Return the distribution over actions for outputs (..., num_outputs).

    Discrete: logits. MultiDiscrete: the concatenated logits. Box: means, then log-stds. Dict: the concatenated outputs
    of its parts. If the log-stds of all numbers are given, (n,), outputs have only means, (..., action.size).
    """
    match action:
        case Discrete():
            return Categorical(parameters)
        case Box() if log_std is None:
            return DiagonalGaussian(parameters[..., : action.size], parameters[..., action.size :])
        case Box():
            rows = log_std[(None,) * (parameters.ndim - 1)]  # JAX takes equal ranks only
            return DiagonalGaussian(parameters, rows + array_namespace(parameters).zeros_like(parameters))
        case MultiDiscrete():
            spaces: list[Space] = [Discrete(n) for n in action.nvec]
        case Dict():
            spaces = [part for _, part in action.parts]
    sizes = [num_outputs(space) if log_std is None else space.size for space in spaces]
    parts: list[Any] = []
    for space, (low, high) in zip(spaces, split_bounds(sizes), strict=True):
        stds = None
        if log_std is not None and isinstance(space, Box):
            stds, log_std = log_std[: space.size], log_std[space.size :]
        part = distribution(space, parameters[..., low:high], stds)
        parts += part.parts if isinstance(part, Joint) else [part]
    return Joint(tuple(parts))


def sampling_noise(action: Space, random: Any, shape: tuple[int, ...]) -> Any:
    """Draw noise (*shape, action.size) float32 for `sample`: standard normal for a Box, else standard Gumbel.

    `random` is a NumPy generator, or another one with the same methods (`learners.jax_random`).
    """
    if isinstance(action, Dict):
        parts = [sampling_noise(part, random, shape) for _, part in action.parts]
        return array_namespace(*parts).concat(parts, axis=-1)
    if isinstance(action, Box):
        return random.standard_normal((*shape, action.size), dtype=np.float32)
    uniform = random.random((*shape, action.size), dtype=np.float32)
    xp = array_namespace(uniform)
    return -xp.log(-xp.log(uniform.clip(np.float32(1e-20), np.float32(1 - 2**-24))))
