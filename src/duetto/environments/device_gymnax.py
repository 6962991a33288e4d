"""Environments of gymnax: classic control, MinAtar, bsuite and others.

gymnax 1.0 needs Gymnasium below 1.4, so an installation has either gymnax or a newer Gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnax  # pyright: ignore[reportMissingImports]  # its own environment, see above
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces as gymnax_spaces  # pyright: ignore[reportMissingImports]
from typing_extensions import override

from duetto.environments.device_env import DeviceEnv
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space


def names() -> list[str]:
    """Return the ids of gymnax."""
    return list(gymnax.registered_envs)


def make(name: str, options: dict[str, Any]) -> DeviceEnv:
    """Make an environment; `options` are fields of its parameters, such as max_steps_in_episode."""
    env, parameters = gymnax.make(name)
    return GymnaxEnv(env, parameters.replace(**options))


class GymnaxEnv(DeviceEnv):
    """An environment of gymnax, without its own autoreset."""

    def __init__(self, env: Any, parameters: Any) -> None:
        self._env, self._parameters = env, parameters
        self.observation_space: Space = _plain(env.observation_space(parameters))
        self.action_space: Space = _plain(env.action_space(parameters))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        obs, state = self._env.reset_env(key, self._parameters)
        return state, obs

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, state, reward, terminated, _ = self._env.step_env(key, state, action, self._parameters)
        return state, obs, reward, terminated, self._env.is_truncated(state, self._parameters)


def _plain(space: Any) -> Space:
    match space:
        case gymnax_spaces.Discrete():
            return Discrete(int(space.n))
        case gymnax_spaces.Box():
            low, high = (np.broadcast_to(np.asarray(end, np.float64), space.shape) for end in (space.low, space.high))
            dtype = "uint8" if space.dtype == jnp.uint8 else "float32"
            return Box(tuple(space.shape), dtype, tuple(low.ravel().tolist()), tuple(high.ravel().tolist()))
    raise UsageError(f"gymnax's space {space} is not supported. Supported are Box and Discrete.")
