"""Environments of MuJoCo Playground: control suite, locomotion and manipulation in MJX.

Only the tasks of the control suite come with the package: the others fetch their models by git when they are made.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from mujoco_playground import registry  # pyright: ignore[reportMissingImports]
from typing_extensions import override

from duetto.environments.device_env import DeviceEnv
from duetto.networks.spaces import Box, Space


def names() -> list[str]:
    """Return the ids of MuJoCo Playground."""
    return list(registry.ALL_ENVS)


def make(name: str, options: dict[str, Any]) -> DeviceEnv:
    """Make an environment; `options` are entries of its config, such as episode_length or impl (jax or warp)."""
    return PlaygroundEnv(registry.load(name, config_overrides={"impl": "jax"} | options))


class PlaygroundEnv(DeviceEnv):
    """An environment of MuJoCo Playground with its time limit. Of several observations it gives "state" alone."""

    costly_reset = True

    def __init__(self, env: Any) -> None:
        self._env = env
        self._limit, self._repeat = int(env._config.episode_length), int(env._config.action_repeat)
        size = env.observation_size
        size = size["state"][0] if isinstance(size, dict) else size
        self.observation_space: Space = Box((int(size),), "float32", (float("-inf"),), (float("inf"),))
        self.action_space: Space = Box((env.action_size,), "float32", (-1.0,), (1.0,))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        state = self._env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), _observed(state)

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        (inner, time), reward = state, jnp.zeros(())
        for _ in range(self._repeat):
            inner = self._env.step(inner, action)
            reward = reward + inner.reward
        time = time + self._repeat
        return (inner, time), _observed(inner), reward, inner.done > 0, time >= self._limit


def _observed(state: Any) -> jax.Array:
    return state.obs["state"] if isinstance(state.obs, dict) else state.obs
