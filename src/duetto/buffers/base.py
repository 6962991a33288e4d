"""The steps that a buffer stores, the batches that it returns, and the interface of all buffers.

An *item* of a batch is a transition or, for recurrent networks, a sequence. The functions at the end join and split
steps.
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
CARRY, NEXT_CARRY = "carry/", "next_carry/"  # prefixes in `Experience.extras`: hidden states before and after the step


class Experience(NamedTuple):
    """The transitions of K environments in one vector step: `Transition` with `extras`, such as hidden states.

    Observations are arrays, or dicts of arrays for Dict spaces. At the end of an episode, `next_obs` is its final
    observation, never the first observation of the next episode.
    """

    env: np.ndarray  # (K,) int64, the environment of each row
    obs: Tree  # (K, ...)
    action: np.ndarray  # (K, action size) float32 in [-1, 1]; Discrete: (K,) int64
    reward: np.ndarray  # (K,) float32
    next_obs: Tree  # (K, ...)
    terminated: np.ndarray  # (K,) bool, the task ended: targets do not bootstrap
    truncated: np.ndarray  # (K,) bool, a limit ended the episode; targets bootstrap unless `terminated`
    extras: Mapping[str, np.ndarray] = NOTHING  # (K, ...), computed with the actions, such as hidden states


_NOWHERE = np.zeros(0, np.int64)


class Sample(NamedTuple):
    """A batch. If it is from a replay buffer, `feedback` needs the positions of its items: `index` and `stamp`."""

    batch: Batch | RolloutBatch | SequenceBatch
    index: np.ndarray = _NOWHERE  # (B,) env * rows + number % rows  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray = _NOWHERE  # (B,) number of the item's first step in its environment, to detect overwriting
    age: int = 0  # steps since the start of the rollout; updates use the values of schedules at that start
    info: Mapping[str, float] = NOTHING  # metrics to log


class ResolvedItems(NamedTuple):
    """The items that a draw selected, before importance weights are computed."""

    batch: Any  # a Batch or SequenceBatch with weights of 1
    index: np.ndarray  # (B,) as in Sample  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray  # (B,)
    mass: np.ndarray  # (B,) p^α of the items' priorities p; 1 without priorities


class Memory:
    """The interface of all buffers. Each buffer also has `due`, `interrupt`, `state_dict` and `load_state_dict`.

    Attributes:
        rows: Capacity of each environment's ring buffer, in steps; 0 for rollouts, whose steps are all in `state_dict`.
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
        """Number of steps each environment has stored, even if overwritten: (num_envs,) int64; empty for rollouts."""
        return _NOWHERE

    def pretraining(self) -> Iterator[Sample]:
        """Yield the batches to learn from before the first environment step. By default there are none."""
        return iter(())

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Update the priorities of the sampled items, if the buffer has priorities."""

    def note_divergence(self, divergence: float) -> None:
        """Receive the mean KL divergence of the last batch. The trainer calls this if `needs_divergence` is set."""

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return each environment i's stored steps from number `since[i]` on, counted from 0; None for rollouts."""

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Load a result of `segment`. Call `load_state_dict` first; then load segments in any order."""
        raise CheckpointError("The checkpoint contains a replay buffer, but this run learns from rollouts.")


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Split steps into parts; part i has `counts[i]` rows. This undoes `concatenated`."""
    ends = np.cumsum(counts)
    return [rows(steps, slice(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def side_by_side(blocks: list[Experience], counts: list[list[int]]) -> Experience:
    """Merge blocks by vector step: all rows of the first vector step, then all rows of the second, and so on.

    Args:
        blocks: Each has the rows of some environments, over several vector steps. No environment is in two blocks.
            Within a vector step, the result has the rows of the first block, then those of the second, and so on.
        counts: For each block, the number of rows in each of its vector steps.
    """
    if len(blocks) == 1:
        return blocks[0]
    step = np.concatenate([np.arange(len(own)).repeat(own) for own in counts])
    place = np.empty(len(step), np.int64)  # the row of the result for each row of the blocks
    place[step.argsort(kind="stable")] = np.arange(len(step))
    places = np.split(place, np.cumsum([sum(own) for own in counts])[:-1])
    return scattered(blocks, places)


def scattered(trees: Sequence[Any], rows: Sequence[np.ndarray]) -> Any:
    """Copy the rows of all trees into one tree: row j of tree i becomes row `rows[i][j]` of the result.

    If a tree lacks a dict entry that another tree has, such as hidden states, its rows of this entry are zeros.
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
    """Concatenate the rows of trees of arrays."""
    return tree_map_many(np.concatenate, trees)


def without_prefix(values: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the values whose names start with `prefix`, and remove the prefix from the names."""
    return {name.removeprefix(prefix): part for name, part in values.items() if name.startswith(prefix)}


def rows(tree: Any, which: slice | np.ndarray) -> Any:
    """Return the rows `which` of all arrays in a tree."""
    return tree_map(itemgetter(which), tree)
