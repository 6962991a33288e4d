"""Trees over an array that keep the sum or the minimum of all its numbers: updates take O(log n).

Every node has 16 children, so a million leaves need five levels, and each level is one NumPy operation for a whole
batch. A parent is always recomputed from its children, never corrected by a difference: rounding errors cannot add up.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

BRANCHING = 16


class Tree:
    """A tree with `combine` of all leaves as its root; leaves start as `empty`, the value that changes no result."""

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


class SumTree(Tree):
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


class MinTree(Tree):
    """A tree of the minimum of all leaves."""

    def __init__(self, size: int) -> None:
        super().__init__(size, np.minimum, np.inf)
