"""Small JAX environments (`DeviceEnv`) for the compiled training loop."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from duetto.environments.device_env import DeviceEnv
from duetto.networks.spaces import Box, Discrete


class PointMass(DeviceEnv):
    """A point on a line: the reward is -|x|; it terminates beyond 2, and is truncated after `limit` steps."""

    observation_space = Box((2,), "float32", (-10.0,), (10.0,))
    action_space = Box((1,), "float32", (-2.0,), (2.0,))

    def __init__(self, limit: int = 20) -> None:
        self.limit = limit

    def reset(self, key: Any) -> tuple[Any, Any]:
        position = jax.random.uniform(key, (), minval=-1.0, maxval=1.0)
        return self.state(position, 0.0, 0)

    def state(self, position: Any, velocity: Any, time: Any) -> tuple[Any, Any]:
        return {"position": position, "velocity": velocity, "time": time}, jnp.stack([position, jnp.asarray(velocity)])

    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        push = self.push(action) + 0.01 * jax.random.normal(key)
        velocity = 0.9 * state["velocity"] + 0.2 * push
        position, time = state["position"] + 0.2 * velocity, state["time"] + 1
        after, obs = self.state(position, velocity, time)
        return after, obs, -jnp.abs(position), jnp.abs(position) > 2.0, time >= self.limit

    def push(self, action: Any) -> Any:
        return action[0]


class DiscretePointMass(PointMass):
    """PointMass with the actions left, none and right."""

    action_space = Discrete(3)

    def push(self, action: Any) -> Any:
        return action - 1.0


class PooledPointMass(PointMass):
    """PointMass with costly resets: each step computes the next reset of one environment."""

    costly_reset: ClassVar[bool] = True


class Steady(PointMass):
    """PointMass with rewards of -2."""

    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any, Any]:
        after, obs, _, terminated, truncated = super().step(state, action, key)
        return after, obs, -2.0, terminated, truncated
