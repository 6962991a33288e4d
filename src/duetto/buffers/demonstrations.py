"""Fill a separate replay buffer with demonstrations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import DemonstrationSpec, ReplaySpec, SequenceSpec, Tree
from duetto.buffers.base import Experience
from duetto.buffers.experience import rows
from duetto.buffers.replay import Replay
from duetto.functional.pytree import tree_map


class Episodes(NamedTuple):
    """The episodes of demonstrations and the generators that draw from them."""

    episodes: Sequence[Any]  # with obs (T + 1, ...), action, reward (T, ...), terminated and truncated
    random: np.random.Generator  # draws how many items of a batch are demonstrations
    own_random: np.random.Generator  # draws the items
    lengths: Sequence[int] | None = None  # T of each; without lengths, every episode is read twice


def own_spec(spec: ReplaySpec | SequenceSpec, mixing: DemonstrationSpec, rows: int) -> Any:
    """Return the spec of the demonstrations' buffer. It has no stored hidden states: they are zeros."""
    priorities = spec.prioritization
    if priorities is not None and mixing.priority_epsilon > 0:
        priorities = replace(priorities, epsilon=mixing.priority_epsilon)
    spec = replace(spec, capacity=rows, demonstrations=None, prioritization=priorities)
    return replace(spec, stored_carry=False) if isinstance(spec, SequenceSpec) else spec


def rows_for(spec: ReplaySpec | SequenceSpec, lengths: Sequence[int]) -> int:
    """Return the number of steps, or for sequences at least the length of one and the step before it."""
    return max(sum(lengths), 0 if isinstance(spec, ReplaySpec) else spec.burn_in + spec.unroll + 1)


def experiences(episodes: Sequence[Any], digest: Any) -> Iterator[Experience]:
    """Yield the steps of each episode as those of environment 0, and update `digest` with them."""
    for episode in episodes:
        steps = len(episode.reward)
        last = np.arange(steps) == steps - 1
        experience = Experience(
            env=np.zeros(steps, np.int64),
            obs=tree_map(itemgetter(slice(0, -1)), episode.obs),
            action=episode.action,
            reward=episode.reward,
            next_obs=tree_map(itemgetter(slice(1, None)), episode.obs),
            terminated=last & episode.terminated,
            truncated=last & episode.truncated,
        )
        for part in (*_leaves(episode.obs), *experience[2:4], *experience[5:7]):
            digest.update(np.ascontiguousarray(part).tobytes())
        yield experience


def fill(memory: Replay, episodes: Sequence[Any]) -> str:
    """Store all episodes in `memory` and return the SHA-256 of their contents."""
    digest = hashlib.sha256()
    for experience in experiences(episodes, digest):
        for row in range(len(experience.env)):
            memory.add(rows(experience, slice(row, row + 1)))
    return digest.hexdigest()


def _leaves(tree: Tree) -> list[np.ndarray]:
    return [tree[name] for name in sorted(tree)] if isinstance(tree, dict) else [tree]
