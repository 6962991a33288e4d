"""Recurrent learners: single steps, sequences, burn-in, resets and masks. `tests/golden` has their values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from learning_cases import VECTOR, build
from recurrent_cases import batch, part, window

from duetto.algorithms import DQN, PPO, R2D2
from duetto.networks.spaces import Discrete

CHOICE = Discrete(3)
SMALL: dict[str, Any] = {"recurrent_size": 8, "hidden": (16, 12)}
SEQUENCES: dict[str, Any] = SMALL | {"burn_in": 2, "unroll": 5, "overlap": 3}
HEAD: dict[str, Any] = {"head_hidden": (6,), "image_features": 16}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sequence_outputs_equal_single_step_outputs(backend, kind):
    """Some episodes end inside the sequence, as in rollouts."""
    algorithm = PPO(recurrent=kind, recurrent_layers=2, minibatches=1, shared_torso=True, **SMALL)
    learner = build(backend, algorithm, VECTOR, CHOICE)
    seen = window(VECTOR, CHOICE, learner.carry_shapes(), 4, 9)
    seen.starts[1, 3] = seen.starts[2, 3] = seen.starts[3, 8] = True
    seen = seen._replace(query_steps=np.broadcast_to(np.arange(9), (4, 9)).copy())
    whole, last = learner.call_with_carry("value", seen)
    carry, single = seen.carry, []
    for step in range(9):
        value, carry = learner.call_with_carry("value", part(seen, step, carry))
        single.append(value)
    np.testing.assert_allclose(whole, np.stack(single, axis=1), atol=1e-6)
    for name, array in carry.items():
        np.testing.assert_allclose(last[name], array, atol=1e-6)


def test_outputs_ignore_steps_before_episode_start(backend):
    algorithm = PPO(recurrent="lstm", minibatches=1, shared_torso=True, **SMALL)
    learner = build(backend, algorithm, VECTOR, CHOICE)
    seen = window(VECTOR, CHOICE, learner.carry_shapes(), 3, 6)
    seen.starts[:, 4] = True
    other = window(VECTOR, CHOICE, learner.carry_shapes(), 3, 6, seed=5)
    for mine, its in zip(seen[:3], other[:3], strict=True):
        mine[:, :4] = its[:, :4]
    changed = seen._replace(carry=other.carry)
    again = window(VECTOR, CHOICE, learner.carry_shapes(), 3, 6)
    again.starts[:, 4] = True
    values = [learner.value(one._replace(query_steps=np.full((3, 2), (4, 5)))) for one in (changed, again)]
    np.testing.assert_array_equal(*values)


def test_padded_steps_have_no_gradient(backend):
    """Data after the third step of the last sequence is padding, and does not change the parameters."""
    learners = [build(backend, R2D2(**SEQUENCES, **HEAD), VECTOR, CHOICE) for _ in range(2)]
    one = batch(VECTOR, CHOICE, learners[0].carry_shapes())
    other = batch(VECTOR, CHOICE, learners[0].carry_shapes())
    other.reward[-1, 3:] += 100
    other.action[-1, 3:] = (other.action[-1, 3:] + 1) % 3
    for learner, given in zip(learners, (one, other), strict=True):
        learner.update(given)
    before, after = (learner.parameters()["q"] for learner in learners)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


@pytest.mark.parametrize(("learn_from_start", "moved"), [(True, [True, False]), (False, [False, False])])
def test_burn_in_has_no_gradient_r16(backend, learn_from_start, moved):
    """Only positions 2 and 3 have a loss. Positions 0 and 1 are the burn-in.

    The input's third number is 0 except in the burn-in, so its weights move only if the gradient reaches the burn-in.
    """
    for fresh, expected in zip((True, False), moved, strict=True):
        algorithm = DQN(recurrent="lstm", learn_from_start=learn_from_start, **SEQUENCES | {"hidden": ()}, **HEAD)
        learner = build(backend, dataclasses.replace(algorithm, max_grad_norm=0.0), VECTOR, CHOICE)
        one = batch(VECTOR, CHOICE, learner.carry_shapes())
        one.obs.obs[:, 2:, 2] = 0
        one.obs.starts[:] = False
        one.obs.starts[:, 0] = fresh
        mask = np.zeros_like(one.mask)
        mask[:, 2:4] = 1
        before = learner.parameters()["q"]["torso.recurrent.weights.weight_ih_l0"][:, 2]
        learner.update(one._replace(mask=mask, obs=one.obs._replace(is_first=np.full(6, fresh))))
        after = learner.parameters()["q"]["torso.recurrent.weights.weight_ih_l0"][:, 2]
        assert bool(np.any(before != after)) is expected, fresh
