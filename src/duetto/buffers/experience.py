"""Functions that concatenate steps and split them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from duetto.buffers.base import Experience, selected


def joined(steps: list[Experience]) -> Experience:
    """Concatenate the rows of steps, in order."""
    if len(steps) == 1:
        return steps[0]
    return Experience(*(concatenated([step[i] for step in steps]) for i in range(len(Experience._fields))))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Cut steps into several of `counts` rows each; undoes `joined`."""
    ends = np.cumsum(counts)
    slices = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [Experience(*(rows(part, one) for part in steps)) for one in slices]


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
    return Experience(*(_put([block[i] for block in blocks], places) for i in range(len(Experience._fields))))


def _put(parts: list[Any], places: list[np.ndarray]) -> Any:
    """Put rows of trees to their places, with one copy; parts that only some trees have are left out."""
    if not isinstance(parts[0], np.ndarray):
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: _put([part[name] for part in parts], places) for name in names}
    whole = np.empty((sum(map(len, places)), *parts[0].shape[1:]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        whole[place] = part
    return whole


def concatenated(parts: list[Any]) -> Any:
    """Concatenate trees of arrays along their rows; parts that only some trees have are left out."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: concatenated([part[name] for part in parts]) for name in names}


def rows(tree: Any, which: slice) -> Any:
    """Return the rows `which` of a tree of arrays."""
    return tree[which] if isinstance(tree, np.ndarray) else {name: rows(part, which) for name, part in tree.items()}


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
