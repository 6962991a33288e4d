"""The steps that go into a buffer, the batches that come out of it, and the interface of all buffers.

Functions at the end join steps and split them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.errors import CheckpointError
from duetto.functional.pytree import tree_map, tree_map_many

NOTHING: Mapping[str, Any] = {}


class Experience(NamedTuple):
    """K transitions of one vector step, of K environments.

    Observations are arrays, or for Dict spaces dicts of arrays. At an episode's end `next_obs` is the final
    observation, never that of the reset.
    """

    env: np.ndarray  # (K,) int64, which environment each row comes from
    obs: Tree  # (K, ...)
    action: np.ndarray  # (K, action size) float32 in [-1, 1]; Discrete: (K,) int64
    reward: np.ndarray  # (K,) float32
    next_obs: Tree  # (K, ...)
    terminated: np.ndarray  # (K,) bool, the task ended: no future counts
    truncated: np.ndarray  # (K,) bool, the episode was cut from outside: the future counts
    extras: Mapping[str, np.ndarray] = NOTHING  # (K, ...), computed with the actions, such as hidden states


_NOWHERE = np.zeros(0, np.int64)


class Sample(NamedTuple):
    """A batch and, from a replay buffer, the positions of its items, for new priorities."""

    batch: Batch | RolloutBatch | SequenceBatch
    index: np.ndarray = _NOWHERE  # (B,) environment * rows + slot  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray = _NOWHERE  # (B,) the number of the step in its environment: tells if it was overwritten
    age: int = 0  # steps taken since its policy started to collect; schedules use the values of then
    info: Mapping[str, float] = NOTHING  # numbers about the batch, for the log


class ResolvedItems(NamedTuple):
    """Items at points of a line, without importance weights."""

    batch: Any  # a Batch or SequenceBatch with weights of 1
    index: np.ndarray  # (B,), see Sample  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray  # (B,)
    mass: np.ndarray  # (B,) p^α; 1 where all items are alike


class Memory:
    """The methods that the training loop calls on every buffer, besides `due`, `state_dict` and `load_state_dict`.

    Attributes:
        rows: Steps that each environment's ring can hold; 0 for rollouts, which are in `state_dict` as a whole.
    """

    rows: int = 0
    needs_priorities = False
    needs_divergence = False
    needs_values = False
    pretraining_left = 0

    def add(self, experience: Experience) -> None:
        """Store copies of the steps."""
        raise NotImplementedError

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, steps ever stored per environment; empty for rollouts."""
        return _NOWHERE

    def pretraining(self) -> Iterator[Sample]:
        """Yield the batches to learn from before the first step; none by default."""
        return iter(())

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sampled items new priorities, if the buffer has priorities."""

    def note_divergence(self, divergence: float) -> None:
        """Take the mean KL divergence of the last batch; called if `needs_divergence` is set."""

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return the steps stored after the counts `since` (num_envs,), for a checkpoint; None for rollouts."""

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put steps back, in any order of segments, after `load_state_dict`."""
        raise CheckpointError("The checkpoint holds a replay memory, but this run learns from rollouts.")


def joined(steps: list[Experience]) -> Experience:
    """Concatenate the rows of steps, in order."""
    return steps[0] if len(steps) == 1 else concatenated(_with_common_extras(steps))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Cut steps into several of `counts` rows each; undoes `joined`."""
    ends = np.cumsum(counts)
    return [rows(steps, slice(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def side_by_side(blocks: list[Experience], counts: list[list[int]]) -> Experience:
    """Merge blocks by vector step: the rows of the first step, in the blocks' order, then those of the second, ...

    `counts` has the number of rows of each block's vector steps.
    """
    if len(blocks) == 1:
        return blocks[0]
    step = np.concatenate([np.arange(len(own)).repeat(own) for own in counts])
    place = np.empty(len(step), np.int64)  # where each row goes
    place[step.argsort(kind="stable")] = np.arange(len(step))
    places = np.split(place, np.cumsum([sum(own) for own in counts])[:-1])
    return scattered(_with_common_extras(blocks), places)


def scattered(trees: Sequence[Any], rows: Sequence[np.ndarray]) -> Any:
    """Copy the rows of trees into one tree, those of each to its `rows` there.

    Where a tree lacks a part of a dict that others have, such as hidden states, its rows are zeros.
    """
    some = next((tree for tree in trees if tree is not None), None)
    if isinstance(some, dict):
        return {name: scattered([tree.get(name) for tree in trees], rows) for name in max(trees, key=len)}
    if isinstance(some, tuple):
        return type(some)(*(scattered(parts, rows) for parts in zip(*trees, strict=True)))
    if some is None:
        return None
    whole = np.zeros((sum(map(len, rows)), *some.shape[1:]), some.dtype)
    for tree, own in zip(trees, rows, strict=True):
        if tree is not None:
            whole[own] = tree
    return whole


def concatenated(trees: Sequence[Any]) -> Any:
    """Concatenate trees of arrays along their rows."""
    return tree_map_many(np.concatenate, trees)


def rows(tree: Any, which: slice | np.ndarray) -> Any:
    """Return the rows `which` of a tree of arrays."""
    return tree_map(itemgetter(which), tree)


def _with_common_extras(steps: Sequence[Experience]) -> list[Experience]:
    """Return the steps with the extras that all of them have: random actions have none."""
    names = [name for name in steps[0].extras if all(name in one.extras for one in steps)]
    return [one._replace(extras={name: one.extras[name] for name in names}) for one in steps]
