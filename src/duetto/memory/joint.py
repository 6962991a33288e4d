"""The lines of several shards laid end to end: where a batch's points are drawn, and what its items weigh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.memory.draws import Line, Weighing, numbers, strata
from duetto.memory.shards import Standing


class Piece(NamedTuple):
    """The part of a batch that one shard is asked for."""

    shard: int
    rows: np.ndarray  # (b,), of the batch
    point: np.ndarray  # (b,), on its own line


class JointDraws:
    """The draws of all shards as one; see `ProportionalDraws` for what both have.

    Attributes:
        lines: The line of each shard, as it was last known.
        known: The largest |δ|, as it was last known.
        certain: Whether `known` is still the largest.
    """

    def __init__(self, spec: ReplaySpec | SequenceSpec, settle: Callable[[], Any]) -> None:
        """`settle` waits until the lines, and the largest |δ|, are those of now."""
        self._replacement = isinstance(spec, SequenceSpec) or spec.replacement
        self._weighing = spec.prioritization and Weighing(spec.prioritization)
        self._settle = settle
        self.known: float = 1.0
        self.certain: bool = True
        self.lines: list[Line] = []

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
        """The least p^α; infinite without items."""
        self._settle()
        return min(line.least for line in self.lines)

    @property
    def largest(self) -> float:
        """The largest |δ| so far, that of new items."""
        if not self.certain:
            self._settle()
        return self.known

    @largest.setter
    def largest(self, value: float) -> None:
        self.known = value

    @property
    def exponent(self) -> float:
        """β of the next batch."""
        assert self._weighing is not None
        return self._weighing.exponent

    def skip(self) -> None:
        """Count a batch that was drawn from elsewhere: β rises all the same."""
        assert self._weighing is not None
        self._weighing.sampled += 1

    def note(self, shard: int, standing: Standing) -> None:
        """Take over a shard's newest standing."""
        self.lines[shard] = standing.line
        self.known = max(self.known, standing.largest)

    def pieces(self, size: int, random: np.random.Generator) -> list[Piece]:
        """Draw the points of a new batch of `size` items, and return the piece of each shard that has any."""
        if self._weighing is None:
            point = numbers(len(self), size, random, self._replacement)
        else:
            point = strata(self.total, size, random)
        ends = self._ends()
        # Where rounding puts a point at the very end, it is the last shard's that has any items.
        last = max(shard for shard, line in enumerate(self.lines) if line.length > 0)
        shard = np.minimum(ends.searchsorted(point, side="right"), last)
        starts = np.append(ends.dtype.type(0), ends[:-1])
        found = ((one, np.flatnonzero(shard == one)) for one in range(len(self.lines)))
        return [Piece(one, rows, point[rows] - starts[one]) for one, rows in found if len(rows)]

    def weights(self, mass: np.ndarray) -> np.ndarray:
        """Count a batch and return its importance weights (B,) float32, from p^α (B,) of its items."""
        if self._weighing is None:
            return np.ones(len(mass), np.float32)
        return self._weighing.weights(mass, self.smallest)

    def state_dict(self) -> dict[str, Any]:
        """Return the part of `ProportionalDraws.state_dict` that no shard has; {} without priorities."""
        return {} if self._weighing is None else {"largest_priority": self.largest, "sampled": self._weighing.sampled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the shards have checked its form."""
        if self._weighing is not None:
            self.known, self._weighing.sampled = float(state["largest_priority"]), int(state["sampled"])

    def _ends(self) -> np.ndarray:
        """Return the points (shards,) where each shard's line ends."""
        return np.cumsum([line.length for line in self.lines])
