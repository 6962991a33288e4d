"""Rollouts and steps for the tests: an observation is (environment, its value), so that values are known."""

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


def worth(obs: Any) -> np.ndarray:
    """V(s): what the observation says."""
    return obs[:, 1].copy()


def spec(**changes: Any) -> RolloutSpec:
    defaults = {
        "steps": 4,
        "epochs": 1,
        "minibatches": 1,
        "discount": 0.9,
        "trace": 0.8,
    }
    return replace(PPO().memory(), **(defaults | changes))


def build(num_envs: int = 1, value: Any = worth, observation: Space = OBSERVED, action: Space = CHOICE, **changes: Any):
    made = buffers.build(spec(**changes), observation, action, num_envs, np.random.default_rng(0), value)
    assert isinstance(made, Rollout)
    return made


def step(
    value: Any, next_value: Any, reward: Any = 0.0, terminated: Any = False, truncated: Any = False, env: Any = None
) -> Experience:
    """One vector step of the environments `env`, all by default, from observations of these values to others."""
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


def o5(rollout: Rollout) -> None:
    """SPEC O5's four steps: terminated at 1, truncated at 2. Where an episode ends, the next one starts elsewhere."""
    for experience in o5_steps():
        rollout.add(experience)


def o5_steps() -> list[Experience]:
    return [
        step(0.5, 1, reward=1),
        step(1, 9, reward=2, terminated=True),  # what it led to is worth 9: nothing may count on it
        step(1.5, 2.5, reward=3, truncated=True),
        step(2, 3, reward=4),
    ]


def one(rollout: Rollout) -> RolloutBatch:
    """The batch of the only epoch."""
    [sample] = rollout.due()
    assert isinstance(sample.batch, RolloutBatch)
    return sample.batch
