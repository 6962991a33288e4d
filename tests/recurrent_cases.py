"""Random inputs and batches of sequences for tests of recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from learning_cases import observations

from duetto.algorithms.base import SequenceBatch
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Discrete, Space


def window(
    observation: Space, action: Space, carry: dict[str, tuple[int, int]], size: int, steps: int, seed: int = 0
) -> SequenceInput:
    """Return `size` sequences of `steps` observations; the first two start an episode.

    Outputs are requested for all steps except the last.
    """
    random = np.random.default_rng(seed)
    flat = observations(observation, size * steps, random)
    obs = {k: v.reshape(size, steps, *v.shape[1:]) for k, v in flat.items()} if isinstance(flat, dict) else flat
    if not isinstance(obs, dict):
        obs = obs.reshape(size, steps, *obs.shape[1:])
    fresh = np.arange(size) < 2
    starts = np.zeros((size, steps), bool)
    starts[:, 0] = fresh
    return SequenceInput(
        obs=obs,
        previous_action=previous_actions(action, (size, steps), random),
        previous_reward=random.normal(size=(size, steps)).astype(np.float32),
        starts=starts,
        carry={name: random.normal(size=(size, *shape)).astype(np.float32) for name, shape in carry.items()},
        is_first=fresh,
        query_steps=np.broadcast_to(np.arange(steps - 1), (size, steps - 1)).copy(),
    )


def previous_actions(action: Space, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if isinstance(action, Discrete):
        return random.integers(-1, action.n, shape)  # -1: no previous action
    return random.uniform(-1, 1, (*shape, action.size)).astype(np.float32)


def batch(
    observation: Space, action: Space, carry: dict[str, tuple[int, int]], size: int = 6, length: int = 7, seed: int = 0
) -> SequenceBatch:
    """Return `size` sequences of `length` steps; the last one is padded after its third step."""
    random = np.random.default_rng(seed + 1000)
    seen = window(observation, action, carry, size, length + 1, seed)
    mask = (random.random((size, length)) < 0.8).astype(np.float32)
    mask[:, -1] = 1
    mask[-1, 3:] = 0
    mask[-1, 0] = 1
    taken: Any = random.integers(0, action.n, (size, length)) if isinstance(action, Discrete) else None
    if taken is None:
        taken = random.uniform(-1, 1, (size, length, action.size)).astype(np.float32)
    assert seen.query_steps is not None
    return SequenceBatch(
        obs=seen,
        action=taken,
        reward=random.normal(size=(size, length)).astype(np.float32),
        discount=np.where(random.random((size, length)) < 0.2, 0, 0.9).astype(np.float32),
        ahead=np.minimum(seen.query_steps + 2, length),
        weight=random.uniform(0.1, 1, size).astype(np.float32),
        mask=mask,
    )


def part(seen: SequenceInput, step: int, carry: dict[str, np.ndarray]) -> SequenceInput:
    """Return the input of a single step, as for acting, with the given hidden states."""
    obs = seen.obs
    return SequenceInput(
        obs={k: v[:, step : step + 1] for k, v in obs.items()} if isinstance(obs, dict) else obs[:, step : step + 1],
        previous_action=seen.previous_action[:, step : step + 1],
        previous_reward=seen.previous_reward[:, step : step + 1],
        starts=seen.starts[:, step : step + 1],
        carry=carry,
        is_first=seen.starts[:, step],
        query_steps=None,
    )
