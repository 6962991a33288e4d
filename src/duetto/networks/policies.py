"""Which distribution a network's output stands for, by the action space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from duetto.functional.distributions import Categorical, DiagonalGaussian, Distribution, Joint, MultiCategorical, cuts
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def outputs(action: Space) -> int:
    """How many numbers a network must give for the distribution over these actions."""
    if isinstance(action, Dict):
        return sum(outputs(part) for _, part in action.parts)
    return 2 * action.size if isinstance(action, Box) else action.size


def distribution(action: Space, parameters: Any) -> Distribution:
    """The distribution that a network's output (..., outputs) stands for.

    Discrete: logits. MultiDiscrete: the parts' logits side by side. Box: means, then logarithms of the std. Dict: the
    outputs of its parts side by side.
    """
    match action:
        case Discrete():
            return Categorical(parameters)
        case MultiDiscrete():
            return MultiCategorical(tuple(Categorical(parameters[..., low:high]) for low, high in cuts(action.nvec)))
        case Box():
            return DiagonalGaussian(parameters[..., : action.size], parameters[..., action.size :])
        case Dict():
            ends = cuts([outputs(part) for _, part in action.parts])
            return joint(action, [parameters[..., low:high] for low, high in ends])


def joint(action: Dict, parameters: Sequence[Any]) -> Joint:
    """The distribution over all parts of a Dict action, from the outputs for each part."""
    parts: Any = [distribution(part, own) for (_, part), own in zip(action.parts, parameters, strict=True)]
    return Joint(tuple(parts))


def noise(action: Space, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers (*shape, action.size) float32 for `sample`: standard normal for a Box, else standard Gumbel."""
    if isinstance(action, Dict):
        return np.concatenate([noise(part, random, shape) for _, part in action.parts], axis=-1)
    if isinstance(action, Box):
        return random.standard_normal((*shape, action.size), dtype=np.float32)
    uniform = random.random((*shape, action.size), dtype=np.float32)
    return -np.log(-np.log(np.clip(uniform, np.float32(1e-20), np.float32(1 - 2**-24))))
