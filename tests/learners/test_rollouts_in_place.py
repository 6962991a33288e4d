"""PPO overwrites a rollout's arrays right after an update; this must not change the update."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from learning_cases import VECTOR
from policy_cases import build, rollout, small

ALIGNMENT = 64  # bytes; JAX reads arrays with this alignment without a copy


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Copy the array to memory that JAX would read without a copy."""
    raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    placed = raw[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def test_update_is_unchanged_if_rollout_is_overwritten_afterwards(backend: Any):
    learned = []
    for overwritten in (False, True):
        learner = build(backend, small(hidden=(512, 512), minibatches=2, epochs=4))
        batch = rollout(4096, observation=VECTOR)
        batch = batch._replace(**{name: aligned_copy(getattr(batch, name)) for name in ("obs", "action", "log_prob")})
        learner.update_each([batch] * 4, [0.0] * 4)
        if overwritten:
            for array in jax.tree.leaves(batch):
                array[...] = 0
        learned.append(learner.parameters()["agent"])
    for name, value in learned[0].items():
        np.testing.assert_array_equal(value, learned[1][name], err_msg=name)
