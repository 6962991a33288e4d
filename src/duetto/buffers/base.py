"""The steps that go into a buffer, the batches that come out of it, and the interface of all buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.errors import CheckpointError

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
