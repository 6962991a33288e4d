"""Functions that join steps and split them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from duetto.buffers.base import Experience, selected
from duetto.functional.pytree import tree_map, tree_map_many


def joined(steps: list[Experience]) -> Experience:
    """Concatenate the rows of steps, in order."""
    return steps[0] if len(steps) == 1 else concatenated(_with_common_extras(steps))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Cut steps into several of `counts` rows each; undoes `joined`."""
    ends = np.cumsum(counts)
    return [rows(steps, slice(end - count, end)) for end, count in zip(ends, counts, strict=True)]


def turns(steps: Experience, continues: np.ndarray) -> Iterable[tuple[Experience, np.ndarray]]:
    """Yield the same steps in order, at most one of each environment at a time, with their part of `continues`."""
    env = steps.env
    rank = _rank(env) if len(env) > 1 else np.zeros(len(env), np.int64)
    if not rank.any():
        return [(steps, continues)] if len(env) else []
    order = rank.argsort(kind="stable")
    chosen = np.split(order, np.flatnonzero(np.diff(rank[order])) + 1)
    return ((selected(steps, rows), continues[rows]) for rows in chosen)


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


def rows(tree: Any, which: slice) -> Any:
    """Return the rows `which` of a tree of arrays."""
    return tree_map(itemgetter(which), tree)


def _with_common_extras(steps: Sequence[Experience]) -> list[Experience]:
    """Return the steps with the extras that all of them have: random actions have none."""
    names = [name for name in steps[0].extras if all(name in one.extras for one in steps)]
    return [one._replace(extras={name: one.extras[name] for name in names}) for one in steps]


def _rank(env: np.ndarray) -> np.ndarray:
    """Count the rows of the same environment before each row: [2, 0, 2, 2] -> [0, 0, 1, 2]."""
    order = env.argsort(kind="stable")
    grouped = env[order]
    rank = np.empty(len(env), np.int64)
    rank[order] = np.arange(len(env)) - grouped.searchsorted(grouped)
    return rank


def before(env: np.ndarray) -> np.ndarray:
    """Return the row before each row in the same environment, -1 for none: [2, 0, 2, 2] -> [-1, -1, 0, 2]."""
    found = np.full(len(env), -1)
    if len(env) == 1:
        return found
    order = env.argsort(kind="stable")
    same = env[order][1:] == env[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found
