"""Functions that join steps and split them again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from duetto.buffers.base import Experience
from duetto.functional.pytree import tree_map, tree_map_many


def joined(steps: list[Experience]) -> Experience:
    """Concatenate the rows of steps, in order."""
    return steps[0] if len(steps) == 1 else concatenated(_with_common_extras(steps))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Cut steps into several of `counts` rows each; undoes `joined`."""
    ends = np.cumsum(counts)
    return [rows(steps, slice(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def side_by_side(blocks: list[Experience], counts: list[list[int]]) -> Experience:
    """Merge blocks by vector step: the rows of the first step, in the blocks' order, then those of the second, ...

    `counts` has the number of rows of each block's vector steps.
    """
    if len(blocks) == 1:
        return blocks[0]
    step = np.concatenate([np.arange(len(own)).repeat(own) for own in counts])
    place = np.empty(len(step), np.int64)  # where each row goes
    place[step.argsort(kind="stable")] = np.arange(len(step))
    places = np.split(place, np.cumsum([sum(own) for own in counts])[:-1])
    return scattered(_with_common_extras(blocks), places)


def scattered(trees: Sequence[Any], rows: Sequence[np.ndarray]) -> Any:
    """Copy the rows of trees into one tree, those of each to its `rows` there.

    Where a tree lacks a part of a dict that others have, such as hidden states, its rows are zeros.
    """
    some = next((tree for tree in trees if tree is not None), None)
    if isinstance(some, dict):
        return {name: scattered([tree.get(name) for tree in trees], rows) for name in max(trees, key=len)}
    if isinstance(some, tuple):
        return type(some)(*(scattered(parts, rows) for parts in zip(*trees, strict=True)))
    if some is None:
        return None
    whole = np.zeros((sum(map(len, rows)), *some.shape[1:]), some.dtype)
    for tree, own in zip(trees, rows, strict=True):
        if tree is not None:
            whole[own] = tree
    return whole


def concatenated(trees: Sequence[Any]) -> Any:
    """Concatenate trees of arrays along their rows."""
    return tree_map_many(np.concatenate, trees)


def rows(tree: Any, which: slice | np.ndarray) -> Any:
    """Return the rows `which` of a tree of arrays."""
    return tree_map(itemgetter(which), tree)


def _with_common_extras(steps: Sequence[Experience]) -> list[Experience]:
    """Return the steps with the extras that all of them have: random actions have none."""
    names = [name for name in steps[0].extras if all(name in one.extras for one in steps)]
    return [one._replace(extras={name: one.extras[name] for name in names}) for one in steps]
