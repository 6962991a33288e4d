"""A tree of arrays in one buffer, which one copy transfers to a device.

batch.obs | batch.action | ... | noise | learning rates        one buffer of bytes; each array at a multiple of 64
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.functional.pytree import tree_leaves, tree_map

ALIGNMENT = 64  # bytes, enough for both frameworks' kernels


@dataclass(frozen=True)
class BufferSlot:
    """Offset, shape and dtype of an array in the buffer."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def end(self) -> int:
        """Offset of the first byte after the array."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize


class BufferLayout:
    """The layout of trees with the names, shapes and types of an example. A number is an array of shape ().

    Attributes:
        size: Size of the buffer in bytes.
    """

    size: int

    def __init__(self, example: Any) -> None:
        self.size = 0
        self._places = tree_map(self._place, example)

    def _place(self, leaf: Any) -> BufferSlot:
        array = np.asarray(leaf)
        place = BufferSlot(self.size, array.shape, array.dtype)
        self.size = math.ceil(place.end / ALIGNMENT) * ALIGNMENT
        return place

    def write(self, tree: Any, memory: np.ndarray) -> None:
        """Write a tree's arrays to the buffer, (size,) uint8."""
        for leaf, place in zip(tree_leaves(tree), tree_leaves(self._places), strict=True):
            memory[place.start : place.end].view(place.dtype).reshape(place.shape)[...] = leaf

    def read(self, part: Callable[[BufferSlot], Any]) -> Any:
        """Return the tree with `part(slot)` for each array."""
        return tree_map(part, self._places)


def signature(tree: Any) -> Hashable:
    """Return a key that is equal for trees of the same layout."""
    found: list[Hashable] = []
    tree_map(lambda leaf: found.append((np.shape(leaf), getattr(leaf, "dtype", type(leaf)))), tree)
    return tuple(found), _names(tree)


def _names(tree: Any) -> Hashable:
    if isinstance(tree, dict):
        return tuple((name, _names(part)) for name, part in tree.items())
    if isinstance(tree, tuple):
        return (type(tree), *map(_names, tree))
    return tree is None
