"""Recurrent networks through the learners: parity by value, steps and unrolls, burn-in, resets, masks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR, build
from policy_cases import PICTURE
from recurrent_cases import batch, part, window
from test_parity import assert_parity, close, compare_state

from duetto.algorithms import DQN, PPO, R2D2, SAC, TD3
from duetto.networks.network import Network
from duetto.networks.spaces import Discrete

CHOICE = Discrete(3)
SMALL: dict[str, Any] = {"recurrent_size": 8, "hidden": (16, 12)}
SEQUENCES: dict[str, Any] = SMALL | {"burn_in": 2, "unroll": 5, "overlap": 3}
HEAD: dict[str, Any] = {"head_hidden": (6,), "image_features": 16}
CASES = {
    "dqn, gru of two layers, dict": (DQN(recurrent="gru", recurrent_layers=2, **SEQUENCES, **HEAD), PARTS, CHOICE),
    "r2d2, image": (R2D2(**SEQUENCES, **HEAD), PICTURE, CHOICE),
    "td3, lstm of two layers": (TD3(recurrent="lstm", recurrent_layers=2, **SEQUENCES), VECTOR, ACTION),
    "sac, lstm, simba": (SAC(recurrent="lstm", network="simba", **SEQUENCES | {"hidden": (8,)}), VECTOR, ACTION),
}


@pytest.mark.parametrize("case", CASES)
def test_both_backends_compute_the_same(case):
    algorithm, observation, action = CASES[case]
    pair = [build(backend, algorithm, observation, action) for backend in ("torch", "jax")]
    carry = pair[0].carry_shapes()
    batches = [batch(observation, action, carry, seed=update) for update in range(1, 31)]
    assert_parity(pair, batches, lambda tolerance: compare_acting(pair, observation, action, carry, tolerance))


def compare_acting(pair, observation, action, carry, tolerance):
    seen = window(observation, action, carry, 5, 2, seed=7)
    (ours, our_carry), (theirs, their_carry) = (
        learner.remember("act", part(seen, 0, seen.carry), None) for learner in pair
    )
    close(ours, theirs, tolerance, "actions")
    assert our_carry.keys() == their_carry.keys() == carry.keys()
    for name, array in our_carry.items():
        close(array, their_carry[name], tolerance, name)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_one_pass_over_steps_is_as_many_single_steps(backend, kind):
    """Episodes end inside the stretch too, as in rollouts."""
    algorithm = PPO(recurrent=kind, recurrent_layers=2, minibatches=1, shared_torso=True, **SMALL)
    learner = build(backend, algorithm, VECTOR, CHOICE)
    seen = window(VECTOR, CHOICE, learner.carry_shapes(), 4, 9)
    seen.starts[1, 3] = seen.starts[2, 3] = seen.starts[3, 8] = True
    seen = seen._replace(query_steps=np.broadcast_to(np.arange(9), (4, 9)).copy())
    whole, last = learner.remember("value", seen)
    carry, single = seen.carry, []
    for step in range(9):
        value, carry = learner.remember("value", part(seen, step, carry))
        single.append(value)
    np.testing.assert_allclose(whole, np.stack(single, axis=1), atol=1e-6)
    for name, array in carry.items():
        np.testing.assert_allclose(last[name], array, atol=1e-6)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_distribution_over_steps_is_as_many_single_ones(backend, sampled):
    """An actor with an LSTM gives one for each position of a window."""
    learner = build(backend, SAC(recurrent="lstm", **SEQUENCES | {"burn_in": 0}), VECTOR, ACTION)
    seen = window(VECTOR, ACTION, learner.carry_shapes(), 4, 6)
    seen.starts[1, 3] = True
    seen = seen._replace(query_steps=np.broadcast_to(np.arange(6), (4, 6)).copy())
    noise = np.random.default_rng(0).normal(size=(4, 6, ACTION.size)).astype(np.float32) if sampled else None
    whole, last = learner.remember("act", seen, noise)
    carry, single = seen.carry, []
    for step in range(6):
        one = None if noise is None else noise[:, step]
        action, carry = learner.remember("act", part(seen, step, carry), one)
        single.append(action)
    np.testing.assert_allclose(whole, np.stack(single, axis=1), atol=1e-6)
    for name, array in carry.items():
        np.testing.assert_allclose(last[name], array, atol=1e-6)


def test_what_was_before_an_episodes_start_does_not_count(backend):
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


def test_the_carry_and_the_previous_action_and_reward_count(backend):
    learner = build(backend, R2D2(**SEQUENCES, **HEAD), VECTOR, CHOICE)
    seen = part(window(VECTOR, CHOICE, learner.carry_shapes(), 40, 2), 0, {})
    seen = seen._replace(carry={name: np.zeros((40, *s), np.float32) for name, s in learner.carry_shapes().items()})
    changes = {
        "carry": {name: array + 1 for name, array in seen.carry.items()},
        "previous_action": (seen.previous_action + 2) % 3,
        "previous_reward": seen.previous_reward + 1,
    }
    _, before = learner.remember("act", seen, None)
    for field, value in changes.items():
        _, after = learner.remember("act", seen._replace(**{field: value}), None)
        assert np.abs(after["q/h"] - before["q/h"])[2:].max() > 1e-3, field


def test_padded_steps_have_no_gradient(backend):
    """Whatever stands behind the last sequence's third step: no parameter changes, only the priorities there."""
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
def test_r16_the_burn_in_has_no_gradient(backend, learn_from_start, moved):
    """Only positions 2 and 3 are learned from: what came in at 0 and 1 moves the input weights through the state, if
    at all. The input's third number is 0 but there, so its weights move only if the gradient reaches the burn-in.
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


def test_burn_in_changes_what_is_learned(backend):
    """With burn-in the stored state matters less than without; the outputs are those of the whole window either way."""
    states = []
    for burn_in in (0, 2):
        algorithm = DQN(recurrent="lstm", learn_from_start=False, **SEQUENCES | {"burn_in": burn_in}, **HEAD)
        learner = build(backend, algorithm, VECTOR, CHOICE)
        seen = window(VECTOR, CHOICE, learner.carry_shapes(), 4, 8)
        _, carry = learner.remember("act", seen, None)
        states.append(carry["q/h"])
    np.testing.assert_allclose(*states, atol=1e-6)


def test_one_pass_for_all_looks_at_a_window(monkeypatch):
    """R2D2's loss looks at two positions with the network that learns, and at one with its target."""
    passes, trunk = [], Network.trunk
    monkeypatch.setattr(Network, "trunk", lambda self, seen: passes.append(self) or trunk(self, seen))
    learner = build("torch", R2D2(**SEQUENCES, **HEAD), VECTOR, CHOICE)
    learner.update(batch(VECTOR, CHOICE, learner.carry_shapes()))
    assert len(passes) == 2


def test_what_one_backend_saved_the_other_loads():
    ours, theirs = (
        build(backend, R2D2(**SEQUENCES, **HEAD), VECTOR, CHOICE, seed=i) for i, backend in enumerate(("torch", "jax"))
    )
    theirs.load_state_dict(ours.state_dict())
    compare_state([ours, theirs], 0.0)
