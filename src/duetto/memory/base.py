"""The data that goes into a memory and comes out of it, and the interface that memories share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.networks.pictures import Table

if TYPE_CHECKING:
    from duetto.memory.afar import Afar

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Experience(NamedTuple):
    """K real transitions of one vector step; the rows of one environment come in time order.

    Observations are arrays, or for Dict spaces dicts of arrays. `next_obs` is the observation that the action really
    produced: at an episode's end the final one, never that of the reset.
    """

    env: np.ndarray  # (K,) int64, which environment each row comes from
    obs: Tree  # (K, ...)
    action: np.ndarray  # (K, action size) float32 in [-1, 1]; Discrete: (K,) int64
    reward: np.ndarray  # (K,) float32
    next_obs: Tree  # (K, ...)
    terminated: np.ndarray  # (K,) bool, the task ended: no future counts
    truncated: np.ndarray  # (K,) bool, the episode was cut from outside: the future counts
    extras: Mapping[str, np.ndarray] = NOTHING  # (K, ...), what the algorithm gave with its actions


def turns(experience: Experience) -> Iterator[Experience]:
    """Yield the same steps in order, at most one of each environment at a time."""
    env = experience.env
    if len(np.unique(env)) == len(env):
        if len(env):
            yield experience
        return
    rank = np.array([(env[:row] == env[row]).sum() for row in range(len(env))])
    for turn in range(rank.max() + 1):
        yield selected(experience, rank == turn)


def selected(experience: Experience, rows: np.ndarray) -> Experience:
    """Return some rows of `experience`, with plain dicts, so that it can be sent to another process."""

    def select(value: Any) -> Any:
        return {name: select(part) for name, part in value.items()} if isinstance(value, Mapping) else value[rows]

    return Experience(*map(select, experience))


_NOWHERE = np.zeros(0, np.int64)


class Sample(NamedTuple):
    """A batch and, in a replay memory, where its items lie, for writing their priorities back."""

    batch: Batch | RolloutBatch | SequenceBatch
    index: np.ndarray = _NOWHERE  # (B,) environment * rows + slot  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray = _NOWHERE  # (B,) the number of the transition in its environment: tells if it was overwritten
    age: int = 0  # steps taken since its policy began to collect: schedules stand where they stood then
    info: Mapping[str, float] = NOTHING  # numbers about the batch, for the log


class Found(NamedTuple):
    """Items of a replay memory that were looked up, and not weighed yet."""

    batch: Batch | SequenceBatch  # with weights of 1
    index: np.ndarray  # (B,), see Sample  # pyright: ignore[reportIncompatibleMethodOverride]
    stamp: np.ndarray  # (B,)
    mass: np.ndarray  # (B,) p^α; 1 where all items are alike


class Memory:
    """The methods that the training loop needs of every memory, besides `due` and those for checkpoints."""

    needs_priorities = False
    needs_divergence = False
    needs_values = False
    pretraining_left = 0

    def add(self, experience: Experience) -> None:
        """Store copies of the steps."""
        raise NotImplementedError

    def take(self, step: Experience | Afar) -> None:
        """Store a vector step wherever its rows lie; only a memory in shards can get one whose rows are not here."""
        if not isinstance(step, Experience):
            raise TypeError(f"{type(self).__name__} is no memory in shards, and gets steps that lie elsewhere")
        self.add(step)

    def pretraining(self) -> Iterator[Sample]:
        """Yield the batches to learn from before the first step: none here."""
        return iter(())

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sampled items new priorities, where the memory has any."""

    def image_tables(self) -> dict[str, Table]:
        """Return the tables of images, by field, whose rows batches name from here on: see `networks.pictures`.

        Only replays in this process and without demonstrations have some, of sequences or of transitions without
        hindsight, and none of images that are compressed.
        """
        return {}

    def emptied(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state without what segments hold, to go on from without them; `learning_starts` counts anew.

        Random numbers, and how far priorities' exponents have come, stay. A memory without segments stays as it is.
        """
        return state

    def note_divergence(self, divergence: float) -> None:
        """Note the mean KL divergence of the batch just learned from; called where `needs_divergence` is set."""
