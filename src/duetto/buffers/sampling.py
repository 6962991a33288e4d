"""Sampling: uniform draws, and draws in proportion to priorities.

An item (a transition or a sequence) with priority p has the *mass* p^α. On the *line* of a buffer, all items lie end to
end, and each is as long as its mass. A `ReplaySampler` draws points on the line. Then the buffer or its shards find the
items at these points, in `MassItems` or, for uniform draws of transitions, in an `EpisodeStorage`.

    uniform         |0|1|2|3|4|5|              every item has length 1; a point is the number of an item
    proportional    |  0  |1|    2    | 3 |    an item is as long as its mass; a batch of 3 has a point in each third
                       ^       ^         ^
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Prioritization, SequenceBatch
from duetto.buffers.base import Sample
from duetto.errors import CheckpointError, NonFiniteError
from duetto.functional.priorities import annealed_exponent, importance_weights, mass, sequence_priority

BRANCHING = 16  # children of a node; few levels are fast, as a batch needs one pass of NumPy calls for each level


class PriorityLine(NamedTuple):
    """For draws and importance weights: the number of items, and the sum and minimum of their p^α (p: priority)."""

    items: int
    length: float  # Σ p^α; the number of items if draws are uniform
    least: float  # the smallest p^α; infinite if there are no items


class ReplaySampler:
    """Draws points on the line of all items, uniformly or by proportional priorities.

    Proportional priorities (Schaul et al., 2016, arXiv:1511.05952):
    - P(i) = p_i^α / Σ p^α with p = |δ| + ε. A batch of B has one draw from each of B equal parts of the line.
    - A new item gets the largest |δ| of all feedback so far (at least 1), so that it is sampled soon.
    - Weights (N · P)^-β are divided by the largest weight of all items, not of the batch. β rises with every batch.

    Attributes:
        prioritized: Whether items have priorities.
        largest: The largest |δ| so far, at least 1, which new items get.
        batches: The number of batches that got weights so far.
    """

    def __init__(self, prioritization: Prioritization | None) -> None:
        self._prioritization: Any = prioritization
        self.prioritized: bool = prioritization is not None
        self.largest: float = 1.0
        self.batches: int = 0

    @property
    def exponent(self) -> float:
        """The exponent β of the next batch's importance weights; 0 without priorities."""
        given = self._prioritization
        if given is None or given.importance_exponent == 0:
            return 0.0
        return annealed_exponent(given.importance_exponent, self.batches, given.importance_anneal_samples)

    def draw(self, line: PriorityLine, size: int, random: np.random.Generator) -> np.ndarray:
        """Draw `size` points of the line. With priorities, they are in ascending order."""
        if not self.prioritized:
            return random.integers(line.items, size=size)
        return (np.arange(size) + random.random(size)) * (line.length / size)

    def weights(self, masses: np.ndarray, least: float) -> np.ndarray:
        """Return the importance weights of a batch's items, (B,) float32; increment the number of drawn batches.

        `masses` (B,) has p^α of these items. `least` is the smallest p^α of all items in the buffer.
        """
        weights = importance_weights(masses, least, self.exponent).astype(np.float32)
        self.batches += 1
        return weights

    def mass(self, error: np.ndarray) -> np.ndarray:
        """Return the masses p^α of items with the errors |δ|, (K,) each; without priorities, every mass is 1."""
        if not self.prioritized:
            return np.ones_like(error)
        return mass(error + self._prioritization.epsilon, self._prioritization.exponent)

    def state_dict(self) -> dict[str, Any]:
        """Return the largest |δ| and the number of batches."""
        return {"largest_priority": self.largest, "sampled": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.largest, self.batches = state["largest_priority"], state["sampled"]


class MassItems:
    """A set of items, which are indices from 0 to size-1. Each item has a mass p^α."""

    def __init__(self, size: int) -> None:
        self._sums = SumTree(size)  # the mass of each index, 0 if it is no item
        self._minima = PriorityTree(size, np.minimum, np.inf)  # the mass of each index, infinite if it is no item
        self._count = 0

    @property
    def line(self) -> PriorityLine:
        """The number of items, and the sum and the minimum of their masses."""
        return PriorityLine(self._count, self._sums.root, self._minima.root)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at the points (B,) of the line."""
        return self._sums.find(point)

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return the mass of each index, (B,): 0 if the index is no item."""
        return self._sums.leaves.take(index)

    def add(self, index: np.ndarray, mass: np.ndarray) -> None:
        """Add or replace items. The indices (K,) must be unique."""
        self._count += int(np.count_nonzero(self._sums.leaves[index] == 0))
        self.set(index, mass)

    def set(self, index: np.ndarray, masses: np.ndarray) -> None:
        """Set the masses of items (K,). If an item occurs twice, its last mass is used."""
        self._sums.set(index, masses)
        self._minima.set(index, masses)

    def remove(self, index: np.ndarray) -> None:
        """Remove items. The indices (K,) must be unique."""
        self._count -= len(index)
        self._sums.set(index, 0.0)
        self._minima.set(index, np.inf)

    def fill(self, index: np.ndarray, masses: np.ndarray | None) -> None:
        """Remove all items, and add the items `index` (K,). Raise CheckpointError for invalid `masses` (K,)."""
        if masses is None:
            raise CheckpointError(
                "The checkpoint's replay buffer has no priorities. Set prioritized to false, as when the run started."
            )
        whole = np.zeros(len(self._sums.leaves))
        whole[index] = masses
        self._sums.fill(whole)
        self._minima.fill(np.where(whole > 0, whole, np.inf))
        self._count = int(np.count_nonzero(whole))


class PriorityTree:
    """A tree over an array: each node is `combine` of its children. Updates take O(log n).

    Leaves start as `empty`, which must be the identity of `combine`. An update computes each parent from all its
    children, not from the change of one child, so rounding errors do not accumulate.
    """

    def __init__(self, size: int, combine: np.ufunc, empty: float) -> None:
        self._combine = combine
        self._size = size
        self._levels: list[np.ndarray] = []  # from the leaves up; (nodes, 16) float64, row j has the children of node j
        nodes = size
        while nodes > 1 or not self._levels:
            nodes = -(-nodes // BRANCHING)
            self._levels.append(np.full((nodes, BRANCHING), empty))

    @property
    def leaves(self) -> np.ndarray:
        """The leaves, a view (size,) of float64. Change them only with `set` and `fill`."""
        return self._levels[0].reshape(-1)[: self._size]

    @property
    def root(self) -> float:
        """`combine` of all leaves."""
        return float(self._combine.reduce(self._levels[-1][0]))

    def set(self, index: np.ndarray, value: np.ndarray | float) -> None:
        """Set the leaves at `index` (B,). If an index occurs twice, its last value is used."""
        self._levels[0].reshape(-1)[index] = value
        for children, parents in pairwise(self._levels):
            index = index // BRANCHING
            parents.reshape(-1)[index] = self._combine.reduce(children.take(index, axis=0), axis=1)

    def fill(self, values: np.ndarray) -> None:
        """Set all leaves to `values` (size,)."""
        self.leaves[:] = values
        for children, parents in pairwise(self._levels):
            parents.reshape(-1)[: len(children)] = self._combine.reduce(children, axis=1)


class SumTree(PriorityTree):
    """A tree of sums of non-negative leaves. It finds the leaf at a point of the running sum."""

    def __init__(self, size: int) -> None:
        super().__init__(size, np.add, 0.0)

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Find the leaf i with Σ_{k<i} leaf_k ≤ mass < Σ_{k≤i} leaf_k.

        For example, with the leaves [1, 2, 3, 4], mass 2.9 finds leaf 1, and mass 3.0 finds leaf 2.

        Args:
            mass: (B,) float64 in [0, sum of the leaves). Larger values find the last leaf that is not 0.

        Returns:
            (B,) int64. Rounding never makes this find a leaf of 0, unless all leaves are 0.
        """
        node = np.zeros(len(mass), np.int64)
        batch = np.arange(len(mass))
        for level in reversed(self._levels):
            running = level.take(node, axis=0).cumsum(axis=1)  # (B, 16)
            # Rounding may leave slightly more mass than the sum of the children. Clip it below their sum: then some
            # running sum exceeds it, and the child of the first of these is not 0.
            mass = np.minimum(mass, np.nextafter(running[:, -1], 0.0))
            child = (running > mass[:, None]).argmax(axis=1)
            mass = mass - np.where(child > 0, running[batch, child - 1], 0.0)
            node = node * BRANCHING + child
        return node


def checked_priorities(spec: Any, sample: Sample, priority: np.ndarray | None) -> np.ndarray:
    """Check the errors |δ| of a sample, and return one error per item (transition or sequence), (B,) float64.

    `priority` has the error of each transition, (B,), or of each step of the sequences, (B, L).

    Raises:
        NonFiniteError: An error is NaN or infinite at a step in the loss (mask 1).
        ValueError: An error is negative, or `priority` has another shape than the sample.
    """
    mask = sample.batch.mask if isinstance(sample.batch, SequenceBatch) else np.ones(sample.index.shape)
    error = np.asarray(priority, np.float64)
    if error.shape != mask.shape:
        raise ValueError(f"The priorities have shape {error.shape}, but the sample has {mask.shape}")
    counted = np.where(mask > 0, error, 0.0)
    if not np.isfinite(counted).all():
        item, *step = np.argwhere(~np.isfinite(counted))[0].tolist()
        raise NonFiniteError(
            f"Priority {', step '.join(map(str, (item, *step)))} of the batch is {error[item, *step]}: the loss has "
            "diverged. Lower the learning rate, or clip the gradients."
        )
    if counted.min() < 0:
        raise ValueError(f"A priority is {counted.min()}. Priorities are absolute errors, so they cannot be negative")
    return sequence_priority(error, mask, spec.priority_mix) if error.ndim == 2 else error
