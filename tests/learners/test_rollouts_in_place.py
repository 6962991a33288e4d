"""A rollout's arrays are filled again at once: what was learned from them must not see that."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from learning_cases import VECTOR
from policy_cases import build, rollout, small

LINE = 64  # bytes: arrays that start at such an address are read where they are


def in_place(array: np.ndarray) -> np.ndarray:
    """The same numbers, where JAX would read them in place."""
    raw = np.empty(array.nbytes + LINE, np.uint8)
    begin = -raw.ctypes.data % LINE
    placed = raw[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_updates_are_over_when_they_are_called(backend: Any, at_once: bool):
    learned = []
    for overwritten in (False, True):
        learner = build(backend, small(hidden=(512, 512), minibatches=2, epochs=4))
        batch = rollout(4096, observation=VECTOR)
        batch = batch._replace(**{name: in_place(getattr(batch, name)) for name in ("obs", "action", "log_prob")})
        if at_once:
            learner.update_each([batch] * 4, [0.0] * 4)
        else:
            learner.update(batch)
        if overwritten:
            for array in jax.tree.leaves(batch):
                array[...] = 0
        learned.append(learner.parameters()["agent"])
    for name, value in learned[0].items():
        np.testing.assert_array_equal(value, learned[1][name], err_msg=name)
