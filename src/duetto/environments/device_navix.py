"""Environments of Navix: MiniGrid's tasks in JAX, with symbolic observations."""

from __future__ import annotations

import math
from typing import Any

import navix  # pyright: ignore[reportMissingImports]
from typing_extensions import override

from duetto.environments.device_env import DeviceEnv
from duetto.networks.spaces import Box, Discrete, Space


def names() -> list[str]:
    """Return the ids of Navix."""
    return list(navix.registry())


def make(name: str, options: dict[str, Any]) -> DeviceEnv:
    """Make an environment; `options` are those of `navix.make`, such as max_steps."""
    return NavixEnv(navix.make(name, **options))


class NavixEnv(DeviceEnv):
    """An environment of Navix, whose state is its timestep, without its own autoreset.

    Observations are flat vectors of small integers, as float32.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        shape = tuple(env.observation_space.shape)
        low, high = float(env.observation_space.minimum), float(env.observation_space.maximum)
        size = math.prod(shape)
        self.observation_space: Space = Box((size,), "float32", (low,), (high,))
        self.action_space: Space = Discrete(int(env.action_space.n))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        timestep = self._env.reset(key)
        return timestep, timestep.observation.ravel()

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        after = self._env._step(state, action)  # `step` would reset automatically
        return after, after.observation.ravel(), after.reward, after.is_termination(), after.is_truncation()
