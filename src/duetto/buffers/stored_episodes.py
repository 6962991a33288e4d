"""Find the whole episodes in a replay buffer.

A ring of six steps, after nine; d: the last step of its episode

    number          3  4  5  6  7  8
    ends                  d     d
    episode         x  x  x  a  a  .         x: may have lost its start; .: still runs

Incomplete episodes are only counted: their returns and first observations would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from duetto.algorithms.base import Tree
from duetto.buffers.storage import EpisodeStorage
from duetto.functional.pytree import tree_map_many


class StoredEpisode(NamedTuple):
    """One episode of T steps."""

    env: int
    obs: Tree  # (T + 1, ...), the final observation last
    action: np.ndarray  # (T, ...)
    reward: np.ndarray  # (T,) float32
    terminated: bool
    truncated: bool


@dataclass
class LeftOut:
    """Steps of a buffer outside of whole episodes."""

    without_beginning: int = 0  # an older part may have been overwritten
    running: int = 0  # the episode had not ended
    unknown: int = 0  # its steps do not continue each other

    @property
    def rows(self) -> int:
        """Steps of all three kinds together."""
        return self.without_beginning + self.running + self.unknown


def whole_episodes(storage: EpisodeStorage, left: LeftOut) -> Iterator[StoredEpisode]:
    """Yield the whole episodes of a storage, and count the steps in no whole episode in `left`."""
    for env, count in enumerate(storage.written.tolist()):
        oldest = max(count - storage.rows, 0)
        number = np.arange(oldest, count)
        index = storage.index(np.array([env]), number[None])[0]
        terminated, truncated = (storage.columns[name][index] for name in ("terminated", "truncated"))
        ends = number[terminated | truncated] + 1
        starts = np.concatenate([[oldest], ends]).tolist()
        if oldest:
            left.without_beginning += int(starts[1] - oldest if len(ends) else count - oldest)
            starts = starts[1:]
        if starts:
            left.running += count - starts[-1]
        for first, end in pairwise(starts):
            steps = index[first - oldest : end - oldest]
            if not storage.continuing(steps[1:]).all():
                left.unknown += end - first
                continue
            obs = [storage.observation(steps), storage.observation(steps[-1:], 1)]
            action, reward = (storage.columns[name][steps] for name in ("action", "reward"))
            ended, cut = bool(terminated[end - 1 - oldest]), bool(truncated[end - 1 - oldest])
            yield StoredEpisode(env, tree_map_many(np.concatenate, obs), action, reward, ended, cut)
