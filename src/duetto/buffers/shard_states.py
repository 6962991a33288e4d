"""Split the state and segments of a replay buffer into those of its shards, and join them again.

A joined state is that of one buffer with all environments, so a checkpoint does not depend on the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np

from duetto.buffers.experience import concatenated
from duetto.buffers.recurrent_states import PREFIX
from duetto.buffers.storage import EARLIER, FINAL, Segment
from duetto.errors import CheckpointError
from duetto.functional.pytree import tree_map

State = dict[str, Any]
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
    return whole | {"envs": concatenated([state["envs"] for state in states]), "items": concatenated(items)}


def take_state(state: State, share: range, rows: int) -> State:
    """Return the part of a state for the environments `share`. CheckpointError if it has another form."""
    with _valid("state"):
        items, own = state["items"], slice(share.start * rows, share.stop * rows)
        if "index" in items:
            items = items | {"index": items["index"] - own.start}
            own = slice(*state["items"]["index"].searchsorted([own.start, own.stop]).tolist())
        return state | {
            "shape": state["shape"] | {"environments": len(share)},
            "envs": tree_map(itemgetter(slice(share.start, share.stop)), state["envs"]),
            "items": tree_map(itemgetter(own), items),
        }


def join_segments(segments: Sequence[Segment]) -> Segment:
    """Join shards' segments."""
    names = max(segments, key=len)  # a shard may have no hidden state yet
    return {name: np.concatenate([one[name] for one in segments if name in one]) for name in names}


def take_segment(segment: Segment, share: range) -> Segment:
    """Return the part of a segment for the environments `share`. CheckpointError if it has another form."""
    with _valid("segment"):
        envs, ends = slice(share.start, share.stop), np.cumsum([0, *segment["count"]])
        own = slice(ends[share.start], ends[share.stop])

        def cut(name: str, array: np.ndarray) -> np.ndarray:
            if name in ("start", "count"):
                return array[envs]
            flag = next((flag for flag, prefixes in FLAGGED.items() if name.startswith(prefixes)), None)
            if flag is None:
                return array[own]
            before, after = (np.count_nonzero(segment[flag][:end]) for end in (own.start, own.stop))
            return array[before:after]

        return {name: cut(name, array) for name, array in segment.items()}


@contextmanager
def _valid(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"The checkpoint's memory has no valid {what} ({error!r}).") from error
