"""Trees of arrays: an array, a dict or (named) tuple of trees, or None."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the tree with `function(array)` in place of each array."""
    if isinstance(tree, dict):
        return {name: tree_map(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return _like(tree, [tree_map(function, part) for part in tree])
    return None if tree is None else function(tree)


def tree_map_many(function: Callable[[Sequence[Any]], Any], trees: Sequence[Any]) -> Any:
    """Return a tree with `function([a, b, ...])` at each position, for the trees' arrays a, b, ... at this position.

    The first tree determines the structure. Names that the first tree does not have are dropped.
    """
    first = trees[0]
    if isinstance(first, dict):
        return {name: tree_map_many(function, [tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple):
        return _like(first, [tree_map_many(function, parts) for parts in zip(*trees, strict=True)])
    return None if first is None else function(trees)


def tree_stack(trees: Sequence[Any]) -> Any:
    """Stack the arrays and numbers of trees along a new first axis, with NumPy."""
    return tree_map_many(np.stack, trees)


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree in order: everything except dicts, tuples and None."""
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return leaves


def _like(tree: Any, parts: list[Any]) -> Any:
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def signature(tree: Any) -> Hashable:
    """Return a hashable key, equal for trees with the same names, shapes and types."""
    if isinstance(tree, dict):
        return tuple((name, signature(part)) for name, part in tree.items())
    if isinstance(tree, tuple):
        return (type(tree), *map(signature, tree))
    return np.shape(tree), getattr(tree, "dtype", type(tree))
