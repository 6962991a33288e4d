"""Steps put one after the other, and taken apart again."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.memory.base import Experience


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
