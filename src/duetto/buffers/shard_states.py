"""Split the state and segments of a replay buffer into those of its shards, and join them again.

A joined state is that of one buffer with all environments, so a checkpoint does not depend on the number of shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from duetto.buffers.recurrent_states import PREFIX
from duetto.buffers.storage import EARLIER, FINAL
from duetto.errors import CheckpointError
from duetto.functional.pytree import tree_map, tree_map_many

State = dict[str, Any]
Segment = dict[str, np.ndarray]
FLAGGED: dict[str, tuple[str, ...]] = {
    "first": (FINAL, EARLIER),
    "kept": (PREFIX,),
}  # arrays with one row for each row with a flag


def join_states(states: Sequence[State], shares: Sequence[range], rows: int) -> State:
    """Join shards' states; the caller replaces the entries that are not of environments or items."""
    items = [state["items"] for state in states]
    if "index" in items[0]:
        items = [one | {"index": one["index"] + share.start * rows} for one, share in zip(items, shares, strict=True)]
    whole = max(states, key=lambda state: len(state.get("carry", {})))  # a shard may have no hidden state yet
    return whole | {
        "envs": tree_map_many(np.concatenate, [state["envs"] for state in states]),
        "items": tree_map_many(np.concatenate, items),
    }


def take_state(state: State, share: range, rows: int) -> State:
    """Return the part of a state for the environments `share`. CheckpointError if it has another form."""
    try:
        items, first = state["items"], share.start * rows
        own = slice(first, share.stop * rows)
        if "index" in items:
            own = slice(*items["index"].searchsorted([own.start, own.stop]).tolist())
            items = items | {"index": items["index"] - first}
        return state | {
            "shape": state["shape"] | {"environments": len(share)},
            "envs": tree_map(itemgetter(slice(share.start, share.stop)), state["envs"]),
            "items": tree_map(itemgetter(own), items),
        }
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"The checkpoint's memory has no valid state ({error!r}).") from error


def join_segments(segments: Sequence[Segment | None], written: Sequence[np.ndarray]) -> Segment | None:
    """Join shards' segments; `written` are the shards' counts. None if no shard has any rows."""
    there = [segment for segment in segments if segment is not None]
    if not there:
        return None
    counts = [
        (own, np.zeros_like(own)) if segment is None else (segment["start"], segment["count"])
        for segment, own in zip(segments, written, strict=True)
    ]
    start, count = map(np.concatenate, zip(*counts, strict=True))
    names = max(there, key=len)  # a segment without hidden states lacks their names
    return {n: np.concatenate([segment[n] for segment in there if n in segment]) for n in names} | {
        "start": start,
        "count": count,
    }


def take_segment(segment: Segment, share: range) -> Segment | None:
    """Return the part of a segment for the environments `share`; None without rows.

    Raises:
        CheckpointError: The segment has another form.
    """
    try:
        envs = slice(share.start, share.stop)
        before, count = int(segment["count"][: share.start].sum()), int(segment["count"][envs].sum())
        if count == 0:
            return None

        def cut(name: str, array: np.ndarray) -> np.ndarray:
            if name in ("start", "count"):
                return array[envs]
            flag = next((flag for flag, prefixes in FLAGGED.items() if name.startswith(prefixes)), None)
            if flag is None:
                return array[before : before + count]
            first = np.count_nonzero(segment[flag][:before])
            return array[first : first + np.count_nonzero(segment[flag][before : before + count])]

        return {name: cut(name, array) for name, array in segment.items()}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"A segment of the memory is not valid ({error!r}).") from error


def scattered(trees: Sequence[Any], rows: Sequence[np.ndarray]) -> Any:
    """Copy `trees` of arrays into one, each to its `rows` there.

    Components that a tree lacks, such as hidden states, are zeros in its rows.
    """
    some = next((tree for tree in trees if tree is not None), None)
    if some is None:
        return None
    if isinstance(some, dict):
        return {name: scattered([tree.get(name) for tree in trees], rows) for name in max(trees, key=len)}
    if isinstance(some, tuple):
        return type(some)(*(scattered(parts, rows) for parts in zip(*trees, strict=True)))
    whole = np.zeros((sum(map(len, rows)), *some.shape[1:]), some.dtype)
    for tree, own in zip(trees, rows, strict=True):
        if tree is not None:
            whole[own] = tree
    return whole
