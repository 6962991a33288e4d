"""A replay buffer of transitions as pure functions of JAX arrays, for the compiled training loop.

Items, draws and n-step windows follow the rules of `storage` and `replay`; a test compares both. All environments
step together, so one number counts the steps of each:

    arrays   (rows, N, ...); the step `number` of environment e is at [number % rows, e]
    item     its index is e * rows + number % rows, as on the host

Each step stores its observation and its next one: a vector takes twice the memory of the host's buffer.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duetto.algorithms.base import Batch, ReplaySpec
from duetto.buffers.storage_fields import Field, too_large, transition_fields
from duetto.functional.returns import n_step_return
from duetto.networks.spaces import Space

Arrays = dict[str, Any]  # by the names of `transition_fields`, without Dict observations


class DeviceReplay:
    """The functions of one buffer.

    Attributes:
        fields: Shape and dtype of each value of a step.
        rows: Steps that each environment's ring can hold.
    """

    def __init__(self, spec: ReplaySpec, observation: Space, action: Space, num_envs: int) -> None:
        self._spec = spec
        self.num_envs: int = num_envs
        self.rows: int = -(-spec.capacity // num_envs)
        self.fields: dict[str, Field] = transition_fields(observation, action)

    def allocate(self) -> Arrays:
        """Return an empty buffer, zeros. UsageError if it does not fit into the memory."""
        shapes = {name: (self.rows, self.num_envs, *field.shape) for name, field in self.fields.items()}
        try:
            return {name: jnp.zeros(shape, device_dtype(self.fields[name].dtype)) for name, shape in shapes.items()}
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            what = f"replay_capacity {self._spec.capacity}"
            raise too_large(what, "Lower replay_capacity.", self.fields.values(), self.rows * self.num_envs) from error

    def add(self, arrays: Arrays, number: Any, values: Arrays) -> Arrays:
        """Store the step `number` of every environment, values (N, ...) by name."""
        slot = number % self.rows
        return {
            name: jax.lax.dynamic_update_index_in_dim(array, values[name].astype(array.dtype), slot, 0)
            for name, array in arrays.items()
        }

    def draw(self, written: Any, size: int, random: Any) -> Any:
        """Draw the indices (B,) of items uniformly; `written` steps of each environment were stored.

        `random` has NumPy's `integers`.
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
        """Return reward and discount (B,) of the n-step windows from `slot` on, and the slot of their last step."""
        spec = self._spec
        window = (slot[:, None] + jnp.arange(spec.n_step)) % self.rows
        available = (written - 1 - slot) % self.rows + 1
        reward, terminated, truncated = (
            arrays[name][window, env[:, None]] for name in ("reward", "terminated", "truncated")
        )
        summed, discount, length = n_step_return(reward, terminated, truncated, available, spec.discount)
        return summed, discount, window[jnp.arange(len(slot)), length - 1]


def device_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which a device keeps values: int32 instead of int64."""
    return np.dtype(np.int32) if dtype == np.int64 else dtype
