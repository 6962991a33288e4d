"""A tree of arrays in one piece of memory, so that one copy takes all of them to a device.

batch.obs | batch.action | ... | noise | learning rates        one buffer of bytes; each array at a multiple of 64
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.functional.trees import leaves, mapped

ALIGNMENT = 64  # bytes: no framework's kernels want more


@dataclass(frozen=True)
class Place:
    """The place of an array in the buffer."""

    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def end(self) -> int:
        """Offset of the first byte after the array."""
        return self.begin + math.prod(self.shape) * self.dtype.itemsize


class Packing:
    """How trees with the names, shapes and types of an example are packed. A number is an array without an axis.

    Attributes:
        size: Bytes.
    """

    size: int

    def __init__(self, example: Any) -> None:
        self.size = 0
        self._places = mapped(self._place, example)

    def _place(self, leaf: Any) -> Place:
        array = np.asarray(leaf)
        place = Place(self.size, array.shape, array.dtype)
        self.size = math.ceil(place.end / ALIGNMENT) * ALIGNMENT
        return place

    def write(self, tree: Any, memory: np.ndarray) -> None:
        """Put a tree's arrays into the memory, (size,) uint8."""
        for leaf, place in zip(leaves(tree), leaves(self._places), strict=True):
            memory[place.begin : place.end].view(place.dtype).reshape(place.shape)[...] = leaf

    def read(self, part: Callable[[Place], Any]) -> Any:
        """The tree, with `part(place)` for each array."""
        return mapped(part, self._places)


def kind(tree: Any) -> Hashable:
    """A key that is equal for trees that are packed alike."""
    found: list[Hashable] = []
    mapped(lambda leaf: found.append((np.shape(leaf), getattr(leaf, "dtype", type(leaf)))), tree)
    return tuple(found), _names(tree)


def _names(tree: Any) -> Hashable:
    if isinstance(tree, dict):
        return tuple((name, _names(part)) for name, part in tree.items())
    if isinstance(tree, tuple):
        return (type(tree), *map(_names, tree))
    return tree is None
