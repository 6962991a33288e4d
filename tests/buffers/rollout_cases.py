"""Rollouts and steps for the tests. An observation is (environment, its value)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from duetto import buffers
from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch, RolloutSpec
from duetto.buffers import Experience, Rollout
from duetto.networks.spaces import Box, Discrete, Space

OBSERVED = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
CHOICE = Discrete(4)


def value_of(obs: Any) -> np.ndarray:
    """Return V(s), which is a part of the observation."""
    return obs[:, 1].copy()


def spec(**changes: Any) -> RolloutSpec:
    defaults = {"steps": 4, "epochs": 1, "minibatches": 1, "discount": 0.9, "trace": 0.8}
    return replace(PPO().memory(), **(defaults | changes))


def build(
    num_envs: int = 1, value: Any = value_of, observation: Space = OBSERVED, action: Space = CHOICE, **changes: Any
):
    made = buffers.build(spec(**changes), observation, action, num_envs, np.random.default_rng(0), value)
    assert isinstance(made, Rollout)
    return made


def step(
    value: Any, next_value: Any, reward: Any = 0.0, terminated: Any = False, truncated: Any = False, env: Any = None
) -> Experience:
    """Return a vector step of the environments `env`, by default all, between observations of these values."""
    value = np.atleast_1d(np.asarray(value, np.float32))
    env = np.arange(len(value)) if env is None else np.asarray(env)

    def each(x: Any, dtype: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(x, dtype), value.shape).copy()

    return Experience(
        env=env.astype(np.int64),
        obs=np.stack([env, value], axis=1).astype(np.float32),
        action=env.astype(np.int64) % 4,
        reward=each(reward, np.float32),
        next_obs=np.stack([env, each(next_value, np.float32)], axis=1).astype(np.float32),
        terminated=each(terminated, bool),
        truncated=each(truncated, bool),
        extras={"log_prob": -value / 10, "value": value.copy()},
    )


def add_o5_steps(rollout: Rollout) -> None:
    for experience in o5_steps():
        rollout.add(experience)


def o5_steps() -> list[Experience]:
    """Return SPEC O5's four steps: terminated at 1, truncated at 2."""
    return [
        step(0.5, 1, reward=1),
        step(1, 9, reward=2, terminated=True),  # the value 9 must have no effect
        step(1.5, 2.5, reward=3, truncated=True),
        step(2, 3, reward=4),
    ]


def only_batch(rollout: Rollout) -> RolloutBatch:
    """Return the batch of the only epoch."""
    [sample] = rollout.due()
    assert isinstance(sample.batch, RolloutBatch)
    return sample.batch
