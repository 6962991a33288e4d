"""Vector steps that lack some environments: Gymnasium's NEXT_STEP resets take a step, in which nothing is learned.

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
from rollout_cases import build, one, step, worth
from vector_envs import Whole

from duetto import environments
from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch
from duetto.buffers import Experience


class Ticks(gymnasium.Env):
    """Observes (which environment, value); values and rewards come from a list, episodes have the given lengths."""

    def __init__(self, env: int, numbers: list[float], lengths: list[tuple[int, bool]]) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self.env, self.numbers, self.lengths, self.at, self.episode = env, numbers, lengths, 0, -1

    def _see(self) -> np.ndarray:
        self.at += 1
        return np.array([self.env, self.numbers[self.at % len(self.numbers)]], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._see(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        length, terminates = self.lengths[self.episode % len(self.lengths)]
        over, obs = self.time == length, self._see()
        return obs, float(obs[1]) / 3, over and terminates, over and not terminates, {}


def collected(mode: AutoresetMode, scripts: list[Any], steps: int) -> tuple[RolloutBatch, dict[str, float], int]:
    """The batch of a rollout of `steps` vector steps of such environments, its numbers and its real steps."""
    made = [lambda env=env, script=script: Ticks(env, *script) for env, script in enumerate(scripts)]
    stepper = environments.make(Whole(made, autoreset_mode=mode))
    stepper.reset(0)
    rollout = build(len(scripts), steps=steps)
    for time in range(steps):
        obs = stepper.obs
        transition, _ = stepper.step(np.full(len(scripts), time % 4))
        values = obs[transition.env, 1]
        rollout.add(Experience(*transition, {"log_prob": -values, "value": values}))
    real = len(rollout)
    [sample] = rollout.due()
    assert isinstance(sample.batch, RolloutBatch)
    return sample.batch, sample.info, real


def rows(batch: RolloutBatch) -> np.ndarray:
    """Of the rows that count, what must be equal, in order: the value seen, advantage and returns."""
    real = batch.weight > 0
    return np.stack([batch.value, batch.advantage, batch.returns, batch.log_prob, batch.obs[:, 1]], axis=1)[real]


NUMBERS = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, 3.0]
lengths = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(2, 20))
def test_resets_that_take_a_step_change_no_advantage(lengths, steps):
    """The same real steps, and the same numbers to learn from; also where the rollout ends with a reset."""
    padded, info, real = collected(AutoresetMode.NEXT_STEP, [(NUMBERS, lengths)], steps)
    if real < 2:
        return  # no rollout
    plain, wanted, _ = collected(AutoresetMode.SAME_STEP, [(NUMBERS, lengths)], real)
    assert padded.weight.sum() == plain.weight.sum() == real
    np.testing.assert_allclose(rows(padded), rows(plain), rtol=1e-5, atol=1e-6)
    assert info == pytest.approx(wanted, abs=1e-5)


def test_environments_reset_each_in_its_own_time():
    """Episodes of 2 and of 3 steps side by side: T T - T T - and T T E - T T."""
    scripts = [(NUMBERS, [(2, True)]), (NUMBERS[::-1], [(3, False)])]
    batch, _, real = collected(AutoresetMode.NEXT_STEP, scripts, 6)
    weight = batch.weight.reshape(6, 2)
    assert weight[:, 0].tolist() == [1, 1, 0, 1, 1, 0]
    assert weight[:, 1].tolist() == [1, 1, 1, 0, 1, 1]
    assert real == 9
    for env, count in ((0, 4), (1, 5)):
        alone, _, _ = collected(AutoresetMode.SAME_STEP, [scripts[env]], count)
        of_it = batch.weight.reshape(6, 2)[:, env] > 0
        found = batch.advantage.reshape(6, 2)[of_it, env]
        np.testing.assert_allclose(found, alone.advantage, rtol=1e-5)


def test_what_a_row_of_weight_0_holds_is_nothing():
    """Zeros, not what the rollout before had there; and finite advantages, so that 0 times them is 0."""
    rollout = build(2, steps=3)
    for _ in range(3):
        rollout.add(step([5, 5], [6, 6], reward=7, truncated=True))
    list(rollout.due())
    rollout.add(step([1, 1], [2, 2], terminated=[False, True]))
    rollout.add(step([2], [3], env=[0]))
    rollout.add(step([3, 1], [4, 2]))
    batch = one(rollout)
    assert batch.weight.tolist() == [1, 1, 1, 0, 1, 1]
    assert (batch.obs[3] == 0).all()
    assert (batch.value[3], batch.log_prob[3], batch.action[3]) == (0, 0, 0)
    assert np.isfinite(batch.advantage).all()
    np.testing.assert_allclose(batch.advantage.reshape(3, 2)[2], [0.9 * 4 - 3, 0.9 * 2 - 1], rtol=1e-5)


def test_the_array_of_the_step_before_stays_its_givers():
    """A step that lacks an environment takes over what the other led to, without writing where it came from."""
    rollout = build(2, steps=3)
    whole = step([1, 1], [2, 2])
    rollout.add(whole)
    rollout.add(step([2], [3], env=[1]))
    assert whole.next_obs.tolist() == [[0, 2], [1, 2]]


def test_the_first_step_after_resuming_may_lack_an_environment():
    """It was saved when the rollout was complete, right behind an episode's end."""
    ours, again = (build(2, worth, steps=2) for _ in range(2))
    ours.add(step([0, 0], [1, 1]))
    ours.add(step([1, 1], [2, 2], terminated=[False, True]))
    list(ours.due())
    again.load_state_dict(ours.state_dict())
    for rollout in (ours, again):
        rollout.add(step([2], [3], env=[0]))
        rollout.add(step([3, 0], [4, 1]))
    np.testing.assert_array_equal(*(one(rollout).advantage for rollout in (ours, again)))


class Ordered(PPO):
    """Minibatches in order, so that the first four rows are together."""

    def split(self, random, size):
        return np.arange(size, dtype=np.int32).reshape(self.minibatches, -1)


@pytest.mark.parametrize("weights", [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]])
def test_a_minibatch_of_resets_changes_nothing_and_is_no_divergence(backend, weights):
    """Of four rows none counts, or one: its loss is 0, or has advantage 0. Episodes of one step make it likely."""
    made = policy_cases.build(backend, Ordered(hidden=(8,), minibatches=2, max_grad_norm=0.0, entropy_coefficient=0.01))
    metrics = made.update(policy_cases.rollout(8)._replace(weight=np.array(weights, np.float32)))
    assert np.isfinite(np.asarray(metrics.values)).all()
    assert all(np.isfinite(value).all() for value in made.parameters()["agent"].values())
