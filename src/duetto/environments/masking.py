"""Classic control without velocities, so that an agent has to remember what it saw before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import registry
from gymnasium.wrappers import TransformObservation

from duetto.errors import UsageError

OPTION = "mask_velocity"

# What is left of an observation.
KEPT: dict[str, tuple[int, ...]] = {
    "CartPole": (0, 2),  # position, angle; without the velocities of both
    "Pendulum": (0, 1),  # cosine and sine; without the angular velocity
    "MountainCar": (0,),  # position
    "MountainCarContinuous": (0,),
    "Acrobot": (0, 1, 2, 3),  # cosines and sines of both joints
    "LunarLander": (0, 1, 4, 6, 7),  # position, angle, legs' contacts
    "LunarLanderContinuous": (0, 1, 4, 6, 7),
}


def can(environment: str) -> bool:
    """Whether this registered id has the option."""
    return _name(environment) in KEPT


def take(environment: str, kwargs: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, dict[str, Any]]:
    """Return the elements to keep, or None for all, and the other arguments, for the environment's constructor.

    Raises:
        UsageError: It is not known which elements of this environment are velocities, or the option is no bool.
    """
    if OPTION not in kwargs:
        return None, dict(kwargs)
    if not can(environment):
        raise UsageError(f"{environment} has no option {OPTION}. These have it: {', '.join(KEPT)}.")
    wanted = kwargs[OPTION]
    if not isinstance(wanted, bool):
        raise UsageError(f"{OPTION} is {wanted!r}. Give true or false.")
    others = {name: value for name, value in kwargs.items() if name != OPTION}
    return (KEPT[_name(environment)] if wanted else None), others


def without_velocity(env: gymnasium.Env, kept: tuple[int, ...] | None) -> gymnasium.Env:
    """Wrap `env` to show only the elements `kept` of its observation, None for all; its space shrinks with it."""
    if kept is None:
        return env
    space: Any = env.observation_space
    rows = np.array(kept)
    part = gymnasium.spaces.Box(space.low[rows], space.high[rows], dtype=space.dtype)
    return TransformObservation(env, lambda obs: obs[rows], part)


def _name(environment: str) -> str:
    spec = registry.get(environment.rpartition(":")[2])
    return spec.name if spec and spec.namespace is None else ""
