"""PPO overwrites a rollout's arrays right after an update; this must not change the update."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from learning_cases import VECTOR, aligned
from policy_cases import build, rollout, small


def test_update_is_unchanged_if_rollout_is_overwritten_afterwards(backend: Any):
    learned = []
    for overwritten in (False, True):
        learner = build(backend, small(hidden=(512, 512), minibatches=2, epochs=4))
        batch = rollout(4096, observation=VECTOR)
        batch = batch._replace(**{name: aligned(getattr(batch, name)) for name in ("obs", "action", "log_prob")})
        learner.update_each([batch] * 4, [0.0] * 4)
        if overwritten:
            for array in jax.tree.leaves(batch):
                array[...] = 0
        learned.append(learner.parameters()["agent"])
    for name, value in learned[0].items():
        np.testing.assert_array_equal(value, learned[1][name], err_msg=name)
