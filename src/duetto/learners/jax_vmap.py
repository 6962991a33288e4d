"""The JAX learner of several seeds at once: `vmap` over a first axis of seeds in every array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Algorithm
from duetto.learners.jax import JaxLearner
from duetto.networks.spaces import Space


class JaxVmapLearner(JaxLearner):
    """A learner whose parameters, inputs and outputs have a first axis of N seeds; see `multi_seed`."""

    def __init__(self, algorithm: Algorithm, observation: Space, action: Space, seeds: Sequence[int], *how: Any):
        """`how` are the device, the precision and the number of threads."""
        super().__init__(algorithm, observation, action, seeds[0], *how)
        states = [JaxLearner(algorithm, observation, action, seed, *how)._state for seed in seeds]
        self._state = self._put(jax.tree.map(lambda *rows: np.stack(list(map(np.asarray, rows))), *states))
        for name in self.specs:  # a target shares its source's
            net = self._nets[name]
            net.shapes = [(len(seeds), *shape) for shape in net.shapes]

    @override
    def each(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(function)

    @override
    def of_one(self, tree: Any) -> Any:
        return jax.tree.map(_first, tree)


def _first(rows: Any) -> Any:
    """Return the first seed's array; of an array on a device only its shape, which is all that tracing needs."""
    return rows[0] if isinstance(rows, np.ndarray) else jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
