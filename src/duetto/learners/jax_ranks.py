"""Several learners in JAX: one program, whose arrays lie on several devices of this process.

    device     0           1
    batch      rows 0-3    rows 4-7
    state      whole       whole

Arrays are whole wherever their rows lie, so the program is that of one learner; XLA has each device compute its rows,
and adds up where the equations do. On a CPU, JAX makes as many devices of it as are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from duetto.errors import UsageError
from duetto.functional.trees import mapped
from duetto.learners.base import Rates
from duetto.learners.dealing import has_rows
from duetto.learners.jax import JaxLearner
from duetto.learners.jax_begin import begin
from duetto.learners.rank import Making

ROWS = "rows"


class JaxRanks(JaxLearner):
    """A learner whose batches are dealt to several devices."""

    at_once = 1

    def __init__(self, making: Making, number: int) -> None:
        mesh = Mesh(np.array(_devices(making, number)), (ROWS,))
        self._everywhere = NamedSharding(mesh, P())
        self._dealt, self._dealt_parts = NamedSharding(mesh, P(ROWS)), NamedSharding(mesh, P(None, ROWS))
        super().__init__(*making)
        self.ranks: int = number
        self.device: Any = self._everywhere  # of what is loaded, from here on
        self._state = jax.device_put(self._state, self._everywhere)

    def compiled(self, function: Callable[..., Any], rows: int) -> Callable[..., Any]:
        """See JaxLearner; what comes out is whole on each device."""
        return jax.jit(function, donate_argnums=0, out_shardings=self._everywhere, compiler_options=self.by_rule())

    def _placed(self, batch: Any, rows: np.ndarray | None, noise: Any, rates: Rates) -> tuple[Any, ...]:
        """See JaxLearner. Of a batch in parts each device has all, and takes its rows of every part."""
        size = len(batch.weight) if rows is None else rows.shape[1]
        of_noise = mapped(lambda array: self._dealt if has_rows(array, size) else self._everywhere, noise)
        if rows is None:
            batch = jax.device_put(batch, self._dealt)
        else:
            batch, rows = jax.device_put(batch, self._everywhere), jax.device_put(rows, self._dealt_parts)
        return batch, rows, jax.device_put(noise, of_noise), rates

    def _here(self, arrays: list[Array]) -> list[Array]:
        """See JaxLearner."""
        return [array.addressable_data(0) for array in arrays]


def _devices(making: Making, number: int) -> list[Any]:
    """The first `number` devices of this process. Raises UsageError where there are fewer."""
    if making.device == "cpu":
        begin(making.threads, number)
    found = jax.devices("gpu" if making.device == "cuda" else "cpu")
    if len(found) >= number:
        return found[:number]
    if making.device == "cuda":
        raise UsageError(
            f"{number} learners need a CUDA device each, and JAX sees {len(found)} here. Give fewer --learners, or "
            "--device cpu."
        )
    raise UsageError(
        f"JAX has begun in this process with {len(found)} CPU device{'s' * (len(found) > 1)}, too few for {number} "
        f'learners. Begin it in a new process, or set jax.config.update("jax_num_cpu_devices", {number}) before '
        "anything is computed."
    )
