"""Draw batches from the items of several shards, and compute their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.buffers.sampling import ImportanceWeights, PriorityLine, numbers, strata


class ShardPiece(NamedTuple):
    """The part of a batch that comes from one shard."""

    shard: int
    rows: np.ndarray  # (b,), of the batch
    point: np.ndarray  # (b,), on its own line


class ShardedSampler:
    """The items of all shards, laid end to end; see `PrioritizedSampler`.

    Attributes:
        lines: The last known line of each shard.
        largest: The largest |δ| so far, that of new items.
    """

    def __init__(self, spec: ReplaySpec | SequenceSpec, settle: Callable[[], Any]) -> None:
        """`settle` waits until the lines are up to date."""
        self._replacement = isinstance(spec, SequenceSpec) or spec.replacement
        self._importance = spec.prioritization and ImportanceWeights(spec.prioritization)
        self._settle = settle
        self.largest: float = 1.0
        self.lines: list[PriorityLine] = []

    def __len__(self) -> int:
        self._settle()
        return sum(line.items for line in self.lines)

    @property
    def total(self) -> float:
        """Σ p^α."""
        self._settle()
        return float(self._ends()[-1])

    @property
    def smallest(self) -> float:
        """The smallest p^α; infinite without items."""
        self._settle()
        return min(line.least for line in self.lines)

    @property
    def exponent(self) -> float:
        """β of the next batch."""
        assert self._importance is not None
        return self._importance.exponent

    def skip(self) -> None:
        """Count a batch that has no items of these shards: β rises with every batch."""
        assert self._importance is not None
        self._importance.sampled += 1

    def pieces(self, size: int, random: np.random.Generator) -> list[ShardPiece]:
        """Draw the points of a batch of `size` items; return the piece of each shard that has any."""
        if self._importance is None:
            point = numbers(len(self), size, random, self._replacement)
        else:
            point = strata(self.total, size, random)
        ends = self._ends()
        # Rounding may put a point at the very end: it belongs to the last shard with items.
        last = max(shard for shard, line in enumerate(self.lines) if line.length > 0)
        shard = np.minimum(ends.searchsorted(point, side="right"), last)
        starts = np.append(ends.dtype.type(0), ends[:-1])
        found = ((one, np.flatnonzero(shard == one)) for one in range(len(self.lines)))
        return [ShardPiece(one, rows, point[rows] - starts[one]) for one, rows in found if len(rows)]

    def weights(self, mass: np.ndarray) -> np.ndarray:
        """Count a batch and return its importance weights (B,) float32, from p^α (B,) of its items."""
        if self._importance is None:
            return np.ones(len(mass), np.float32)
        return self._importance.weights(mass, self.smallest)

    def state_dict(self) -> dict[str, Any]:
        """Return the entries of `PrioritizedSampler.state_dict` that no shard has; {} without priorities."""
        return (
            {} if self._importance is None else {"largest_priority": self.largest, "sampled": self._importance.sampled}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the shards have checked its form."""
        if self._importance is not None:
            self.largest, self._importance.sampled = float(state["largest_priority"]), int(state["sampled"])

    def _ends(self) -> np.ndarray:
        """Return the points (shards,) where each shard's line ends."""
        return np.cumsum([line.length for line in self.lines])
