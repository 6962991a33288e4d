"""Samplers: all items are equally likely, or in proportion to their priorities.

A draw has two parts: draw points on the line of all items, laid end to end; then find the items there.

    uniform         |0|1|2|3|4|5|              a point is an item's number
    proportional    |  0  |1|    2    | 3 |    each as long as its mass; a batch of 3 has a point in each third
                       ^       ^         ^
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Prioritization, SequenceBatch
from duetto.buffers.sum_tree import MinTree, SumTree
from duetto.errors import CheckpointError, NonFiniteError
from duetto.functional import state_schema
from duetto.functional.priorities import annealed_exponent, importance_weights, mass, sequence_priority
from duetto.functional.state_schema import ArrayOf

if TYPE_CHECKING:
    from duetto.buffers.base import Sample
    from duetto.buffers.storage import EpisodeStorage


class PriorityLine(NamedTuple):
    """The numbers that drawing and weighting need of all items."""

    items: int
    length: float  # Σ p^α; for uniform draws the number of items
    least: float  # p^α; infinite without items


def numbers(items: int, size: int, random: np.random.Generator, replacement: bool = True) -> np.ndarray:
    """Draw B points of a uniform line; without replacement, at most as many as there are items."""
    if replacement:
        return random.integers(items, size=size)
    return random.choice(items, size=min(size, items), replace=False)


def strata(length: float, size: int, random: np.random.Generator) -> np.ndarray:
    """Draw a point in each of B equal parts of a line: (B,), ascending."""
    return (np.arange(size) + random.random(size)) * (length / size)


class ImportanceWeights:
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


class StepSampler:
    """Uniform draws of all stored steps."""

    def __init__(self, storage: EpisodeStorage, replacement: bool) -> None:
        self._storage, self._replacement = storage, replacement

    def __len__(self) -> int:
        return len(self._storage)

    def add(self, index: np.ndarray) -> None:
        """Do nothing: every stored step is an item."""

    def has(self, index: np.ndarray) -> np.ndarray:
        """Return which of the indices (K,) are items; one that was drawn stays one."""
        return np.ones(len(index), bool)

    def draw(self, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw B items; return their indices (B,) and importance weights (B,) float32.

        Without replacement B is at most the number of items.
        """
        item = numbers(len(self), size, random, self._replacement)
        return self.find(item), np.ones(len(item), np.float32)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._storage.locate(point)

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return p^α (B,) of items; 1 for uniform draws."""
        return np.ones(len(index))

    @property
    def line(self) -> PriorityLine:
        """The `PriorityLine` of all items."""
        return PriorityLine(len(self), len(self), 1.0)

    def feedback(self, index: np.ndarray, priority: np.ndarray, there: Any = slice(None)) -> None:
        """Do nothing: uniform draws have no priorities."""

    def masses(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """Return the saved arrays of the items `index` (K,): none."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, index: np.ndarray, items: dict[str, Any], state: dict[str, Any]) -> None:
        """Do nothing: the items are the stored steps."""


class UniformSampler(StepSampler):
    """Uniform draws, with replacement, of items that are added and removed, among the indices 0 .. size-1."""

    def __init__(self, size: int) -> None:
        self._sums = SumTree(size)  # mass of each item, 0 where there is none
        self._replacement = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, index: np.ndarray) -> None:
        """Make items of indices (K,), each given once, or new items of old ones."""
        self._count += int(np.count_nonzero(self._sums.leaves[index] == 0))
        self._set_new(index)

    def remove(self, index: np.ndarray) -> None:
        """Remove the items at `index` (K,), each given once."""
        self._sums.set(index, 0.0)
        self._count -= len(index)

    def has(self, index: np.ndarray) -> np.ndarray:
        """Return which of the indices (K,) are items."""
        return self._sums.leaves[index] > 0

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._sums.find(point + 0.5)  # sums of ones are exact

    def mass(self, index: np.ndarray) -> np.ndarray:
        """Return p^α (B,) of items; 1 for uniform draws."""
        return self._sums.leaves.take(index)

    def load_state_dict(self, index: np.ndarray, items: dict[str, Any], state: dict[str, Any]) -> None:
        """Make the items `index` (K,), and no others."""
        self.remove_all()
        self.add(index)

    def remove_all(self) -> None:
        """Remove all items."""
        self._sums.fill(np.zeros(len(self._sums.leaves)))
        self._count = 0

    def _set_new(self, index: np.ndarray) -> None:
        self._sums.set(index, 1.0)


class PrioritizedSampler(UniformSampler):
    """Proportional priorities (Schaul et al., 2016, arXiv:1511.05952).

    - P(i) = p_i^α / Σ p^α with p = |δ| + ε; a batch of B takes one draw from each of B equal parts of the total.
    - A new item gets the priority of the largest |δ| fed back so far, at first 1, so that it is soon seen.
    - Weights (N · P)^-β are divided by the largest of all items, not of the batch.

    Attributes:
        largest: The largest |δ| so far, that of new items; ε is added as to every |δ|.
    """

    def __init__(self, size: int, prioritization: Prioritization) -> None:
        super().__init__(size)
        self._prioritization = prioritization
        self._minima = MinTree(size)  # p^α, infinite where there is no item
        self._importance = ImportanceWeights(prioritization)
        self.largest: float = 1.0  # |δ| so far

    @property
    def total(self) -> float:
        """Σ p^α."""
        return float(self._sums.root)

    @property
    def smallest(self) -> float:
        """The smallest p^α; infinite without items."""
        return float(self._minima.root)

    @property
    def exponent(self) -> float:
        """β of the next batch."""
        return self._importance.exponent

    @property
    def line(self) -> PriorityLine:
        """The `PriorityLine` of all items."""
        return PriorityLine(len(self), self.total, self.smallest)

    def remove(self, index: np.ndarray) -> None:
        """Remove the items at `index` (K,), each given once."""
        super().remove(index)
        self._minima.set(index, np.inf)

    def draw(self, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw one item from each of B equal parts of the total mass; see `StepSampler.draw`."""
        index = self.find(strata(self.total, size, random))
        return index, self._importance.weights(self.mass(index), self.smallest)

    def find(self, point: np.ndarray) -> np.ndarray:
        """Return the items (B,) at points of the line."""
        return self._sums.find(point)

    def skip(self) -> None:
        """Count a batch without items of this sampler: β rises with every batch."""
        self._importance.sampled += 1

    def feedback(self, index: np.ndarray, priority: np.ndarray, there: Any = slice(None)) -> None:
        """Give those items (K,) that are `there` new priorities (K,); if one comes twice, its last one stays."""
        self.largest = max(self.largest, float(priority.max(initial=0.0)))
        self._set(index[there], self._mass(priority[there]))

    def masses(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """Return p^α of the items `index` (K,)."""
        return {"mass": self._sums.leaves[index]}

    def state_dict(self) -> dict[str, Any]:
        """Return α, the largest priority and the number of batches drawn."""
        weighed = {"exponent": self._prioritization.exponent, "largest_priority": self.largest}
        return weighed | {"sampled": self._importance.sampled}

    def load_state_dict(self, index: np.ndarray, items: dict[str, Any], state: dict[str, Any]) -> None:
        """Restore the items `index` (K,), and no others, from `masses` and `state_dict`.

        If α was another one, the same priorities get other masses; if it was 0, no priority is known, and all items get
        the largest.

        Raises:
            CheckpointError: The state is that of a memory without priorities.
        """
        if "mass" not in items:
            raise CheckpointError(
                "The checkpoint's replay memory has no priorities. Leave prioritized at false, or put it back to that "
                "in config.yaml; a new run can also begin without the other's memory."
            )
        state_schema.check(items, {"mass": ArrayOf(len(index), (), np.float64)}, "memory/items")
        state_schema.check(state, {"exponent": float, "largest_priority": float, "sampled": int}, "memory/draws")
        if not np.all(np.isfinite(items["mass"]) & (items["mass"] >= 0)):
            raise CheckpointError("The checkpoint's replay memory has priorities that are negative or not finite.")
        self.largest, self._importance.sampled = float(state["largest_priority"]), int(state["sampled"])
        found = np.zeros(len(self._sums.leaves))
        found[index] = self._with_this_exponent(items["mass"], state["exponent"])
        self._sums.fill(found)
        self._minima.fill(np.where(found > 0, found, np.inf))
        self._count = int(np.count_nonzero(found))

    def _with_this_exponent(self, masses: np.ndarray, before: float) -> np.ndarray:
        """Turn masses p^before into p^α; those of 0, where there is no item, stay."""
        exponent = self._prioritization.exponent
        if before == exponent:
            return masses
        there = masses > 0
        if before == 0:
            return np.where(there, self._mass(np.asarray(self.largest)), 0.0)
        return np.where(there, masses ** (exponent / before), 0.0)

    def _mass(self, error: np.ndarray) -> np.ndarray:
        return mass(error + self._prioritization.epsilon, self._prioritization.exponent)

    def _set_new(self, index: np.ndarray) -> None:
        self._set(index, self._mass(np.full(len(index), self.largest)))

    def _set(self, index: np.ndarray, masses: np.ndarray) -> None:
        self._sums.set(index, masses)
        self._minima.set(index, masses)


def checked_priorities(spec: Any, sample: Sample, priority: np.ndarray | None) -> np.ndarray:
    """Return the priorities (B,) float64 of a sample's items, from their errors |δ|: (B,), or of sequences (B, L).

    Raises:
        NonFiniteError: An error that counts is NaN or infinite.
        ValueError: One is negative, or there are not as many as the sample has items or steps.
    """
    mask = sample.batch.mask if isinstance(sample.batch, SequenceBatch) else np.ones(sample.index.shape)
    if priority is None:
        raise ValueError("Prioritised replay needs a priority for every item of the sample, not None")
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
