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
from duetto.buffers.storage import Segment
from duetto.errors import CheckpointError
from duetto.functional.pytree import tree_map

State = dict[str, Any]


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
        steps, frames = (_rows(segment[name], share) for name in ("count", "frame_count"))
        kept = _rows(segment["kept"].astype(np.int64), range(steps.start, steps.stop)) if "kept" in segment else None
        own = {"start": share, "count": share, "frame_start": share, "frame_count": share}

        def rows(name: str) -> slice:
            if name in own:
                return slice(share.start, share.stop)
            if name.startswith(PREFIX):
                assert kept is not None
                return kept
            return frames if name.split("/")[0] == "obs" else steps

        return {name: array[rows(name)] for name, array in segment.items()}


def _rows(counts: np.ndarray, share: range) -> slice:
    """Return the rows of `share`; each environment has `counts` rows."""
    return slice(int(counts[: share.start].sum()), int(counts[: share.stop].sum()))


@contextmanager
def _valid(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"The checkpoint's memory has no valid {what} ({error!r}).") from error
