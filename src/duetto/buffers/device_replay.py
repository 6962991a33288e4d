"""A replay buffer of transitions on the accelerator: pure functions of JAX arrays, for the compiled training loop.

Items, draws and n-step returns are the same as in `Replay`; a test compares both. Each vector step has a step of every
environment, so all environments have stored the same number of steps:

    arrays   (rows, N, ...); step `number` of environment e is at [number % rows, e]
    index    e * rows + number % rows, as in `Replay`

For each step, the buffer stores the observation and the next observation. This takes twice the memory of `Replay`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from duetto.algorithms.base import Batch, ReplaySpec
from duetto.buffers.episode_storage import Field, too_large, transition_fields
from duetto.functional.returns import n_step_return
from duetto.networks.spaces import Space

Arrays = dict[str, Any]  # with the names of `transition_fields`; Dict observations are not supported


class DeviceReplay:
    """A replay buffer without state: the caller holds its arrays and passes them to each method.

    Attributes:
        num_envs: N, the number of environments.
        fields: Shape and dtype of each value of a step.
        rows: Capacity of each environment's ring, in steps.
    """

    def __init__(self, spec: ReplaySpec, observation: Space, action: Space, num_envs: int) -> None:
        self._spec = spec
        self.num_envs: int = num_envs
        self.rows: int = -(-spec.capacity // num_envs)
        self.fields: dict[str, Field] = transition_fields(observation, action)

    def allocate(self) -> Arrays:
        """Return an empty buffer of zeros. Raise UsageError if it does not fit into memory."""
        try:
            return {
                name: jnp.zeros((self.rows, self.num_envs, *field.shape), jax.dtypes.canonicalize_dtype(field.dtype))
                for name, field in self.fields.items()
            }
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            what = f"replay_capacity {self._spec.capacity}"
            raise too_large(what, "Lower replay_capacity.", self.fields.values(), self.rows * self.num_envs) from error

    def add(self, arrays: Arrays, number: Any, values: Arrays) -> Arrays:
        """Return the arrays with one more step of every environment.

        `values` has the arrays (N, ...) of this step; `number` is the number of earlier steps per environment.
        """
        slot = number % self.rows
        return {
            name: jax.lax.dynamic_update_index_in_dim(array, values[name].astype(array.dtype), slot, 0)
            for name, array in arrays.items()
        }

    def draw(self, written: Any, size: int, random: Any) -> Any:
        """Draw the indices (B,) of items uniformly.

        Args:
            written: The number of steps stored for each environment, including overwritten ones.
            size: B.
            random: A generator with an `integers` method like NumPy's.
        """
        stored = jnp.minimum(written, self.rows)
        item = random.integers(stored * self.num_envs, size=size)
        return item // stored * self.rows + item % stored

    def batch(self, arrays: Arrays, written: Any, index: Any) -> Batch:
        """Return the transitions at `index` (B,), with weights of 1."""
        env, slot = index // self.rows, index % self.rows
        reward, discount, last = self._returns(arrays, written, env, slot)
        return Batch(
            obs=arrays["obs"][slot, env],
            action=arrays["action"][slot, env],
            reward=reward,
            discount=discount,
            next_obs=arrays["next_obs"][last, env],
            weight=jnp.ones(len(index), jnp.float32),
        )

    def _returns(self, arrays: Arrays, written: Any, env: Any, slot: Any) -> tuple[Any, Any, Any]:
        """Return the n-step sums of rewards from `slot`, the discounts, and the slots of the last steps: all (B,)."""
        spec = self._spec
        window = (slot[:, None] + jnp.arange(spec.n_step)) % self.rows
        available = (written - 1 - slot) % self.rows + 1
        reward, terminated, truncated = (
            arrays[name][window, env[:, None]] for name in ("reward", "terminated", "truncated")
        )
        summed, discount, length = n_step_return(reward, terminated, truncated, available, spec.discount)
        return summed, discount, window[jnp.arange(len(slot)), length - 1]
