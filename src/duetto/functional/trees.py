"""Trees of arrays: an array, or a dict or (named) tuple of trees; None, where there is nothing, stays None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def mapped(function: Callable[[Any], Any], tree: Any, leaf: type[Any] | tuple[()] = ()) -> Any:
    """The tree with `function(array)` for each array, and for each tuple or dict of the kind `leaf`."""
    if isinstance(tree, leaf):
        return function(tree)
    if isinstance(tree, dict):
        return {name: mapped(function, part, leaf) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return _like(tree, [mapped(function, part, leaf) for part in tree])
    return None if tree is None else function(tree)


def merged(function: Callable[[Sequence[Any]], Any], trees: Sequence[Any]) -> Any:
    """Trees of equal form as one, with `function([array, ...])` for the arrays at each place.

    What the first tree has decides: names that only others have are left out.
    """
    first = trees[0]
    if isinstance(first, dict):
        return {name: merged(function, [tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple):
        return _like(first, [merged(function, parts) for parts in zip(*trees, strict=True)])
    return None if first is None else function(trees)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order: all that is neither a dict, a tuple nor None."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def _like(tree: Any, parts: list[Any]) -> Any:
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
