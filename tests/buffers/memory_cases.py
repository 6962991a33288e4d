"""Buffers and transitions for the tests. An observation names its transition: (environment, number)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from duetto import buffers
from duetto.algorithms import TD3
from duetto.algorithms.base import Prioritization, ReplaySpec
from duetto.networks.spaces import Box, Space

VECTOR = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
ACTION = Box((1,), "float32", (-1.0,), (1.0,))
PROPORTIONAL = Prioritization(exponent=0.6, importance_exponent=0.4, importance_anneal_samples=0, epsilon=1e-5)


def spec(**changes) -> ReplaySpec:
    return replace(TD3(replay_capacity=100, batch_size=4, discount=0.9).memory(), **changes)


def build(num_envs: int = 1, seed: int = 0, observation: Space = VECTOR, action: Space = ACTION, **changes):
    return buffers.build(spec(**changes), observation, action, num_envs, np.random.default_rng(seed))


def rows(env, number, reward=None, terminated=False, truncated=False) -> buffers.Experience:
    """Return transitions with obs = (env, number) and next_obs = (env, number + 1/2)."""
    env, number = np.broadcast_arrays(np.atleast_1d(env), np.atleast_1d(number))
    reward = number if reward is None else reward
    return buffers.Experience(
        env=env.astype(np.int64),
        obs=np.stack([env, number], axis=1).astype(np.float32),
        action=(number[:, None] / 1000).astype(np.float32),
        reward=np.broadcast_to(reward, number.shape).astype(np.float32),
        next_obs=np.stack([env, number + 0.5], axis=1).astype(np.float32),
        terminated=np.broadcast_to(terminated, number.shape).astype(bool),
        truncated=np.broadcast_to(truncated, number.shape).astype(bool),
    )


def names(batch) -> list[tuple[int, int]]:
    """Return (environment, number) of every transition of a batch."""
    return [(int(env), int(number)) for env, number in batch.obs]


def fill(replay, per_env: list[int]) -> None:
    """Store transitions 0 .. count-1 of every environment, one number after another."""
    for number in range(max(per_env)):
        replay.add(rows([env for env, count in enumerate(per_env) if number < count], number))


def masses(replay) -> np.ndarray:
    """Return p^α of every index of a prioritized buffer."""
    return replay.state_dict()["items"]["mass"]


def equal(one: Any, other: Any) -> bool:
    """Return whether two trees have the same bits and dtypes."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other
