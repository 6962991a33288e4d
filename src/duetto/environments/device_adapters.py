"""Adapters for environments in JAX: gymnax (classic control, MinAtar, bsuite), Navix and MuJoCo Playground.

gymnax 1.0 needs Gymnasium below 1.4, so an installation has either gymnax or a newer Gymnasium. MuJoCo Playground's
package contains only the models of the control suite's tasks. Other tasks fetch their models by git when they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from duetto.environments import env_registry
from duetto.environments.device_env import DeviceEnv
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete, Space


def make_device_env(environment: Any, options: dict[str, Any]) -> DeviceEnv:
    """Make one environment from an id, a class or FILE.py:CLASS; return an instance unchanged.

    Raises:
        UsageError: The id is unknown, its package is missing, or its options are wrong.
    """
    factory: Any = env_registry.resolved(environment)
    if isinstance(factory, str):
        prefix, _, name = factory.partition(":")
        family, (adapter, ids_of) = env_registry.DEVICE_FAMILIES[prefix], _ADAPTERS[prefix]
        package = env_registry.import_family(family, family.entry_point, factory)
        env_registry.check_listed(factory, [f"{prefix}:{one}" for one in ids_of(package)])
        factory = partial(adapter, package, name)
    elif not isinstance(factory, type):
        if options:
            raise UsageError(f"{type(factory).__name__} already exists, so its options come too late. Pass its class.")
        return factory
    try:
        return factory(**options)
    except UsageError:
        raise
    except Exception as error:
        raise env_registry.explain(str(environment), options, error) from error


class GymnaxEnv(DeviceEnv):
    """An environment of gymnax, without its own autoreset.

    `options` replace fields of gymnax's environment parameters, such as max_steps_in_episode.
    """

    def __init__(self, gymnax: Any, name: str, /, **options: Any) -> None:
        self._env, parameters = gymnax.make(name)
        self._parameters = parameters.replace(**options)
        self.observation_space: Space = _of_gymnax(self._env.observation_space(self._parameters))
        self.action_space: Space = _of_gymnax(self._env.action_space(self._parameters))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        obs, state = self._env.reset_env(key, self._parameters)
        return state, obs

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, state, reward, terminated, _ = self._env.step_env(key, state, action, self._parameters)
        return state, obs, reward, terminated, self._env.is_truncated(state, self._parameters)


def _of_gymnax(space: Any) -> Space:
    match type(space).__name__:
        case "Discrete":
            return Discrete(int(space.n))
        case "Box":
            low, high = (np.broadcast_to(np.asarray(end, np.float64), space.shape) for end in (space.low, space.high))
            dtype = "uint8" if space.dtype == jnp.uint8 else "float32"
            return Box(tuple(space.shape), dtype, tuple(low.ravel().tolist()), tuple(high.ravel().tolist()))
    raise UsageError(f"gymnax's space {space} is not supported. Supported are Box and Discrete.")


class NavixEnv(DeviceEnv):
    """An environment of Navix (MiniGrid's tasks), without its own autoreset; the state is Navix's timestep.

    Observations are flat vectors of small integers, as float32. `options` go to `navix.make`, such as max_steps.
    """

    def __init__(self, navix: Any, name: str, /, **options: Any) -> None:
        self._env = env = navix.make(name, **options)
        low, high = float(env.observation_space.minimum), float(env.observation_space.maximum)
        self.observation_space: Space = Box((math.prod(env.observation_space.shape),), "float32", (low,), (high,))
        self.action_space: Space = Discrete(int(env.action_space.n))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        timestep = self._env.reset(key)
        return timestep, timestep.observation.ravel()

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        after = self._env._step(state, action)  # `step` would reset automatically
        return after, after.observation.ravel(), after.reward, after.is_termination(), after.is_truncation()


class PlaygroundEnv(DeviceEnv):
    """An environment of MuJoCo Playground with its time limit. Of a dict of observations, only "state" is used.

    `options` replace entries of the environment's config, such as episode_length or impl (jax or warp).
    """

    costly_reset: ClassVar[bool] = True

    def __init__(self, playground: Any, name: str, /, **options: Any) -> None:
        self._env = env = playground.registry.load(name, config_overrides={"impl": "jax"} | options)
        self._limit, self._repeat = int(env._config.episode_length), int(env._config.action_repeat)
        size = env.observation_size
        size = size["state"][0] if isinstance(size, dict) else size
        self.observation_space: Space = Box((int(size),), "float32", (float("-inf"),), (float("inf"),))
        self.action_space: Space = Box((env.action_size,), "float32", (-1.0,), (1.0,))

    @override
    def reset(self, key: Any) -> tuple[Any, Any]:
        state = self._env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), self._observed(state)

    @override
    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        (inner, time), reward = state, jnp.zeros(())
        for _ in range(self._repeat):
            inner = self._env.step(inner, action)
            reward = reward + inner.reward
        time = time + self._repeat
        return (inner, time), self._observed(inner), reward, inner.done > 0, time >= self._limit

    @staticmethod
    def _observed(state: Any) -> Any:
        return state.obs["state"] if isinstance(state.obs, dict) else state.obs


# By the prefixes of ids: the adapter, and a function that lists the package's ids.
_ADAPTERS: dict[str, tuple[Any, Callable[[Any], Iterable[str]]]] = {
    "gymnax": (GymnaxEnv, lambda gymnax: gymnax.registered_envs),
    "playground": (PlaygroundEnv, lambda playground: playground.registry.ALL_ENVS),
    "navix": (NavixEnv, lambda navix: navix.registry()),
}
