"""How likely each item of a memory is to be drawn: all alike, or in proportion to priorities.

A draw has two halves. Points are drawn on the line of all items, laid end to end; then the items there are found.

    uniform         |0|1|2|3|4|5|              a point is an item's number
    proportional    |  0  |1|    2    | 3 |    each as long as its mass; a batch of 3 has a point in each third
                       ^       ^         ^
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Prioritization
from duetto.errors import CheckpointError
from duetto.functional import forms
from duetto.functional.forms import Rows
from duetto.functional.priorities import annealed_exponent, importance_weights, mass
from duetto.memory.tree import MinTree, SumTree


class Line(NamedTuple):
    """The numbers that are needed to draw points among all items, and to weigh the items found there."""

    items: int
    length: float  # Σ p^α; of items that are all alike, their number
    least: float  # p^α; infinite without items


def numbers(items: int, size: int, random: np.random.Generator, replacement: bool = True) -> np.ndarray:
    """Draw B points of a line of items that are all alike; without replacement, at most as many as there are items."""
    if replacement:
        return random.integers(items, size=size)
    return random.choice(items, size=min(size, items), replace=False)


def strata(length: float, size: int, random: np.random.Generator) -> np.ndarray:
    """Draw a point in each of B equal parts of a line: (B,), ascending."""
    return (np.arange(size) + random.random(size)) * (length / size)


class Weighing:
    """Importance weights (N · P)^-β, divided by the largest of all items; β rises with every batch.

    Attributes:
        sampled: Batches so far.
    """

    def __init__(self, prioritization: Prioritization) -> None:
        self._prioritization = prioritization
        self.sampled: int = 0

    @property
    def exponent(self) -> float:
        """β of the next batch."""
        start = self._prioritization.importance_exponent
        if start == 0:
            return 0.0
        return annealed_exponent(start, self.sampled, self._prioritization.importance_anneal_samples)

    def weights(self, mass: np.ndarray, least: float) -> np.ndarray:
        """Count the next batch and return its weights (B,) float32, from p^α of its items and the least p^α of all."""
        exponent = self.exponent
        self.sampled += 1
        if exponent == 0:
            return np.ones(len(mass), np.float32)
        return importance_weights(mass, least, exponent).astype(np.float32)


class UniformDraws:
    """Items among the indices 0 .. size-1, of which every one is as likely to be drawn as every other."""

    def __init__(self, size: int) -> None:
        self._sums = SumTree(size)  # mass of each item, 0 where there is none
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, index: np.ndarray) -> None:
        """Make items of indices (K,) that are not items yet, each given once."""
        self._sums.set(index, 1.0)
        self._count += len(index)

    def remove(self, index: np.ndarray) -> None:
        """Remove the items at `index` (K,), each given once."""
        self._sums.set(index, 0.0)
        self._count -= len(index)

    def draw(self, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw B items with replacement; return their indices (B,) and importance weights (B,) float32."""
        return self.find(numbers(len(self), size, random)), np.ones(size, np.float32)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._sums.find(point + 0.5)  # sums of ones are exact

    def mass(self, index: np.ndarray) -> np.ndarray:
        """p^α (B,) of items; 1 where all are alike."""
        return self._sums.leaves.take(index)

    @property
    def line(self) -> Line:
        """The `Line` of all items."""
        return Line(len(self), len(self), 1.0)

    def feedback(self, index: np.ndarray, priority: np.ndarray) -> None:
        """Do nothing: uniform draws have no priorities."""

    def state_dict(self, index: np.ndarray) -> dict[str, Any]:
        """Return nothing: all there is to know is which the items are, `index` (K,)."""
        return {}

    def load_state_dict(self, index: np.ndarray, state: dict[str, Any]) -> None:
        """Make the items `index` (K,) again, where there are none yet."""
        self.add(index)


class ProportionalDraws(UniformDraws):
    """Proportional priorities (Schaul et al., 2016, arXiv:1511.05952).

    - P(i) = p_i^α / Σ p^α with p = |δ| + ε; a batch of B takes one draw from each of B equal parts of the total.
    - A new item gets the largest |δ| seen so far, at first 1, so that it is soon seen.
    - Weights (N · P)^-β are divided by the largest of all items, not of the batch.

    Attributes:
        largest: The largest |δ| so far, that of new items.
    """

    def __init__(self, size: int, prioritization: Prioritization) -> None:
        super().__init__(size)
        self._prioritization = prioritization
        self._minima = MinTree(size)  # p^α, infinite where there is no item
        self._weighing = Weighing(prioritization)
        self.largest: float = 1.0  # |δ| so far

    @property
    def total(self) -> float:
        """Σ p^α."""
        return float(self._sums.root)

    @property
    def smallest(self) -> float:
        """The least p^α; infinite without items."""
        return float(self._minima.root)

    @property
    def exponent(self) -> float:
        """β of the next batch."""
        return self._weighing.exponent

    @property
    def line(self) -> Line:
        """The `Line` of all items."""
        return Line(len(self), self.total, self.smallest)

    def add(self, index: np.ndarray) -> None:
        """Make items of indices (K,) that are not items yet; they get the largest priority so far."""
        self.renew(index)
        self._count += len(index)

    def renew(self, index: np.ndarray) -> None:
        """Give indices (K,), of which one may come twice, the priority of new items; see `add`."""
        self._set(index, mass(np.full(len(index), self.largest), self._prioritization.exponent))

    def remove(self, index: np.ndarray) -> None:
        """Remove the items at `index` (K,), each given once."""
        super().remove(index)
        self._minima.set(index, np.inf)

    def draw(self, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw one item from each of B equal parts of the total mass; see `UniformDraws.draw`."""
        index = self.find(strata(self.total, size, random))
        return index, self._weighing.weights(self.mass(index), self.smallest)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._sums.find(point)

    def skip(self) -> None:
        """Count a batch that was drawn from elsewhere: β rises all the same."""
        self._weighing.sampled += 1

    def feedback(self, index: np.ndarray, priority: np.ndarray) -> None:
        """Give items (K,) new priorities (K,); if one comes twice, its last one stays."""
        if len(index):
            self.largest = max(self.largest, float(priority.max()))
            self._set(index, mass(priority + self._prioritization.epsilon, self._prioritization.exponent))

    def state_dict(self, index: np.ndarray) -> dict[str, Any]:
        """Return p^α of the items `index` (K,), that α, the largest priority and the number of batches drawn."""
        weighed = {"mass": self._sums.leaves[index], "exponent": self._prioritization.exponent}
        return weighed | {"largest_priority": self.largest, "sampled": self._weighing.sampled}

    def load_state_dict(self, index: np.ndarray, state: dict[str, Any]) -> None:
        """Restore the items `index` (K,) from `state_dict`, where there are none yet. If α was another one, the same
        priorities get other masses; if it was 0, no priority is known, and all items get the largest.

        Raises:
            CheckpointError: The state is that of a memory without priorities.
        """
        if not isinstance(state, dict) or "mass" not in state:
            raise CheckpointError(
                "The checkpoint's replay memory has no priorities. Leave prioritized at false, or put it back to that "
                "in config.yaml; a new run can also begin without the other's memory."
            )
        masses = Rows(len(index), (), np.float64)
        forms.check(state, {"mass": masses, "largest_priority": float, "sampled": int}, "memory")
        forms.check(state.get("exponent", 0.0), float, "memory/exponent")  # which earlier versions did not write
        if not np.all(np.isfinite(state["mass"]) & (state["mass"] >= 0)):
            raise CheckpointError("The checkpoint's replay memory has priorities that are negative or not finite.")
        self.largest, self._weighing.sampled = float(state["largest_priority"]), int(state["sampled"])
        found = self._with_this_exponent(state["mass"], state.get("exponent"))
        if len(index) == len(self._sums.leaves):
            self._sums.fill(found)
            self._minima.fill(np.where(found > 0, found, np.inf))
        else:
            self._set(index, found)
        self._count += len(index)

    def _with_this_exponent(self, masses: np.ndarray, before: float | None) -> np.ndarray:
        """Turn masses p^before into p^α; those of 0, where there is no item, stay. None stands for this α."""
        exponent = self._prioritization.exponent
        if before in (None, exponent):
            return masses
        there = masses > 0
        if before == 0:
            return np.where(there, mass(np.asarray(self.largest), exponent), 0.0)
        return np.where(there, masses ** (exponent / before), 0.0)

    def _set(self, index: np.ndarray, masses: np.ndarray) -> None:
        self._sums.set(index, masses)
        self._minima.set(index, masses)
