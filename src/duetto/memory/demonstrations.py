"""Demonstrations as a memory of their own: filled once, from whole episodes, and large enough for all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import DemonstrationSpec, ReplaySpec, SequenceSpec, Tree
from duetto.functional.trees import mapped
from duetto.memory.base import Experience
from duetto.memory.replay import Replay
from duetto.memory.sequences import SequenceReplay


class Episodes(NamedTuple):
    """The episodes that fill a memory of demonstrations, and the generators it draws with."""

    episodes: Sequence[Any]  # with obs (T + 1, ...), action, reward (T, ...), terminated and truncated
    random: np.random.Generator  # for how many of a batch are demonstrations
    own_random: np.random.Generator  # for which of them
    lengths: Sequence[int] | None = None  # T of each; without them, every episode is read twice


def own_spec(spec: ReplaySpec | SequenceSpec, mixing: DemonstrationSpec, rows: int) -> Any:
    """Return the spec of the demonstrations' memory; recurrent states start from zeros, for nobody stored them."""
    priorities = spec.prioritization
    if priorities is not None and mixing.priority_epsilon > 0:
        priorities = replace(priorities, epsilon=mixing.priority_epsilon)
    if priorities is not None:
        priorities = replace(priorities, initial=None)  # nobody knows what an expert thought
    spec = replace(spec, capacity=rows, demonstrations=None, prioritization=priorities)
    return replace(spec, stored_carry=False) if isinstance(spec, SequenceSpec) else spec


def rows_for(spec: ReplaySpec | SequenceSpec, lengths: Sequence[int], stacked: int) -> int:
    """Count the rows for every step, and for sequences each last observation and the frames from before an episode."""
    if isinstance(spec, ReplaySpec):
        return sum(lengths)
    return sum(lengths) + len(lengths) * max(1, stacked) + spec.burn_in + spec.unroll + stacked + 1


def experiences(episodes: Sequence[Any], digest: Any) -> Iterator[Experience]:
    """Yield the steps of each episode, as one environment would have made them, and update `digest` with them."""
    for episode in episodes:
        steps = len(episode.reward)
        last = np.arange(steps) == steps - 1
        experience = Experience(
            env=np.zeros(steps, np.int64),
            obs=mapped(itemgetter(slice(0, -1)), episode.obs),
            action=episode.action,
            reward=episode.reward,
            next_obs=mapped(itemgetter(slice(1, None)), episode.obs),
            terminated=last & episode.terminated,
            truncated=last & episode.truncated,
        )
        for part in (*_leaves(episode.obs), *experience[2:4], *experience[5:7]):
            digest.update(np.ascontiguousarray(part).tobytes())
        yield experience


def fill(memory: Replay | SequenceReplay, episodes: Sequence[Any]) -> str:
    """Put all episodes into `memory` and return the fingerprint (SHA-256) of their contents."""
    digest = hashlib.sha256()
    for experience in experiences(episodes, digest):
        size = len(experience.reward) if isinstance(memory, Replay) else 1  # sequences are cut step by step
        for step in range(0, len(experience.reward), size):
            memory.add(Experience(*mapped(itemgetter(slice(step, step + size)), experience[:-1])))
    return digest.hexdigest()


def _leaves(tree: Tree) -> list[np.ndarray]:
    return [tree[name] for name in sorted(tree)] if isinstance(tree, dict) else [tree]
