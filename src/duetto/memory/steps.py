"""Steps put one after the other, and taken apart again."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.memory.base import Experience


def joined(steps: list[Experience]) -> Experience:
    """One after the other."""
    if len(steps) == 1:
        return steps[0]
    return Experience(*(concatenated([step[i] for step in steps]) for i in range(len(Experience._fields))))


def cut(steps: Experience, counts: list[int]) -> list[Experience]:
    """Undo `joined`: so many rows each."""
    ends = np.cumsum(counts)
    slices = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [Experience(*(rows(part, one) for part in steps)) for one in slices]


def side_by_side(blocks: list[Experience], counts: list[list[int]]) -> Experience:
    """The rows of blocks whose vector steps have so many: those of the first one, then those of the second; in each,
    in the blocks' order.
    """
    if len(blocks) == 1:
        return blocks[0]
    step = np.concatenate([np.arange(len(own)).repeat(own) for own in counts])
    place = np.empty(len(step), np.int64)  # where each row goes
    place[step.argsort(kind="stable")] = np.arange(len(step))
    places = np.split(place, np.cumsum([sum(own) for own in counts])[:-1])
    return Experience(*(_put([block[i] for block in blocks], places) for i in range(len(Experience._fields))))


def _put(parts: list[Any], places: list[np.ndarray]) -> Any:
    """Rows of trees to their places, with one copy; of what only some of them have, nothing."""
    if not isinstance(parts[0], np.ndarray):
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: _put([part[name] for part in parts], places) for name in names}
    whole = np.empty((sum(map(len, places)), *parts[0].shape[1:]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        whole[place] = part
    return whole


def concatenated(parts: list[Any]) -> Any:
    """Trees of arrays with rows; of what only some of them have, nothing."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: concatenated([part[name] for part in parts]) for name in names}


def rows(tree: Any, which: slice) -> Any:
    """Those rows of a tree of arrays."""
    return tree[which] if isinstance(tree, np.ndarray) else {name: rows(part, which) for name, part in tree.items()}
