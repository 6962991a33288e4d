"""Rollouts whose vector steps lack environments: in NEXT_STEP mode, Gymnasium takes a step to reset.

SAME_STEP    s s E s s s E s s ...
NEXT_STEP    s s E - s s s E - ...       -: a row of weight 0
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import policy_cases
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_cases import build, only_batch, step
from vector_envs import Whole

from duetto import environments
from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch
from duetto.buffers import Experience

NUMBERS = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, 3.0]


class Ticks(gymnasium.Env):
    """Observes (0, value). Values and rewards are from NUMBERS; episodes have the given lengths and ends."""

    def __init__(self, lengths: list[tuple[int, bool]]) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self.lengths, self.at, self.episode = lengths, 0, -1

    def _see(self) -> np.ndarray:
        self.at += 1
        return np.array([0, NUMBERS[self.at % len(NUMBERS)]], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._see(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        length, terminates = self.lengths[self.episode % len(self.lengths)]
        over, obs = self.time == length, self._see()
        return obs, float(obs[1]) / 3, over and terminates, over and not terminates, {}


def collect_rollout(mode: AutoresetMode, lengths: Any, steps: int) -> tuple[RolloutBatch, dict[str, float], int]:
    """Return the batch of a rollout of `steps` vector steps, its metrics and its number of real steps."""
    stepper = environments.make(Whole([lambda: Ticks(lengths)], autoreset_mode=mode))
    stepper.reset(0)
    rollout = build(steps=steps)
    for time in range(steps):
        obs = stepper.obs
        transition, _ = stepper.step(np.full(1, time % 4))
        values = obs[transition.env, 1]
        rollout.add(Experience(*transition, {"log_prob": -values, "value": values}))
    real = len(rollout)
    [sample] = rollout.due()
    assert isinstance(sample.batch, RolloutBatch)
    return sample.batch, sample.info, real


def real_rows(batch: RolloutBatch) -> np.ndarray:
    """Return the numbers of the real steps."""
    real = batch.weight > 0
    return np.stack([batch.value, batch.advantage, batch.returns, batch.log_prob, batch.obs[:, 1]], axis=1)[real]


LENGTHS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=60)
@given(LENGTHS, st.integers(2, 20))
def test_next_step_resets_do_not_change_advantages(lengths: Any, steps: int):
    """Both modes have the same real steps and advantages, also if the rollout ends with a reset."""
    padded, info, real = collect_rollout(AutoresetMode.NEXT_STEP, lengths, steps)
    if real < 2:
        return  # no rollout
    plain, wanted, _ = collect_rollout(AutoresetMode.SAME_STEP, lengths, real)
    assert padded.weight.sum() == plain.weight.sum() == real
    np.testing.assert_allclose(real_rows(padded), real_rows(plain), rtol=1e-5, atol=1e-6)
    assert info == pytest.approx(wanted, abs=1e-5)


def test_zero_weight_rows_are_zeros_with_finite_advantages():
    """It does not have the values of the previous rollout."""
    rollout = build(2, steps=3)
    for _ in range(3):
        rollout.add(step([5, 5], [6, 6], reward=7, truncated=True))
    list(rollout.due())
    rollout.add(step([1, 1], [2, 2], terminated=[False, True]))
    rollout.add(step([2], [3], env=[0]))
    rollout.add(step([3, 1], [4, 2]))
    batch = only_batch(rollout)
    assert batch.weight.tolist() == [1, 1, 1, 0, 1, 1]
    assert (batch.obs[3] == 0).all()
    assert (batch.value[3], batch.log_prob[3], batch.action[3]) == (0, 0, 0)
    assert np.isfinite(batch.advantage).all()
    np.testing.assert_allclose(batch.advantage.reshape(3, 2)[2], [0.9 * 4 - 3, 0.9 * 2 - 1], rtol=1e-5)


class OrderedPPO(PPO):
    """Minibatches in order, so that the first four rows are together."""

    def split(self, random, size):
        return np.arange(size, dtype=np.int32).reshape(self.minibatches, -1)


def test_minibatch_of_resets_gives_no_nan(backend: str):
    """None or one of its four rows has weight 1. Episodes of one step make such minibatches likely."""
    made = policy_cases.build(
        backend, OrderedPPO(hidden=(8,), minibatches=2, max_grad_norm=0.0, entropy_coefficient=0.01)
    )
    for weights in ([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]):
        metrics = made.update(policy_cases.rollout(8)._replace(weight=np.array(weights, np.float32)))
        assert np.isfinite(np.asarray(metrics.values)).all()
        assert all(np.isfinite(value).all() for value in made.parameters()["agent"].values())
