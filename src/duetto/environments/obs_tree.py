"""Batched observations: an array or a flat dict of arrays, with the environments along the first axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from duetto.functional.pytree import tree_map

Tree = np.ndarray | dict[str, np.ndarray]


def array(value: Any) -> np.ndarray:
    """Convert a user's value to an array. The value may be a PyTorch tensor that requires a gradient."""
    return np.asarray(value.detach() if getattr(value, "requires_grad", False) else value)


def copy(tree: Tree) -> Tree:
    """Return a copy that shares no memory with `tree`."""
    return tree_map(np.copy, tree)


def take(tree: Tree, rows: np.ndarray) -> Tree:
    """Return copies of the given rows. `rows` are indices (K,) or a mask."""
    return tree_map(lambda part: part[rows], tree)


def assign(target: Tree, source: Tree, rows: np.ndarray) -> None:
    """Overwrite the given rows (mask or indices) of `target` with the same rows of `source`."""
    given = dict(parts(source))
    for name, part in parts(target):
        part[rows] = given[name][rows]


def parts(tree: Tree) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, array) of each part; a single array has the name ""."""
    if isinstance(tree, dict):
        yield from tree.items()
    else:
        yield "", tree
