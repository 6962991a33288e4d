"""Hidden states of recurrent networks before some of a buffer's steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

PREFIX = "carry/"  # of the names in an experience's `extras`

Carry = dict[str, np.ndarray]


class RecurrentStates:
    """Hidden states of some indices. For steps without one, such as random actions, it is zeros."""

    def __init__(self) -> None:
        self._kept: dict[int, Carry] = {}
        self._zeros: Carry = {}  # like the first state that was kept

    def check(self, extras: Mapping[str, np.ndarray], count: int) -> None:
        """Raise ValueError for states of other names or shapes than those kept."""
        carry = _named(extras)
        shapes = {name: (len(array), *array.shape[1:]) for name, array in carry.items()}
        expected = {name: (count, *zeros.shape) for name, zeros in self._zeros.items()}
        wrong_count = any(len(array) != count for array in carry.values())
        if wrong_count or (carry and expected and shapes != expected):
            raise ValueError(f"The recurrent states have the shapes {shapes}, expected for {count} steps: {expected}")

    def keep(self, index: np.ndarray, extras: Mapping[str, np.ndarray]) -> None:
        """Keep copies of the states (K, ...) in `extras` for the indices (K,)."""
        carry = _named(extras)
        if carry and not self._zeros:
            self._zeros = {name: np.zeros(array.shape[1:], array.dtype) for name, array in carry.items()}
        if carry:
            for row, i in enumerate(index.tolist()):
                self._kept[i] = {name: array[row].astype(self._zeros[name].dtype) for name, array in carry.items()}

    def drop(self, index: np.ndarray) -> None:
        """Remove the states of indices."""
        if self._kept:
            for i in index.tolist():
                self._kept.pop(i, None)

    def read(self, index: Iterable[int]) -> Carry:
        """Return the states (B, ...) at these indices; empty if no state is stored."""
        rows = [self._kept.get(i, self._zeros) for i in index]
        return {name: np.stack([row[name] for row in rows]) for name in self._zeros}

    @property
    def index(self) -> np.ndarray:
        """(K,), the indices that have a state, ascending."""
        return np.array(sorted(self._kept), np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Return the shapes, as zeros; segments contain the states."""
        return {name: zeros.copy() for name, zeros in self._zeros.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the shapes; the states follow with `keep`."""
        self._kept, self._zeros = {}, dict(state)


def _named(extras: Mapping[str, np.ndarray]) -> Carry:
    return {name.removeprefix(PREFIX): array for name, array in extras.items() if name.startswith(PREFIX)}
