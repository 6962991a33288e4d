"""Environments whose state is arrays: they step inside compiled JAX programs, thousands at a time.

A `DeviceEnv` is one environment as two pure functions of arrays. `VectorDeviceEnv` makes N of them step together:

    state    {"key": (N, 2), "env": the environment's own tree (N, ...), "next", "turn": with `costly_reset`}
    step     every environment steps; where an episode ends, the next episode starts in the same step
    result   `next_obs` comes after the action, `obs` before the next action: they differ where an episode ended

Environment i draws all of its random numbers from its own key, which starts from seed + i. So its episodes depend
only on the seed and the actions (with `costly_reset` also on N). `DeviceEngine` steps the same environments from the
host, for evaluations and for PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from duetto.environments.actions import ActionMap
from duetto.environments.engines import Engine, StepResult
from duetto.environments.obs_tree import Tree
from duetto.environments.spaces import to_gymnasium
from duetto.errors import UsageError
from duetto.functional import state_schema
from duetto.networks.spaces import Box, Dict, Space

State = Any  # a tree of arrays


class DeviceEnv(ABC):
    """One environment as pure functions of JAX arrays. Derive custom environments from this class.

    Attributes:
        observation_space, action_space: Its spaces as plain data (`networks.spaces`): Box, Discrete or MultiDiscrete.
        on_device: True. Gymnasium's environments do not have this attribute.
        costly_reset: Whether `reset` is slower than several steps. If so, each vector step prepares the next reset of
            one environment only, not of all N. After an episode of fewer than N steps, the next episode may then start
            from the same state again.
    """

    observation_space: Space
    action_space: Space
    on_device: ClassVar[bool] = True
    costly_reset: ClassVar[bool] = False

    @abstractmethod
    def reset(self, key: Any) -> tuple[State, Any]:
        """Return the state and the observation of a new episode. `key` is a JAX random key."""

    @abstractmethod
    def step(self, state: State, action: Any, key: Any) -> tuple[State, Any, Any, Any, Any]:
        """Return the next state, its observation, the reward, and whether the episode is terminated or truncated.

        `action` is in the units and the shape of the action space. At an episode's end, do not reset: return the final
        observation.
        """


class VectorDeviceEnv:
    """N environments that step together, as pure functions."""

    def __init__(self, env: DeviceEnv, num_envs: int) -> None:
        self.env: DeviceEnv = env
        self.num_envs: int = num_envs
        if isinstance(env.action_space, Dict) or isinstance(env.observation_space, Dict):
            raise UsageError("The compiled loop does not support Dict spaces yet.")
        dtype = np.dtype(np.float32 if isinstance(env.action_space, Box) else np.int32)
        self.actions: ActionMap = ActionMap(to_gymnasium(env.action_space, dtype))
        space = env.observation_space
        self._dtype: Any = jnp.dtype(space.dtype) if isinstance(space, Box) else jnp.int32
        key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        self._like: Any = jax.eval_shape(self._stepped_types, key)  # shapes and dtypes of a state after a step

    def _stepped_types(self, key: Any) -> Any:
        state, _ = self.env.reset(key)
        action = self.actions.to_environment(jnp.zeros((1, *self.actions.row_shape)), jnp)[0]
        for _ in range(2):  # types may change in the first step only
            state = self.env.step(state, action, key)[0]
        return state

    def keys(self, seed: int) -> np.ndarray:
        """Return the first keys (N, 2) uint32. The key of environment i is made from seed + i."""
        return np.stack([jax.random.PRNGKey(seed + i) for i in range(self.num_envs)])

    def reset(self, keys: Any) -> tuple[dict[str, Any], Any]:
        """Start an episode in every environment; return the state and the observations (N, ...)."""
        pairs = jax.vmap(jax.random.split)(keys)
        state, obs = jax.vmap(self._begin)(pairs[:, 1])
        whole = {"key": pairs[:, 0], "env": state}
        if self.env.costly_reset:
            pairs = jax.vmap(jax.random.split)(whole["key"])
            upcoming, first = jax.vmap(self._begin)(pairs[:, 1])
            whole |= {"key": pairs[:, 0], "next": (upcoming, first), "turn": jnp.zeros((), jnp.int32)}
        return whole, obs

    def step(self, state: dict[str, Any], actions: Any) -> tuple[dict[str, Any], StepResult]:
        """Step every environment with an algorithm's actions (N, ...); start new episodes where episodes ended."""
        return self.step_own(state, self.actions.to_environment(actions, jnp))

    def step_own(self, state: dict[str, Any], actions: Any) -> tuple[dict[str, Any], StepResult]:
        """Step every environment with actions (N, ...) that already have the environment's own units and shape."""
        keys = jax.vmap(partial(jax.random.split, num=3))(state["key"])
        stepped, final, reward, terminated, truncated = jax.vmap(self.env.step)(state["env"], actions, keys[:, 1])
        final = self._observed(final)
        terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        done = terminated | truncated
        after = {"key": keys[:, 0]}
        if self.env.costly_reset:
            (restarted, first), after["turn"] = state["next"], (state["turn"] + 1) % self.num_envs
            renewed = self._begin(keys[state["turn"], 2])
            after["next"] = jax.tree.map(lambda all_, one: all_.at[state["turn"]].set(one), state["next"], renewed)
        else:
            restarted, first = jax.vmap(self._begin)(keys[:, 2])
        after["env"] = jax.tree.map(partial(_where, done), restarted, self._cast(stepped))
        reward, obs = reward.astype(jnp.float32), _where(done, first, final)
        return after, StepResult(final, reward, terminated, truncated, obs, done)

    def _begin(self, key: Any) -> tuple[State, Any]:
        state, obs = self.env.reset(key)
        return self._cast(state), self._observed(obs)

    def _cast(self, state: State) -> State:
        """Return `state` with the dtypes that states have after a step, so that programs compile only once."""
        return jax.tree.map(lambda leaf, like: jnp.asarray(leaf).astype(like.dtype), state, self._like)

    def _observed(self, obs: Any) -> Any:
        return jnp.asarray(obs).astype(self._dtype)


def _where(done: Any, new: Any, old: Any) -> Any:
    return jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)


class DeviceEngine(Engine):
    """N device environments that the host steps, by one call of a compiled program for each vector step."""

    def __init__(self, env: DeviceEnv, num_envs: int, label: str) -> None:
        spaces = to_gymnasium(env.observation_space), to_gymnasium(env.action_space)
        super().__init__(num_envs, label, *spaces, {"render_modes": []})
        self.vector: VectorDeviceEnv = VectorDeviceEnv(env, num_envs)
        self._reset, self._step = jax.jit(self.vector.reset), jax.jit(self.vector.step_own)
        self.state: Any = None

    @override
    def reset(self, seed: int) -> Tree:
        self.state, obs = self._reset(self.vector.keys(seed))
        return self._observed(obs)

    @override
    def step(self, actions: np.ndarray) -> StepResult:
        self.state, result = self._step(self.state, actions)
        result = jax.tree.map(np.array, result)
        obs, next_obs = self._observed(result.obs), self._observed(result.next_obs)
        return result._replace(obs=obs, next_obs=next_obs, reward=result.reward.astype(np.float64))

    def _observed(self, obs: Any) -> np.ndarray:
        return np.array(obs, self.layout.leaves[0].dtype)

    @override
    def reset_env(self, env: int, seed: int) -> Tree:
        keys = np.asarray(self.vector.keys(seed))[[0] * self.num_envs]
        fresh, obs = self._reset(keys)
        self.state = jax.tree.map(
            lambda old, new: old if jnp.ndim(old) == 0 else jnp.asarray(old).at[env].set(new[env]), self.state, fresh
        )
        return self._observed(obs)

    @override
    def save(self) -> dict[str, Any]:
        return arrays_of(self.state)

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        like = jax.eval_shape(self.vector.reset, self.vector.keys(0))[0]
        self.state = tree_of(saved, like, "stepper/environments")
        return obs, [""] * self.num_envs


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a tree of arrays in a dict, with their numbers as keys, for a checkpoint."""
    return {str(i): np.array(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def tree_of(saved: Any, like: Any, where: str) -> Any:
    """Return a tree like `like` from `saved`, which `arrays_of` returned. Raises CheckpointError if it does not fit."""
    leaves, structure = jax.tree.flatten(like)
    form = {str(i): np.zeros(leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)}
    state_schema.check(saved, form, where)
    return jax.tree.unflatten(structure, [jnp.asarray(saved[str(i)]) for i in range(len(leaves))])
