"""Fill a separate replay buffer with demonstrations."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import DemonstrationSpec, ReplaySpec, SequenceSpec
from duetto.buffers.base import Experience
from duetto.buffers.experience import rows
from duetto.buffers.replay import Replay
from duetto.functional.pytree import tree_leaves


class Episodes(NamedTuple):
    """The episodes of demonstrations and the generators that draw from them."""

    episodes: Sequence[Any]  # with obs (T + 1, ...), action, reward (T, ...), terminated and truncated
    random: np.random.Generator  # draws how many items of a batch are demonstrations
    own_random: np.random.Generator  # draws the items
    lengths: Sequence[int]  # T of each


def own_spec(spec: ReplaySpec | SequenceSpec, mixing: DemonstrationSpec, steps: int) -> Any:
    """Return the spec of the buffer of so many steps. It has no stored hidden states: they are zeros."""
    priorities = spec.prioritization
    if priorities is not None and mixing.priority_epsilon > 0:
        priorities = replace(priorities, epsilon=mixing.priority_epsilon)
    spec = replace(spec, capacity=steps, demonstrations=None, prioritization=priorities)
    if isinstance(spec, ReplaySpec):
        return spec
    return replace(spec, capacity=max(steps, spec.burn_in + spec.unroll + 1), stored_carry=False)


def fill(memory: Replay, episodes: Sequence[Any]) -> str:
    """Store all episodes in `memory` as environment 0, and return the SHA-256 of their contents."""
    digest = hashlib.sha256()
    for episode in episodes:
        steps = len(episode.reward)
        last = np.arange(steps) == steps - 1
        experience = Experience(
            env=np.zeros(steps, np.int64),
            obs=rows(episode.obs, slice(0, -1)),
            action=episode.action,
            reward=episode.reward,
            next_obs=rows(episode.obs, slice(1, None)),
            terminated=last & episode.terminated,
            truncated=last & episode.truncated,
        )
        for part in (*tree_leaves(episode.obs), *experience[2:4], *experience[5:7]):
            digest.update(np.ascontiguousarray(part).tobytes())
        for row in range(steps):
            memory.add(rows(experience, slice(row, row + 1)))
    return digest.hexdigest()
