"""Sampling: all items are equally likely, or in proportion to their priorities.

A draw has two parts: a `ReplaySampler` draws points on the line of all items, laid end to end; then the items there are
found, in this process or in the shards of a buffer. Items are the steps of an `EpisodeStorage`, or `MassItems`.

    uniform         |0|1|2|3|4|5|              a point is an item's number
    proportional    |  0  |1|    2    | 3 |    each as long as its mass; a batch of 3 has a point in each third
                       ^       ^         ^
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Prioritization, SequenceBatch
from duetto.buffers.base import Sample
from duetto.errors import CheckpointError, NonFiniteError
from duetto.functional import state_schema
from duetto.functional.priorities import annealed_exponent, importance_weights, mass, sequence_priority
from duetto.functional.state_schema import ArrayOf

BRANCHING = 16  # children of a node: a million leaves need five levels, and each is one NumPy operation for a batch


class PriorityLine(NamedTuple):
    """The numbers that drawing and weighting need of all items."""

    items: int
    length: float  # Σ p^α; for uniform draws the number of items
    least: float  # p^α; infinite without items


class ReplaySampler:
    """Draws points on the line of all items, uniformly or by proportional priorities.

    Proportional priorities (Schaul et al., 2016, arXiv:1511.05952):
    - P(i) = p_i^α / Σ p^α with p = |δ| + ε; a batch of B takes one draw from each of B equal parts of the total.
    - A new item gets the priority of the largest |δ| fed back so far, at first 1, so that it is soon seen.
    - Weights (N · P)^-β are divided by the largest of all items, not of the batch; β rises with every batch.

    Attributes:
        prioritized: Whether items have priorities.
        largest: The largest |δ| so far, that of new items; ε is added as to every |δ|.
        batches: Batches weighted so far.
    """

    def __init__(self, prioritization: Prioritization | None) -> None:
        self._prioritization: Any = prioritization
        self.prioritized: bool = prioritization is not None
        self.largest: float = 1.0
        self.batches: int = 0

    @property
    def exponent(self) -> float:
        """β of the next batch; 0 without priorities."""
        given = self._prioritization
        if given is None or given.importance_exponent == 0:
            return 0.0
        return annealed_exponent(given.importance_exponent, self.batches, given.importance_anneal_samples)

    def draw(self, line: PriorityLine, size: int, random: np.random.Generator) -> np.ndarray:
        """Draw B points of the line: uniformly, or with priorities one in each of B equal parts, ascending."""
        if not self.prioritized:
            return random.integers(line.items, size=size)
        return (np.arange(size) + random.random(size)) * (line.length / size)

    def weights(self, masses: np.ndarray, least: float) -> np.ndarray:
        """Count the next batch and return its weights (B,) float32, from p^α of its items and the least p^α of all."""
        weights = importance_weights(masses, least, self.exponent).astype(np.float32)
        self.batches += 1
        return weights

    def mass(self, error: np.ndarray) -> np.ndarray:
        """Return p^α (K,) of items with the errors |δ| (K,); 1 without priorities."""
        if not self.prioritized:
            return np.ones_like(error)
        return mass(error + self._prioritization.epsilon, self._prioritization.exponent)

    def state_dict(self) -> dict[str, Any]:
        """Return the largest priority and the number of batches."""
        return {"largest_priority": self.largest, "sampled": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        state_schema.check(state, {"largest_priority": float, "sampled": int}, "memory/sampler")
        self.largest, self.batches = float(state["largest_priority"]), int(state["sampled"])


class MassItems:
    """Items with masses among the indices 0 .. size-1."""

    def __init__(self, size: int) -> None:
        self._sums = SumTree(size)  # mass of each item, 0 where there is none
        self._minima = PriorityTree(size, np.minimum, np.inf)  # the same, infinite where there is none
        self._count = 0

    @property
    def line(self) -> PriorityLine:
        """The line of all items."""
        return PriorityLine(self._count, self._sums.root, self._minima.root)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._sums.find(point)

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return the masses (B,) of items; 0 for an index that is none."""
        return self._sums.leaves.take(index)

    def add(self, index: np.ndarray, mass: np.ndarray) -> None:
        """Add or replace the items at indices (K,), which must differ."""
        self._count += int(np.count_nonzero(self._sums.leaves[index] == 0))
        self.set(index, mass)

    def set(self, index: np.ndarray, masses: np.ndarray) -> None:
        """Set the masses of items (K,). If an item occurs twice, its last mass counts."""
        self._sums.set(index, masses)
        self._minima.set(index, masses)

    def remove(self, index: np.ndarray) -> None:
        """Remove the items at `index` (K,), each given once."""
        self._count -= len(index)
        self._sums.set(index, 0.0)
        self._minima.set(index, np.inf)

    def fill(self, index: np.ndarray, masses: np.ndarray | None) -> None:
        """Replace all items by those at `index` (K,). CheckpointError for masses (K,) that no items have."""
        if masses is None:
            raise CheckpointError(
                "The checkpoint's replay buffer has no priorities. Set prioritized to false, as it was in config.yaml."
            )
        state_schema.check({"mass": masses}, {"mass": ArrayOf(len(index), (), np.float64)}, "memory/items")
        if not np.all(np.isfinite(masses) & (masses >= 0)):
            raise CheckpointError("The checkpoint's replay memory has priorities that are negative or not finite.")
        whole = np.zeros(len(self._sums.leaves))
        whole[index] = masses
        self._sums.fill(whole)
        self._minima.fill(np.where(whole > 0, whole, np.inf))
        self._count = int(np.count_nonzero(whole))


class PriorityTree:
    """A tree over an array with `combine` of all leaves as its root; updates take O(log n).

    Leaves start as `empty`, the value that changes no result. A parent is always recomputed from its children, never
    corrected by a difference, so rounding errors cannot accumulate.
    """

    def __init__(self, size: int, combine: np.ufunc, empty: float) -> None:
        self._combine = combine
        self._size = size
        self._levels: list[np.ndarray] = []  # the leaves first; (nodes, 16) float64, the children of node j in row j
        nodes = size
        while nodes > 1 or not self._levels:
            nodes = -(-nodes // BRANCHING)
            self._levels.append(np.full((nodes, BRANCHING), empty))

    @property
    def leaves(self) -> np.ndarray:
        """(size,) float64, a view; change it only with `set` and `fill`."""
        return self._levels[0].reshape(-1)[: self._size]

    @property
    def root(self) -> float:
        """`combine` of all leaves."""
        return float(self._combine.reduce(self._levels[-1][0]))

    def set(self, index: np.ndarray, value: np.ndarray | float) -> None:
        """Set leaves: index (B,) int, value (B,) or one for all. The last value of a repeated index wins."""
        self._levels[0].reshape(-1)[index] = value
        for children, parents in pairwise(self._levels):
            index = index // BRANCHING
            parents.reshape(-1)[index] = self._combine.reduce(children.take(index, axis=0), axis=1)

    def fill(self, values: np.ndarray) -> None:
        """Set all leaves, values (size,)."""
        self.leaves[:] = values
        for children, parents in pairwise(self._levels):
            parents.reshape(-1)[: len(children)] = self._combine.reduce(children, axis=1)


class SumTree(PriorityTree):
    """A tree of the sum of non-negative leaves, which finds the leaf at a given point of their running sum."""

    def __init__(self, size: int) -> None:
        super().__init__(size, np.add, 0.0)

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Find the leaf i with Σ_{k<i} leaf_k ≤ mass < Σ_{k≤i} leaf_k: leaves [1, 2, 3, 4] and mass 2.9 -> 1, 3.0 -> 2.

        Args:
            mass: (B,) float64 in [0, sum of the leaves); at or past the end is taken as just before it.

        Returns:
            (B,) int64. Never a leaf that is 0, however the sums were rounded, unless all leaves are.
        """
        node = np.zeros(len(mass), np.int64)
        batch = np.arange(len(mass))
        for level in reversed(self._levels):
            running = level.take(node, axis=0).cumsum(axis=1)  # (B, 16)
            # Rounding may leave slightly more mass than the children have; below their sum, one of them is found, and
            # the first whose running sum exceeds the mass cannot be 0.
            mass = np.minimum(mass, np.nextafter(running[:, -1], 0.0))
            child = (running > mass[:, None]).argmax(axis=1)
            mass = mass - np.where(child > 0, running[batch, child - 1], 0.0)
            node = node * BRANCHING + child
        return node


def checked_priorities(spec: Any, sample: Sample, priority: np.ndarray | None) -> np.ndarray:
    """Return the priorities (B,) float64 of a sample's items, from their errors |δ|: (B,), or of sequences (B, L).

    Raises:
        NonFiniteError: An error that counts is NaN or infinite.
        ValueError: One is negative, or there are not as many as the sample has items or steps.
    """
    mask = sample.batch.mask if isinstance(sample.batch, SequenceBatch) else np.ones(sample.index.shape)
    error = np.asarray(priority, np.float64)
    if error.shape != mask.shape:
        raise ValueError(f"The priorities have shape {error.shape}, the sample {mask.shape}")
    counted = np.where(mask > 0, error, 0.0)
    if not np.isfinite(counted).all():
        item, *step = np.argwhere(~np.isfinite(counted))[0].tolist()
        raise NonFiniteError(
            f"Priority {', step '.join(map(str, (item, *step)))} of the batch is {error[item, *step]}: the loss has "
            "diverged. Lower the learning rate, or clip the gradients."
        )
    if counted.min() < 0:
        raise ValueError(f"A priority is {counted.min()}; priorities are absolute errors, never negative")
    return sequence_priority(error, mask, spec.priority_mix) if error.ndim == 2 else error
